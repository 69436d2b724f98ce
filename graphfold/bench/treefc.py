"""Fold's Tree-FC benchmark: binary trees of 128 leaves, one fully connected layer per node.

Looks et al. (2017), https://arxiv.org/abs/1702.02181, table 1. Baselines of the same run:
`one_by_one` (a loop over the nodes of one tree after another), `cat_levels` (levels joined by
torch.cat under autograd), `hand_batched` (identical shapes only: the perfect tree written out as
dense tensors) and `product_floor` (the matrix products alone).

    graphfold bench treefc --batch-size 1,32,128 --hidden-size 256
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from graphfold.batching import Batch, Cell, Network, Up, build_schedule
from graphfold.batching.cell import NodeInput, State
from graphfold.batching.children import Children
from graphfold.bench.measure import Row, median_seconds
from graphfold.dag import GraphBuilder, NodeType, Schema, TypedDAG
from graphfold.layers import TreeFCCell
from graphfold.layers.node_input import features

NUM_LEAVES = 128
SCHEMA = Schema((NodeType("leaf", 0), NodeType("node", 2)))
BATCH_SIZES = (1, 32, 128)
HIDDEN_SIZES = (256,)


class GivenCell(Cell):
    """A leaf whose state is its input."""

    arity = 0

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.fields = {"h": hidden_size}

    def forward(self, x: NodeInput, children: Children) -> State:
        return {"h": features(x)}


def rows(
    batch_sizes: list[int] | None, hidden_sizes: list[int] | None, threads: int
) -> Iterator[Row]:
    """Measures every shape, width and batch size; the rows of one setting come together."""
    for hidden_size in hidden_sizes or HIDDEN_SIZES:
        for batch_size in batch_sizes or BATCH_SIZES:
            for shape in ("identical", "random"):
                trees = [_tree(shape, seed) for seed in range(batch_size)]
                setting = _Setting(_join(trees), hidden_size, shape)
                yield from setting.rows(batch_size, threads)


class _Setting:
    """One batch of trees with the functions that compute its roots."""

    def __init__(self, dag: TypedDAG, hidden_size: int, shape: str) -> None:
        self.dag, self.hidden_size, self.shape = dag, hidden_size, shape
        self.cell = TreeFCCell(hidden_size)
        self.network = Network(
            SCHEMA, [Up()], [{"leaf": GivenCell(hidden_size), "node": self.cell}]
        )
        self.plain = Network(
            SCHEMA, [Up()], [{"leaf": GivenCell(hidden_size), "node": self.cell}], "autograd"
        )
        self.leaves = torch.randn(dag.num_nodes_by_type[0], hidden_size, requires_grad=True)
        self.batch = Batch(dag, build_schedule(dag, [Up()]))
        self.inputs = [ids.tolist() for ids in dag.input_index.view(-1, 2)]

    def rows(self, batch_size: int, threads: int) -> Iterator[Row]:
        names = ["graphfold", "one_by_one", "cat_levels", "product_floor"]
        if self.shape == "identical":
            names.insert(1, "hand_batched")
        for phase in ("inference", "train", "schedule"):
            functions = {name: self._phase(phase, getattr(self, name)) for name in names}
            if phase == "schedule":
                functions = {"graphfold": lambda: build_schedule(self.dag, [Up()])}
            seconds = median_seconds(functions)
            for name, value in seconds.items():
                yield Row(
                    "treefc", name, self.shape, batch_size, self.hidden_size, phase, threads,
                    batch_size / value, seconds["graphfold"] / value,
                )  # fmt: skip

    def _phase(self, phase: str, roots: Callable[[], Tensor]) -> Callable[[], object]:
        if phase == "train":
            wanted = [*self.cell.parameters(), self.leaves]
            return lambda: torch.autograd.grad(roots().sum(), wanted, allow_unused=True)

        def infer() -> Tensor:
            with torch.no_grad():
                return roots()

        return infer

    def graphfold(self) -> Tensor:
        """The roots from the fast engine."""
        return self._run(self.network)

    def cat_levels(self) -> Tensor:
        """The roots from the plain engine."""
        return self._run(self.plain)

    def _run(self, network: Network) -> Tensor:
        empty = self.leaves.new_zeros(self.dag.num_nodes_by_type[1], 0)
        states = network(self.batch, {"leaf": self.leaves, "node": empty})
        roots: Tensor = states.at("h", self.dag.output_index)
        return roots

    def one_by_one(self) -> Tensor:
        """The roots from a loop over nodes."""
        linear, states = self.cell.from_h, []
        leaves, pairs = iter(self.leaves.unbind()), iter(self.inputs)
        for op_type in self.dag.op_type.tolist():
            if op_type == 0:
                states.append(next(leaves))
            else:
                left, right = next(pairs)
                joined = torch.cat([states[left], states[right]])
                states.append(torch.relu(linear(joined)))
        return torch.stack([states[node] for node in self.dag.output_index.tolist()])

    def hand_batched(self) -> Tensor:
        """The roots of perfect trees, one dense product per level."""
        h = self.leaves.view(-1, NUM_LEAVES, self.hidden_size)
        while h.shape[1] > 1:
            h = torch.relu(self.cell.from_h(h.reshape(h.shape[0], h.shape[1] // 2, -1)))
        return h[:, 0]

    def product_floor(self) -> Tensor:
        """The products of the schedule's groups alone, on rows that nobody gathered."""
        total = self.leaves.new_zeros(())
        for group in self.batch.schedule.passes[0].groups:
            if group.op_type == 1:
                total = total + self._product(group.stop - group.start)
        return total

    def _product(self, count: int) -> Tensor:
        # The first leaves stand for the children: their values do not matter here.
        flat = self.leaves.view(-1)[: count * 2 * self.hidden_size]
        return _bare_product(flat.view(count, -1), self.cell.from_h)


def _bare_product(x: Tensor, linear: nn.Linear) -> Tensor:
    product: Tensor = linear(x)[0, 0]
    return product


def _tree(shape: str, seed: int) -> list[tuple[int, int]]:
    """The pairs that are joined, as positions in a shrinking row of subtrees."""
    if shape == "identical":  # neighbours join, level by level
        return [(i, i + 1) for size in (64, 32, 16, 8, 4, 2, 1) for i in range(size)]
    rng = random.Random(seed)
    starts = [rng.randrange(left - 1) for left in range(NUM_LEAVES, 1, -1)]
    return [(start, start + 1) for start in starts]


def _join(trees: list[list[tuple[int, int]]]) -> TypedDAG:
    builder = GraphBuilder(SCHEMA)
    for tree in trees:
        row = list(builder.nodes("leaf", NUM_LEAVES))
        for left, right in tree:
            row[left : right + 1] = [builder.node("node", [row[left], row[right]])]
        builder.output(row[0])
        builder.finish()
    return builder.build()
