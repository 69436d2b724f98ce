"""Fold's Tree-FC benchmark: binary trees of 128 leaves, one fully connected layer per node.

Looks et al. (2017), https://arxiv.org/abs/1702.02181, table 1. A step of training is forward and
backward to the weights and to the leaves; trees and plan are there beforehand. The leaves' states
are given and all different, so there are no equal nodes to share: every variant computes every
node. Both shapes take turns with each other, so that they can be compared. Variants of one run:

- `graphfold`: with the cell compiled, where there is a C compiler; every node;
- `untraced`: the same engine and plan with the cell's own code (`Network(fuse=False)`); every node;
- `hand_batched` (identical shapes only): the perfect tree written out as dense tensors; every node;
- `level_loop`: a loop over the levels, forward and backward written by hand for this very cell;
  every node;
- `cat_levels`: the levels joined by torch.cat under autograd; every node;
- `one_by_one`: a loop over the nodes of one tree after another, two trees at most; every node;
- `product_floor`: the matrix products of graphfold's own plan alone; every node.

    graphfold bench treefc --batch-size 1,32,128 --hidden-size 256,1024
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import TypeAlias

import torch
from torch import Tensor

from graphfold.batching import Batch, Cell, Network, Up, build_schedule
from graphfold.batching.cell import NodeInput, State
from graphfold.batching.children import Children
from graphfold.bench.engine_variants import fusions
from graphfold.bench.equality import require_equal
from graphfold.bench.level_loop import LevelLoop
from graphfold.bench.measure import Row, Work, measure_together
from graphfold.bench.products import Product, ProductFloor, group_sizes
from graphfold.dag import GraphBuilder, NodeType, Schema, TypedDAG, select
from graphfold.layers import TreeFCCell
from graphfold.layers.encoders.node_input import features

NUM_LEAVES = 128
SCHEMA = Schema((NodeType("leaf", 0), NodeType("node", 2)))
LEAF, NODE = 0, 1
SHAPES = ("identical", "random")
BATCH_SIZES = (1, 32, 128)
HIDDEN_SIZES = (256, 1024)

#: Trees that the loop over nodes takes: they are equally large, so its speed is that of any number,
#: and more of them would leave the others few turns.
TREES_ONE_BY_ONE = 2

#: What a batch is turned into: the roots' states [num_graphs, hidden_size].
Roots: TypeAlias = Callable[[], Tensor]


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
    """Measures every width and batch size; the rows of one setting come together.

    Raises:
        RuntimeError: if a variant computes something else than graphfold.
    """
    for hidden_size in hidden_sizes or HIDDEN_SIZES:
        for batch_size in batch_sizes or BATCH_SIZES:
            yield from _setting_rows(Row("treefc", "", "", batch_size, hidden_size, "", threads))


def random_trees(count: int) -> TypedDAG:
    """Trees that join neighbours in random order."""
    return make_trees("random", count)


def make_trees(shape: str, count: int) -> TypedDAG:
    """Trees of 128 leaves: "identical", perfect ones, or "random", as in `random_trees`."""
    return _join([_tree(shape, seed) for seed in range(count)])


class Variants:
    """The ways to compute the roots of a batch of trees.

    Args:
        dag: the trees.
        hidden_size: width of the state.
        is_identical: whether they are perfect trees, which can be batched by hand.
        device: where everything lies.
    """

    def __init__(
        self,
        dag: TypedDAG,
        hidden_size: int,
        is_identical: bool,
        device: torch.device | str = "cpu",
    ) -> None:
        self.cell = TreeFCCell(hidden_size)
        cells = {"leaf": GivenCell(hidden_size), "node": self.cell}
        self.network = Network(SCHEMA, [Up()], [cells]).to(device)
        num_leaves, num_inner = dag.num_nodes_by_type
        self.leaves = torch.randn(num_leaves, hidden_size, device=device, requires_grad=True)
        self.nothing = torch.empty(num_inner, 0, device=device)  # what is known of other nodes
        self.batch = Batch(dag, build_schedule(dag, [Up()])).to(torch.device(device))
        self.few = select(dag, range(min(dag.num_graphs, TREES_ONE_BY_ONE)))
        few_leaves = self.leaves.detach()[: self.few.num_nodes_by_type[LEAF]]
        self.few_leaves = few_leaves.clone().requires_grad_()
        self.loop = LevelLoop(dag).to(torch.device(device))
        calls = group_sizes(self.batch, NODE)
        with torch.device(device):
            self.floor = ProductFloor([Product(self.cell.from_h.weight, calls)])
        self.roots: Mapping[str, Roots] = {
            **{
                name: partial(self._run_engine, "fast", fuse)
                for name, fuse in fusions(self.network).items()
            },
            **({"hand_batched": self._by_hand} if is_identical else {}),
            "level_loop": self._level_loop,
            "cat_levels": partial(self._run_engine, "autograd", None),
            "one_by_one": self._one_by_one,
        }

    def require_equal(self) -> None:
        """Raises RuntimeError if they differ in roots, or in the gradients of as many trees."""
        want = self.roots["graphfold"]().detach()
        want_gradients = self._gradients("graphfold")
        for name, roots in self.roots.items():
            got = roots().detach()
            require_equal(name, [got], [want[: len(got)]])
            if len(got) == len(want):
                require_equal(name, self._gradients(name), want_gradients)

    def works(self, phase: str) -> dict[str, Work]:
        """What each variant does in a phase."""
        if phase == "schedule":
            plan = partial(build_schedule, self.batch.dag, [Up()])
            return {"graphfold": Work(plan, self.batch.num_graphs)}
        run = self._gradients if phase == "train" else self._infer
        few, all_trees = self.few.num_graphs, self.batch.num_graphs
        works = {
            name: Work(partial(run, name), few if name == "one_by_one" else all_trees)
            for name in self.roots
        }
        return {**works, "product_floor": Work(partial(self.floor.run, phase), all_trees)}

    def _gradients(self, name: str) -> tuple[Tensor, ...]:
        leaves = self.few_leaves if name == "one_by_one" else self.leaves
        return torch.autograd.grad(self.roots[name]().sum(), [*self.cell.parameters(), leaves])

    def _infer(self, name: str) -> None:
        with torch.no_grad():
            self.roots[name]()

    def _run_engine(self, engine: str, fuse: bool | None) -> Tensor:
        self.network.engine, self.network.fuse = engine, fuse
        states = self.network(self.batch, {"leaf": self.leaves, "node": self.nothing})
        roots: Tensor = states.at("h", self.batch.dag.output_index)
        return roots

    def _by_hand(self) -> Tensor:
        """Perfect trees, one dense product per level."""
        hidden_size = self.leaves.shape[1]
        h = self.leaves.view(-1, NUM_LEAVES, hidden_size)
        while h.shape[1] > 1:
            h = torch.relu(self.cell.from_h(h.reshape(h.shape[0], h.shape[1] // 2, -1)))
        return h[:, 0]

    def _level_loop(self) -> Tensor:
        linear = self.cell.from_h
        return self.loop(self.leaves, linear.weight, linear.bias)

    def _one_by_one(self) -> Tensor:
        linear, states = self.cell.from_h, []
        leaves = iter(self.few_leaves.unbind())
        pairs = iter(self.few.input_index.view(-1, 2).tolist())
        for op_type in self.few.op_type.tolist():  # children come before their parents
            if op_type == LEAF:
                states.append(next(leaves))
            else:
                left, right = next(pairs)
                joined = torch.cat([states[left], states[right]])
                states.append(torch.relu(linear(joined)))
        return torch.stack([states[node] for node in self.few.output_index.tolist()])


def _setting_rows(setting: Row) -> Iterator[Row]:
    found = {}
    for shape in SHAPES:
        dag = make_trees(shape, setting.batch_size)
        found[shape] = Variants(dag, setting.hidden_size, shape == "identical")
        found[shape].require_equal()
    for phase in ("inference", "train", "schedule"):
        yield from measure_together(
            [
                (replace(setting, shape=shape, phase=phase), variants.works(phase))
                for shape, variants in found.items()
            ]
        )


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
