"""Sections: a cell that cannot be compiled takes only its own type out of a pass."""

from __future__ import annotations

import itertools

import pytest
import torch
from compiled_checks import states_and_gradients
from engine_cells import (
    SCHEMA,
    SIZE,
    PairCell,
    PhraseCell,
    WordCell,
    chain,
    make_batch,
    make_network,
    make_x,
    random_dag,
)
from torch import Tensor, nn

from graphfold.batching import Batch, Cell, Children, Down, Up, build_schedule
from graphfold.batching.engine.sections import find_sections
from graphfold.batching.scheduling.pass_schedule import PassSchedule
from graphfold.dag import GraphBuilder, TypedDAG
from graphfold.errors import SchemaError

WORD, PHRASE, PAIR = range(3)


class Looking(Cell):
    """Looks at numbers, which no program can."""

    def forward(self, x, children: Children) -> dict[str, Tensor]:
        state = super().forward(x, children)
        if state["h"].detach().sum().isnan().item():
            raise ValueError
        return state


class LookingWord(Looking, WordCell): ...


class LookingPhrase(Looking, PhraseCell): ...


class LookingPair(Looking, PairCell): ...


CELLS = {
    "word": (WordCell, LookingWord),
    "phrase": (PhraseCell, LookingPhrase),
    "pair": (PairCell, LookingPair),
}


class ReadingCell(Cell):
    """For a pass down: reads whoever reads it, and what it has from before."""

    reads = ("h",)

    def __init__(self, looks: bool) -> None:
        super().__init__()
        self.fields = {"h": SIZE, "d": SIZE}
        self.linear, self.looks = nn.Linear(2 * SIZE, SIZE), looks

    def forward(self, x: Tensor, children: Children) -> dict[str, Tensor]:
        h = torch.cat([children.sum("h"), children.previous("h")], 1)
        h = torch.tanh(self.linear(h) + x)
        if self.looks and h.detach().sum().isnan().item():
            raise ValueError
        return {"h": h, "d": h * children.previous("c")}


def up(refused: tuple[str, ...]) -> dict[str, Cell]:
    return {name: own[name in refused]() for name, own in CELLS.items()}


def down(refused: tuple[str, ...]) -> dict[str, Cell]:
    return {name: ReadingCell(name in refused) for name in CELLS}


SUBSETS = [own for count in (1, 2) for own in itertools.combinations(CELLS, count)]
PASSES = {
    "up": lambda refused: ([Up()], [up(refused)]),
    "up twice": lambda refused: ([Up(), Up()], [up(()), up(refused)]),
    "up and down": lambda refused: ([Up(), Down()], [up(refused), down(refused)]),
}


@pytest.mark.parametrize("refused", SUBSETS, ids="+".join)
@pytest.mark.parametrize(
    ("passes", "backend"), [("up twice", "native"), ("up and down", "native"), ("up", "torch")]
)
@pytest.mark.filterwarnings("ignore:.*is not compiled")
def test_sections_equal_the_reference(passes, refused, backend):
    torch.manual_seed(0)
    network = make_network(*PASSES[passes](refused), backend=backend, learned_absent=["h"])
    dag = random_dag(3, 0, size=5)
    x = make_x(dag)
    for policy in ("depth", "agenda"):
        network.run = "auto"
        actual = states_and_gradients(network, dag, x, policy)
        for name in refused:
            assert network.execution.get(name, "eager").startswith("eager")
        network.run = "reference"
        want = states_and_gradients(network, dag, x, policy)
        torch.testing.assert_close(actual, want, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("refused", SUBSETS, ids="+".join)
@pytest.mark.filterwarnings("ignore:.*is not compiled")
def test_equal_nodes_are_computed_once(refused):
    network, dag = make_network(cells=[up(refused)]), random_dag(6, 0)
    x = {name: torch.ones_like(value) for name, value in make_x(dag).items()}
    want = network(make_batch(dag, network), x)
    actual = network(Batch(dag, build_schedule(dag, network.passes, share=True)), x)
    torch.testing.assert_close(dict(actual), dict(want), rtol=1e-10, atol=1e-10)


def towers() -> TypedDAG:
    """Words, phrases over words, pairs over phrases."""
    builder = GraphBuilder(SCHEMA)
    phrases = []
    for _ in range(2):
        words = [builder.node("word"), builder.node("word")]
        phrases.append(builder.node("phrase"))
        builder.inputs(phrases[-1], words, weight=[1.0, 0.5])
    builder.inputs(builder.node("pair"), phrases, weight=[1.0, 1.0])
    builder.output(builder.node("word"))
    builder.finish()
    return builder.build()


@pytest.mark.parametrize("refused", SUBSETS, ids="+".join)
@pytest.mark.filterwarnings("ignore:.*is not compiled")
def test_only_refused_cells_run_as_they_are(refused):
    network, dag = make_network(cells=[up(refused)]), towers()
    network(make_batch(dag, network), make_x(dag))
    assert {n for n, how in network.execution.items() if how == "compiled (native)"} == {
        name for name in CELLS if name not in refused
    }
    for name in refused:
        owner = type(network.cells[0][name][0]).__name__
        assert network.execution[name].startswith(f"eager ({owner}: ")


def plan_of(*inputs: tuple[str, list[int]]) -> PassSchedule:
    """The plan of one graph: the type of each node, and what it reads."""
    builder = GraphBuilder(SCHEMA)
    for name, read in inputs:
        node = builder.node(name)
        builder.inputs(node, read, weight=[1.0] * len(read))
    builder.output(node)
    builder.finish()
    return build_schedule(builder.build(), [Up()]).passes[0]


EVERY = {WORD, PHRASE, PAIR}
WORDS = ("word", []), ("word", [])
LAYERS = plan_of(*WORDS, ("phrase", [0, 1]), ("pair", [2, 0]))
ENTANGLED = plan_of(*WORDS, ("phrase", [0, 1]), ("pair", [2, 0]), ("phrase", [3]))


@pytest.mark.parametrize(
    ("plan", "refused", "sections"),
    [
        (LAYERS, set(), [EVERY]),
        (LAYERS, EVERY, [EVERY]),
        (LAYERS, {WORD}, [{WORD}, {PHRASE, PAIR}]),
        (LAYERS, {PHRASE}, [{WORD}, {PHRASE}, {PAIR}]),
        (LAYERS, {PAIR}, [{WORD, PHRASE}, {PAIR}]),
        (LAYERS, {PHRASE, PAIR}, [{WORD}, {PHRASE, PAIR}]),
        (ENTANGLED, {WORD}, [{WORD}, {PHRASE, PAIR}]),
        (ENTANGLED, {PHRASE}, [{WORD}, {PHRASE, PAIR}]),
        (plan_of(*WORDS, ("phrase", [0, 1])), {PAIR}, [EVERY]),
        (plan_of(*WORDS, ("phrase", [0, 1])), {WORD}, [{WORD, PAIR}, {PHRASE}]),
    ],
)
def test_types_that_read_each_other_stay_together(plan, refused, sections):
    assert find_sections(plan, EVERY, refused) == sections


def test_a_type_without_a_cell_divides_nothing():
    assert find_sections(LAYERS, {WORD, PAIR}, {WORD}) == [{WORD}, {PAIR}]


@pytest.mark.parametrize("refused", [("word",), ("phrase",)], ids="+".join)
@pytest.mark.filterwarnings("ignore:.*is not compiled")
def test_previous_is_no_state_of_the_same_pass(refused):
    class Before(CELLS["phrase"]["phrase" in refused]):
        def forward(self, x, children: Children) -> dict[str, Tensor]:
            return {**super().forward(x, children), "h": children.previous("h")}

    network, dag = make_network(cells=[{**up(refused), "phrase": Before()}]), chain(2)
    with pytest.raises(SchemaError, match="previous\\('h'\\) reads a field that no earlier pass"):
        network(make_batch(dag, network), make_x(dag))
