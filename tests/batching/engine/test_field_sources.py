"""A field of a type comes from its cell, an earlier pass, `initial`, or nothing: one rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
import random_networks
import torch
from torch import Tensor, nn

from graphfold.batching import Batch, Cell, Children, Down, Network, Rounds, Up, build_schedule
from graphfold.dag import EdgeType, GraphBuilder, NodeType, Schema, TypedDAG
from graphfold.errors import ConfigError, SchemaError

SCHEMA = Schema(types=(NodeType("a", 0), NodeType("b", 0)), relations=(EdgeType("r"),))
WIDTHS = {"h": 1, "c": 1}
ONE = torch.ones(1, 1, dtype=torch.float64)
#: Name -> the attributes of a network.
WAYS = random_networks.ENGINES | {"reference": {"run": "reference"}}
State = dict[str, Tensor]


@pytest.mark.parametrize("first", range(0, 40, 10))
def test_random_networks_equal_the_reference(first):
    for seed in range(first, first + 10):
        random_networks.compare(seed)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(40, 1040, 50))
def test_many_random_networks_equal_the_reference(first):
    for seed in range(first, first + 50):
        random_networks.compare(seed)


class Made(Cell):
    """A cell of a function; `initial` doubles the input if it is allowed."""

    def __init__(
        self,
        function: Callable[[Tensor, Children], State],
        fields: Sequence[str] = ("h",),
        reads: Sequence[str] = (),
        initial: bool = False,
    ) -> None:
        super().__init__()
        self.fields, self.reads = {name: WIDTHS[name] for name in fields}, tuple(reads)
        self.function, self.has_initial = function, initial
        self.scale = nn.Parameter(torch.tensor([2.0]))

    def initial(self, x: Tensor) -> State:
        if not self.has_initial:
            return super().initial(x)
        return dict.fromkeys(self.fields, x * self.scale)

    def forward(self, x: Tensor, children: Children) -> State:
        return self.function(x, children)


def pair() -> TypedDAG:
    """A node of type a and one of type b, which read each other along r."""
    builder = GraphBuilder(SCHEMA)
    one, other = builder.node("a"), builder.node("b")
    builder.edges("r", [one, other], [other, one])
    builder.output(other)
    builder.finish()
    return builder.build()


def run(passes: Sequence[Any], cells: Sequence[Mapping[str, Any]], way: str) -> State:
    """The states of a = 1 and b = 10, and the gradients of what `initial` reads."""
    network, dag = Network(SCHEMA, *zip(passes, cells, strict=True)).double(), pair()
    for name, value in WAYS[way].items():
        setattr(network, name, value)
    x = {name: torch.tensor([[v]], dtype=torch.float64) for name, v in (("a", 1.0), ("b", 10.0))}
    parameters = [*network.parameters()]
    with random_networks.poisoned():
        states = network(Batch(dag, build_schedule(dag, passes)), x)
        loss = sum(value.sum() for value in (*states.values(), *(0.0 * p for p in parameters)))
        grads = torch.autograd.grad(loss, parameters)
    outcome = {name: value.flatten() for name, value in states.items()}
    return {**outcome, "grads": torch.cat(grads)}


def assert_all_ways(passes: Sequence[Any], make: Callable[[], Sequence[Any]], **want: Any) -> None:
    """Every engine gives these states, and the gradients of the reference."""
    reference = run(passes, make(), "reference")
    for name, values in want.items():
        assert reference[name].tolist() == values, name
    for way in WAYS:
        torch.testing.assert_close(run(passes, make(), way), reference, rtol=0, atol=0)


def assert_refused(
    passes: Sequence[Any], make: Callable[[], Sequence[Any]], error: type[Exception], match: str
) -> None:
    """Every engine refuses it in the same words."""
    texts = set()
    for way in WAYS:
        with pytest.raises(error, match=match) as caught:
            run(passes, make(), way)
        texts.add(str(caught.value).split("\n")[0])
    assert len(texts) == 1


def begin(x: Tensor, children: Children) -> State:
    return {"h": x, "c": 10 * x}


def both(x: Tensor, children: Children) -> State:
    return {"h": children.sum("h"), "c": children.sum("c")}


def h_only(x: Tensor, children: Children) -> State:
    return {"h": children.sum("h")}


def previous_c(x: Tensor, children: Children) -> State:
    return {"h": children.previous("c")}


START = {"a": Made(begin, ["h", "c"]), "b": Made(begin, ["h", "c"])}


@pytest.mark.parametrize("num_rounds", [1, 2, 3])
def test_a_type_keeps_the_field_that_its_cell_does_not_write(num_rounds):
    """c of b stays 100: the type has a cell, but the cell writes h only."""

    def make():
        cells = {"a": Made(both, ["h", "c"], ["h", "c"]), "b": Made(h_only, ["h"], ["h"])}
        return [START, cells]

    h = [1.0, 10.0] if num_rounds == 2 else [10.0, 1.0]
    assert_all_ways([Up(), Rounds("r", num_rounds)], make, h=h, c=[100.0, 100.0])


def test_a_kept_field_is_the_previous_of_its_node():
    def make():
        cells = {"a": Made(both, ["h", "c"], ["h", "c"]), "b": Made(previous_c, ["h"])}
        return [START, cells]

    assert_all_ways([Up(), Rounds("r", 2)], make, h=[100.0, 100.0], c=[100.0, 100.0])


@pytest.mark.parametrize("without", [0, 1, 2])
def test_a_round_whose_cell_lacks_a_field_keeps_it(without):
    def make():
        cells = [Made(both, ["h", "c"], ["h", "c"]) for _ in range(3)]
        cells[without] = Made(h_only, ["h"], ["h"])
        return [START, {"a": cells, "b": Made(both, ["h", "c"], ["h", "c"])}]

    c = {0: [10.0, 10.0], 1: [100.0, 100.0], 2: [10.0, 10.0]}[without]
    assert_all_ways([Up(), Rounds("r", 3)], make, h=[10.0, 1.0], c=c)


def test_a_field_that_only_a_later_round_writes():
    def make():
        later = [Made(h_only, ["h"], ["h"]), Made(both, ["h", "c"], ["h"])]
        later[1].function = lambda x, children: {"h": children.sum("h"), "c": 3 * x}
        return [{"a": START["a"], "b": Made(h_only)}, {"b": later}]

    passes = [Rounds("r", 1), Rounds("r", 2)]
    cells = make()
    cells[0] = {name: Made(lambda x, children: {"h": x}, initial=True) for name in "ab"}
    assert_all_ways(passes, lambda: cells, h=[1.0, 1.0], c=[0.0, 30.0])


def test_initial_is_that_of_each_type():
    """b has c from the first pass, a has it from `initial`; its parameter gets a gradient."""

    def make():
        swap = Made(both, ["h", "c"], ["h", "c"], initial=True)
        first = {"a": Made(lambda x, children: {"h": x}), "b": START["b"]}
        return [first, {"a": swap, "b": swap}]

    assert_all_ways([Up(), Rounds("r", 1)], make, h=[10.0, 1.0], c=[100.0, 2.0])
    network = make()
    assert run([Up(), Rounds("r", 1)], network, "native")["grads"][-1] == 1.0


def test_a_type_without_a_field_and_without_initial_is_refused():
    def make():
        swap = Made(both, ["h", "c"], ["h", "c"])
        first = {"a": Made(lambda x, children: {"h": x}), "b": START["b"]}
        return [first, {"a": swap, "b": swap}]

    assert_refused([Up(), Rounds("r", 1)], make, ConfigError, "has no initial state for rounds")


@pytest.mark.parametrize("item", [Up(), Down(), Rounds("r", 1)], ids=["up", "down", "rounds"])
@pytest.mark.parametrize("read", ["previous", "own"])
def test_previous_of_a_field_that_the_type_lacks_is_refused(item, read):
    """b has c, a does not."""

    def reading(x: Tensor, children: Children) -> State:
        if read == "own":
            return {"h": children.sum("c", own=1.0)}
        return {"h": children.previous("c")}

    def make():
        first = {"a": Made(lambda x, children: {"h": x}), "b": START["b"]}
        return [first, {"a": Made(reading)}]

    match = r"children.previous\('c'\) reads a field that no earlier pass gives the nodes"
    assert_refused([Up(), item], make, SchemaError, match)


@pytest.mark.parametrize("item", [Up(), Rounds("r", 2)], ids=["up", "rounds"])
def test_a_field_that_no_type_has_is_refused(item):
    def make():
        reads = Made(lambda x, children: {"h": children.max("c")})
        return [{"a": Made(lambda x, children: {"h": x})}, {"a": reads}]

    assert_refused(
        [Up(), item], make, SchemaError, "reads field 'c', but its children have only 'h'"
    )


def test_a_later_round_is_checked_like_the_first():
    """In the second round, a reads c of b, which has none."""

    def make():
        cells = [Made(h_only, ["h"], ["h"], True), Made(both, ["h", "c"], ["h", "c"])]
        return [{"a": cells, "b": Made(h_only, ["h"], ["h"], True)}]

    match = "reads field 'c', but its children of type 'b' have only 'h'"
    assert_refused([Rounds("r", 2)], make, SchemaError, match)


@pytest.mark.parametrize("num_rounds", [1, 2])
def test_a_field_beyond_those_listed_is_zero_where_a_type_lacks_it(num_rounds):
    """a reads c of b, which is not in `reads`: b has none, so it reads zeros."""

    def make():
        first = {"a": START["a"], "b": Made(lambda x, children: {"h": x})}
        cells = {"a": Made(both, ["h", "c"], ["h"]), "b": Made(h_only, ["h"], ["h"])}
        return [first, cells]

    assert_all_ways([Up(), Rounds("r", num_rounds)], make, c=[0.0, 0.0])


@pytest.mark.parametrize("num_rounds", [1, 2])
def test_types_with_different_fields_are_compiled_after_up(num_rounds):
    """Nodes and hyperedges: a has only h, b has only c, and each reads the other's field."""
    first = {
        "a": Made(lambda x, children: {"h": x}),
        "b": Made(lambda x, children: {"c": x}, ["c"]),
    }
    second = {
        "a": Made(lambda x, children: {"h": children.sum("c") + x}, reads=["c"]),
        "b": Made(lambda x, children: {"c": children.sum("h") * x}, ["c"], ["h"]),
    }
    passes = [Up(), Rounds("r", num_rounds)]
    h, c = {1: (11.0, 10.0), 2: (11.0, 110.0)}[num_rounds]
    assert_all_ways(passes, lambda: [first, second], h=[h, 0.0], c=[0.0, c])
    network, dag = (
        Network(SCHEMA, *zip(passes, [first, second], strict=True), run="compiled"),
        pair(),
    )
    network.double()(Batch(dag, build_schedule(dag, passes)), dict.fromkeys("ab", ONE))
    assert {*network.execution.values()} <= {"compiled (native)", "compiled (torch)"}
