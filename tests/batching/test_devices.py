"""The fast engine on a device against one node at a time on the CPU: values and gradients.

On a CPU this is run by default; with `-m gpu` on a CUDA device.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import pytest
import torch
from mixed_graphs import letters_to_sentences, word_lattices
from torch import Tensor, nn

from graphfold.batching import Batch, Cell, Down, Network, Pass, Rounds, Up, build_schedule
from graphfold.batching.cell import NodeInput, State
from graphfold.batching.children import Children
from graphfold.batching.engine.eager import EagerReader
from graphfold.batching.kernels.gather import RowIndex
from graphfold.dag import EdgeType, GraphBuilder, NodeType, Schema, TypedDAG
from graphfold.inference.compare_engines import distance
from graphfold.layers import (
    ChildSumTreeLSTMCell,
    GCNCell,
    GINCell,
    LeafLSTMCell,
    NaryTreeLSTMCell,
)
from graphfold.layers.readouts.readout import output_nodes

pytestmark = pytest.mark.usefixtures("backend")

NUM_GRAPHS, SIZE = 6, 16
CPU = "cpu"
DEVICES = [CPU, pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.fixture(autouse=True)
def _on_its_device(request: pytest.FixtureRequest) -> None:
    _, own = request.node.callspec.params["backend"]
    if request.node.callspec.params.get("device", CPU) != own:
        pytest.skip("the backend runs on another device")


class TopDownCell(Cell):
    """d = tanh(W h + U Σ_k d_k): h of the pass up, and d of the nodes above."""

    def __init__(self) -> None:
        super().__init__()
        self.fields = {"d": SIZE}
        self.from_h = nn.Linear(SIZE, SIZE)
        self.from_d = nn.Linear(SIZE, SIZE, bias=False)

    def forward(self, x: NodeInput, children: Children) -> State:
        own, above = children.previous("h"), children.sum("d")
        return {"d": torch.tanh(self.from_h(own) + self.from_d(above))}


class Problem(NamedTuple):
    """Graphs, and the passes and the network over them."""

    dag: TypedDAG
    passes: Sequence[Pass]
    network: Network


def tree_cell(arity: int | None, dropout: float) -> Cell:
    if arity is None:
        return ChildSumTreeLSTMCell(SIZE, SIZE, dropout)
    return NaryTreeLSTMCell(SIZE, SIZE, arity, dropout) if arity else LeafLSTMCell(SIZE, SIZE)


def trees(make: Callable[[int, int], TypedDAG], dropout: float, down: bool = False) -> Problem:
    dag = make(NUM_GRAPHS, 0)
    cells = [{item.name: tree_cell(item.arity, dropout) for item in dag.schema.types}]
    passes: list[Pass] = [Up()]
    if down:
        passes.append(Down())
        cells.append({item.name: TopDownCell() for item in dag.schema.types})
    return Problem(dag, passes, Network(dag.schema, *zip(passes, cells, strict=True)))


def operations(count: int, seed: int) -> TypedDAG:
    """Operations that read one or two earlier results, so that every type is read, too."""
    arity = {"scale": 1, "gate": 1, "join": 2, "attend": 2}
    types = (NodeType("input", 0), *(NodeType(op, number) for op, number in arity.items()))
    rng, builder = random.Random(seed), GraphBuilder(Schema(types))
    for _ in range(count):
        nodes = list(builder.nodes("input", rng.randint(2, 6)))
        for _ in range(rng.randint(10, 40)):
            op, number = rng.choice(list(arity.items()))
            nodes.append(builder.node(op, rng.choices(nodes[-6:], k=number)))
        builder.output(nodes[-1])
        builder.finish()
    return builder.build()


def rounds(dropout: float) -> Problem:
    """Rings of atoms with random bonds across, in both directions."""
    schema = Schema((NodeType("atom", 0),), relations=(EdgeType("bond"),))
    rng, builder = random.Random(0), GraphBuilder(schema)
    for _ in range(NUM_GRAPHS):
        size = rng.randint(3, 20)
        builder.nodes("atom", size)
        pairs = [(atom, (atom + 1) % size) for atom in range(size)]
        pairs += [(rng.randrange(size), rng.randrange(size)) for _ in range(3)]
        first, second = map(list, zip(*pairs, strict=True))
        builder.edges("bond", first + second, second + first)
        builder.output(0)
        builder.finish()
    cells = [GCNCell(SIZE, dropout=dropout), GINCell(SIZE), GCNCell(SIZE)]
    passes = [Rounds("bond", len(cells))]
    return Problem(builder.build(), passes, Network(schema, (passes[0], {"atom": cells})))


PROBLEMS: dict[str, Callable[[float], Problem]] = {
    "up": lambda dropout: trees(letters_to_sentences, dropout),
    "any number of children": lambda dropout: trees(word_lattices, dropout),
    "up, then down": lambda dropout: trees(operations, dropout, down=True),
    "rounds": rounds,
}


@cache
def make_problem(name: str, dropout: float = 0.0) -> Problem:
    torch.manual_seed(0)
    return PROBLEMS[name](dropout)


@cache
def network_on(network: Network, device: str, dtype: torch.dtype) -> Network:
    """A copy elsewhere, compiled once for all plans."""
    return copy.deepcopy(network).to(device, dtype)


@dataclass(frozen=True)
class Plan:
    """How the engine runs."""

    device: str = CPU
    dtype: torch.dtype = torch.float64
    policy: str = "depth"
    share: bool = False
    autocast: bool = False
    run: str = "auto"


def results(problem: Problem, plan: Plan, is_new: bool = False) -> list[Tensor | None]:
    """Every state, then the gradients of weights and inputs, all in float64 on the CPU.

    Args:
        problem: the graphs and the network.
        plan: how the engine runs.
        is_new: whether the network's cells are compiled for this call alone.
    """
    network = network_on(problem.network, plan.device, plan.dtype)
    if is_new:
        network = copy.deepcopy(network)
    network.run = plan.run
    schedule = build_schedule(problem.dag, problem.passes, plan.policy, plan.share)
    batch = Batch(problem.dag, schedule).to(plan.device)
    x = {name: row.to(plan.device, plan.dtype).requires_grad_() for name, row in inputs(problem)}
    counts = zip(x.items(), problem.dag.num_nodes_by_type, strict=True)
    torch.manual_seed(0)
    with torch.autocast(plan.device, torch.bfloat16) if plan.autocast else nullcontext():
        states = network(batch, {name: row.expand(count, -1) for (name, row), count in counts})
        values = [states[name] for name in sorted(states)]
        values += [states.at(name, RowIndex.of(batch.dag, output_nodes)) for name in sorted(states)]
        loss = sum((weighted_sum(value) for value in values), torch.zeros(()))
    wanted = [*network.parameters(), *x.values()]
    grads = torch.autograd.grad(loss, wanted, allow_unused=True)
    actual = (*values, *grads)
    return [None if tensor is None else tensor.detach().double().cpu() for tensor in actual]


@cache
def reference(name: str) -> list[Tensor | None]:
    """One node at a time, on the CPU."""
    return results(make_problem(name), Plan(run="reference"))


def inputs(problem: Problem) -> list[tuple[str, Tensor]]:
    """One row for each type: equal inputs make equal nodes, which can be shared."""
    generator = torch.Generator().manual_seed(1)
    names = [node_type.name for node_type in problem.dag.schema.types]
    return [(name, torch.randn(1, SIZE, generator=generator).double()) for name in names]


def weighted_sum(value: Tensor) -> Tensor:
    """A sum with a weight for every entry, drawn on the CPU to be the same on all devices."""
    generator = torch.Generator().manual_seed(value.numel())
    weight = torch.rand(value.shape, generator=generator, dtype=torch.float64)
    return (value.double() * weight.to(value.device)).sum()


#: How the engine runs, and how far off it may be; on a CPU, other tests see the slow ones, too.
PLANS = [
    pytest.param(plan, limit, marks=marks, id=str(plan))
    for plan, limit, marks in (
        ({}, 1e-9, pytest.mark.slow),
        ({"run": "eager"}, 1e-9, pytest.mark.slow),
        ({"share": True}, 1e-9, ()),
        ({"policy": "critical_path"}, 1e-9, pytest.mark.slow),
        ({"dtype": torch.float32}, 1e-4, ()),
        ({"dtype": torch.float32, "autocast": True, "run": "eager"}, 1e-1, ()),
    )
]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize(("plan", "limit"), PLANS)
def test_a_device_computes_what_one_node_at_a_time_does(
    name: str, plan: dict[str, object], limit: float, device: str
) -> None:
    want = reference(name)
    assert all(bool(tensor.any()) for tensor in want)  # every gradient is compared
    got = results(make_problem(name), Plan(device, **plan))  # type: ignore[arg-type]
    assert distance(got, want) <= limit


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("share", [False, True])
def test_the_same_bits_come_again(name: str, share: bool, device: str) -> None:
    problem, plan = make_problem(name), Plan(device, share=share)
    actual = results(problem, plan)
    assert distance(actual, results(problem, plan)) == 0
    assert distance(actual, results(problem, plan, is_new=True)) == 0


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", PROBLEMS)
def test_dropout_depends_on_the_seed_alone(name: str, device: str) -> None:
    problem = make_problem(name, dropout=0.5)
    got = results(problem, Plan(device))
    assert distance(got, results(make_problem(name), Plan(device))) > 1e-3  # something was dropped
    assert distance(got, results(problem, Plan(device))) == 0
    assert distance(got, results(problem, Plan(device, policy="critical_path"))) <= 1e-9


def test_wrong_gradients_are_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, want, right = make_problem("up"), reference("up"), EagerReader.rows

    def wrong(self: EagerReader, field: str) -> Tensor:
        rows = right(self, field)
        if rows.requires_grad:
            rows.register_hook(lambda gradient: gradient * 1.001)
        return rows

    monkeypatch.setattr(EagerReader, "rows", wrong)
    assert distance(results(problem, Plan(run="eager")), want) > 1e-5
