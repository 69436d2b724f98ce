"""Checks of a device: the fast engine there against one node at a time on the CPU."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from graphfold.batching import Batch, Cell, Down, Network, Pass, Rounds, Up, build_schedule
from graphfold.batching.cell import NodeInput, State
from graphfold.batching.children import Children
from graphfold.batching.native.library import why_missing
from graphfold.batching.network import CellsByType
from graphfold.bench.mixed_graphs import letters_to_sentences, random_dags, word_lattices
from graphfold.dag import EdgeType, GraphBuilder, NodeType, Schema, TypedDAG
from graphfold.layers import (
    ChildSumTreeLSTMCell,
    GCNCell,
    GINCell,
    LeafLSTMCell,
    NaryTreeLSTMCell,
)
from graphfold.training.verify import distance

#: Graphs of a problem, the width of features and of states.
NUM_GRAPHS, SIZE = 6, 16

#: Largest difference that counts as equal, relative to the largest value (at least 1).
FLOAT64, FLOAT32, BFLOAT16, SAME_BITS = 1e-9, 1e-4, 1e-1, 0.0

_RINGS = Schema((NodeType("atom", 0),), relations=(EdgeType("bond"),))


@dataclass(frozen=True)
class Check:
    """How far two computations of the same are apart."""

    name: str
    error: float
    limit: float

    @property
    def passed(self) -> bool:
        return self.error <= self.limit  # false for NaN


class Problem(NamedTuple):
    """Graphs with what is computed over them."""

    dag: TypedDAG
    passes: Sequence[Pass]
    cells: Sequence[CellsByType]

    def network(self) -> Network:
        """The cells in float64, their weights the same whenever they are asked for."""
        return Network(self.dag.schema, self.passes, copy.deepcopy(self.cells)).double()


class TopDownCell(Cell):
    """Reads its own state of the pass up, and the state of those that read it.

    d = tanh(W h + U Σ_k d_k)
    """

    def __init__(self) -> None:
        super().__init__()
        self.fields = {"d": SIZE}
        self.from_h = nn.Linear(SIZE, SIZE)
        self.from_d = nn.Linear(SIZE, SIZE, bias=False)

    def forward(self, x: NodeInput, children: Children) -> State:
        """The state of the nodes."""
        own, above = children.previous("h"), children.sum("d")
        return {"d": torch.tanh(self.from_h(own) + self.from_d(above))}


class Plan(NamedTuple):
    """How the fast engine runs."""

    dtype: torch.dtype = torch.float64
    policy: str = "depth"
    share: bool = False
    autocast: bool = False
    fuse: bool | None = False


def problems(dropout: float = 0.0) -> dict[str, Problem]:
    """Passes up, down and in rounds over generated graphs, with every way of reading children."""
    torch.manual_seed(0)
    text, lattice, ops = (make(NUM_GRAPHS, 0) for make in _GRAPHS)
    up = {"up": (text, [Up()]), "any number of children": (lattice, [Up()])}
    found = {
        name: Problem(dag, passes, [_tree_cells(dag.schema, dropout)])
        for name, (dag, passes) in up.items()
    }
    back = {item.name: TopDownCell() for item in ops.schema.types}
    found["up, then down"] = Problem(ops, [Up(), Down()], [_tree_cells(ops.schema, dropout), back])
    turns = [GCNCell(SIZE, dropout=dropout), GINCell(SIZE), GCNCell(SIZE)]
    found["rounds"] = Problem(_rings(NUM_GRAPHS), [Rounds("bond", len(turns))], [{"atom": turns}])
    return found


def checks(device: torch.device | str) -> Iterator[Check]:
    """Runs every check on a device; values and gradients count alike."""
    device = torch.device(device)
    for name, problem in problems().items():
        want = reference(problem)
        for label, plan, limit in _plans(device):
            got = fast(problem, plan, device)
            yield Check(f"{name}: {label}", distance(got, want), limit)
        for label, plan in (("twice", Plan()), ("twice, shared", Plan(share=True))):
            first, second = (fast(problem, plan, device) for _ in range(2))
            yield Check(f"{name}: {label}, same bits", distance(first, second), SAME_BITS)
    for name, problem in problems(dropout=0.5).items():
        first, second, other = (
            fast(problem, Plan(policy=policy), device) for policy in ("depth", "depth", "agenda")
        )
        kept = fast(problems()[name], Plan(), device)
        if distance(first, kept) <= FLOAT64:
            raise RuntimeError(f"problem '{name}' is meant to drop something, and did not")
        yield Check(f"{name}: dropout by seed, same bits", distance(first, second), SAME_BITS)
        yield Check(f"{name}: dropout by seed, other policy", distance(first, other), FLOAT64)


def reference(problem: Problem) -> list[Tensor]:
    """States and gradients from one node at a time, in float64 on the CPU."""
    network = problem.network()
    network.engine = "reference"
    return _results(network, problem, Plan(), torch.device("cpu"))


def fast(problem: Problem, plan: Plan, device: torch.device) -> list[Tensor]:
    """States and gradients from the fast engine on a device."""
    network = problem.network().to(device, plan.dtype)
    network.fuse = plan.fuse
    return _results(network, problem, plan, device)


def _plans(device: torch.device) -> Iterator[tuple[str, Plan, float]]:
    yield "float64", Plan(), FLOAT64
    yield "float64, shared", Plan(share=True), FLOAT64
    yield "float64, critical_path", Plan(policy="critical_path"), FLOAT64
    if device.type != "cpu" or torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        yield "bfloat16 autocast", Plan(torch.float32, autocast=True), BFLOAT16
    yield "float32", Plan(torch.float32), FLOAT32
    if device.type == "cpu" and why_missing(torch.float64) is None:  # where cells are compiled
        yield "float64, compiled", Plan(fuse=True), FLOAT64
        yield "float32, compiled", Plan(torch.float32, fuse=True), FLOAT32


def _results(network: Network, problem: Problem, plan: Plan, device: torch.device) -> list[Tensor]:
    """Every state, then the gradients of weights and inputs, all in float64 on the CPU."""
    schedule = build_schedule(problem.dag, problem.passes, plan.policy, plan.share)
    batch = Batch(problem.dag, schedule).to(device)
    x = _inputs(problem.dag, plan.dtype, device)
    counts = zip(x.items(), problem.dag.num_nodes_by_type, strict=True)
    torch.manual_seed(0)
    with _autocast(plan, device):
        states = network(batch, {name: row.expand(count, -1) for (name, row), count in counts})
        values = [states[name] for name in sorted(states)]
        loss = sum(_weighted_sum(value) for value in values)
    wanted = [*network.parameters(), *x.values()]
    grads = torch.autograd.grad(loss, wanted, allow_unused=True)  # type: ignore[arg-type]
    zeros = (torch.zeros_like(t) if g is None else g for g, t in zip(grads, wanted, strict=True))
    return [tensor.detach().double().cpu() for tensor in (*values, *zeros)]


def _weighted_sum(value: Tensor) -> Tensor:
    """A sum in which every entry counts differently, drawn on the CPU to be alike everywhere."""
    generator = torch.Generator().manual_seed(value.numel())
    weight = torch.rand(value.shape, generator=generator, dtype=torch.float64)
    return (value.double() * weight.to(value.device)).sum()


def _inputs(dag: TypedDAG, dtype: torch.dtype, device: torch.device) -> dict[str, Tensor]:
    """Type -> [1, SIZE], the input of all its nodes: they have no features to tell them apart.

    So plans that share, and compute equal nodes once, must come to the same results.
    """
    generator = torch.Generator().manual_seed(1)
    found = {}
    for node_type in dag.schema.types:
        row = torch.randn(1, SIZE, generator=generator, dtype=torch.float64)
        found[node_type.name] = row.to(device, dtype).requires_grad_()
    return found


def _autocast(plan: Plan, device: torch.device) -> AbstractContextManager[object]:
    return torch.autocast(device.type, torch.bfloat16) if plan.autocast else nullcontext()


def _tree_cells(schema: Schema, dropout: float) -> CellsByType:
    def cell(arity: int | None) -> LeafLSTMCell | NaryTreeLSTMCell | ChildSumTreeLSTMCell:
        if arity is None:
            return ChildSumTreeLSTMCell(SIZE, SIZE, dropout)
        return NaryTreeLSTMCell(SIZE, SIZE, arity, dropout) if arity else LeafLSTMCell(SIZE, SIZE)

    return {item.name: cell(item.arity) for item in schema.types}


def _rings(count: int) -> TypedDAG:
    """Rings of atoms with bonds across, each in both directions."""
    rng, builder = random.Random(0), GraphBuilder(_RINGS)
    for _ in range(count):
        size = rng.randint(3, 20)
        builder.nodes("atom", size)
        pairs = [(atom, (atom + 1) % size) for atom in range(size)]
        pairs += [(rng.randrange(size), rng.randrange(size)) for _ in range(3)]
        first, second = map(list, zip(*pairs, strict=True))
        builder.edges("bond", first + second, second + first)
        builder.output(0)
        builder.finish()
    return builder.build()


_GRAPHS: Sequence[Callable[[int, int], TypedDAG]] = (
    letters_to_sentences,
    word_lattices,
    random_dags,
)
