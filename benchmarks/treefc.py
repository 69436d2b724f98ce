"""How close is the engine to code written by hand for one cell?

Fold's Tree-FC benchmark, Looks et al. (2017), https://arxiv.org/abs/1702.02181, table 1: binary
trees of 128 leaves, one fully connected layer per inner node. A training step is forward and
backward to the weights and to the leaves; trees and plan exist beforehand. The states of the leaves
are given and all different, so there are no equal nodes. Identical and random trees take turns with
each other. Variants:

- `graphfold`: with the cell compiled, where there is a C compiler;
- `untraced`: the same engine and plan with the cell's own code (`run="eager"`);
- `torch`: the same plan, and cells compiled to operations of torch (`backend="torch"`);
- `cat_levels`: the levels joined by `torch.cat` under autograd;
- `hand_batched` (identical trees only): the perfect tree written out as dense tensors;
- `level_loop`: a loop over the levels, forward and backward written by hand for this very cell;
- `one_by_one`: a loop over the nodes of one tree after another, for at most two trees;
- `product_floor`: the matrix products of graphfold's plan alone.

    python -m benchmarks treefc --batch-size 1,32,128 --hidden-size 256,1024
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from benchmarks.baselines.loops import LevelLoop
from benchmarks.measure import Row, Settings
from benchmarks.variants import (
    Contest,
    Forward,
    Product,
    ProductFloor,
    Variant,
    engine_forwards,
    group_sizes,
    measure_variants,
    require_equal,
)
from graphfold.batching import Batch, Cell, Network, Up, build_schedule
from graphfold.batching.cell import NodeInput, State
from graphfold.batching.children import Children
from graphfold.dag import GraphBuilder, NodeType, Schema, TypedDAG, select
from graphfold.layers import TreeFCCell
from graphfold.layers.encoders.column_encoder import features

NUM_LEAVES = 128
SCHEMA = Schema((NodeType("leaf", 0), NodeType("node", 2)))
LEAF, NODE = 0, 1
SHAPES = ("identical", "random")
BATCH_SIZES = (1, 32, 128)
HIDDEN_SIZES = (256, 1024)

#: Trees of `one_by_one`: as all are equally large, more of them would only take time.
TREES_ONE_BY_ONE = 2


def rows(settings: Settings) -> Iterator[Row]:
    """Measures every width and batch size.

    Raises:
        RuntimeError: if a variant computes something else than graphfold.
    """
    for hidden_size, batch_size in settings.sizes(HIDDEN_SIZES, BATCH_SIZES):
        contests = []
        for shape in settings.chosen(SHAPES):
            setting = settings.row("treefc", batch_size, hidden_size, shape=shape)
            dag = make_trees(shape, batch_size)
            few = select(dag, range(min(batch_size, TREES_ONE_BY_ONE)))
            model = TreeFC(hidden_size).to(settings.device)
            require_equal(make_variants(model.double(), few))
            variants = make_variants(model.float(), dag)
            floor = product_floor(model, variants["graphfold"].batches[0].batch)
            contests.append(Contest(setting, variants, {"product_floor": [floor]}))
        yield from measure_variants(*contests)


class TreeFC(torch.nn.Module):
    """The network of the benchmark; its batches are `Trees`, its outputs the roots' states."""

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.cell = TreeFCCell(hidden_size)
        cells = {"leaf": GivenCell(hidden_size), "node": self.cell}
        self.network = Network(SCHEMA, (Up(), cells))

    def forward(self, trees: Trees) -> Tensor:
        """[num_graphs, hidden_size] through the engine."""
        states = self.network(trees.batch, {"leaf": trees.leaves, "node": trees.nothing})
        roots: Tensor = states.at("h", trees.batch.dag.output_index)
        return roots

    def hand_batched(self, trees: Trees) -> Tensor:
        """The same for perfect trees, one dense product per level."""
        h = trees.leaves.view(-1, NUM_LEAVES, trees.leaves.shape[1])
        while h.shape[1] > 1:
            h = torch.relu(self.cell.from_h(h.reshape(h.shape[0], h.shape[1] // 2, -1)))
        return h[:, 0]

    def level_loop(self, loop: LevelLoop, trees: Trees) -> Tensor:
        """The same by the loop over levels."""
        return loop(trees.leaves, self.cell.from_h.weight, self.cell.from_h.bias)

    def one_by_one(self, trees: Trees) -> Tensor:
        """The same by a loop over the nodes."""
        dag, states = trees.batch.dag, []
        leaves = iter(trees.leaves.unbind())
        pairs = iter(dag.input_index.view(-1, 2).tolist())
        for op_type in dag.op_type.tolist():  # children come before their parents
            if op_type == LEAF:
                states.append(next(leaves))
            else:
                left, right = next(pairs)
                joined = torch.cat([states[left], states[right]])
                states.append(torch.relu(self.cell.from_h(joined)))
        return torch.stack([states[node] for node in dag.output_index.tolist()])


class GivenCell(Cell):
    """A leaf whose state is its input."""

    arity = 0

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.fields = {"h": hidden_size}

    def forward(self, x: NodeInput, children: Children) -> State:
        """The input."""
        return {"h": features(x)}


class Trees(NamedTuple):
    """A batch with the states of its leaves."""

    batch: Batch
    leaves: Tensor  # [num_leaves, hidden_size]
    nothing: Tensor  # [num_inner_nodes, 0], the features of inner nodes


def make_variants(model: TreeFC, dag: TypedDAG) -> dict[str, Variant]:
    """The variants for some trees, in the model's precision and on its device."""
    weight = model.cell.from_h.weight
    leaves = weight.new_empty(dag.num_nodes_by_type[LEAF], len(weight)).normal_()
    trees = _trees(dag, leaves)
    forwards = engine_forwards(model.network, model)
    if int(dag.depth.max()) == NUM_LEAVES.bit_length() - 1:  # all of them are perfect
        forwards["hand_batched"] = model.hand_batched
    loop = LevelLoop(dag).to(weight.device)
    forwards["level_loop"] = partial(model.level_loop, loop)
    found = {name: _variant(model, forward, trees) for name, forward in forwards.items()}
    few = select(dag, range(min(dag.num_graphs, TREES_ONE_BY_ONE)))
    part = _trees(few, leaves[: few.num_nodes_by_type[LEAF]])
    return {**found, "one_by_one": _variant(model, model.one_by_one, part)}


def product_floor(model: TreeFC, batch: Batch) -> ProductFloor:
    """The products of the inner nodes, group by group."""
    return ProductFloor([Product(model.cell.from_h.weight, group_sizes(batch, NODE))])


def make_trees(shape: str, count: int) -> TypedDAG:
    """Trees of 128 leaves: "identical", perfect ones, or "random", neighbours joined at random."""
    builder = GraphBuilder(SCHEMA)
    for seed in range(count):
        row = list(builder.nodes("leaf", NUM_LEAVES))
        for left in _joins(shape, seed):
            row[left : left + 2] = [builder.node("node", row[left : left + 2])]
        builder.output(row[0])
        builder.finish()
    return builder.build()


def _joins(shape: str, seed: int) -> list[int]:
    """Positions in a shrinking row of subtrees, each of which is joined with the next."""
    if shape == "identical":  # level by level
        return [i for size in (64, 32, 16, 8, 4, 2, 1) for i in range(size)]
    rng = random.Random(seed)
    return [rng.randrange(left - 1) for left in range(NUM_LEAVES, 1, -1)]


def _trees(dag: TypedDAG, leaves: Tensor) -> Trees:
    leaves = leaves.clone().requires_grad_()
    nothing = leaves.new_empty(dag.num_nodes_by_type[NODE], 0)
    batch = Batch(dag, build_schedule(dag, [Up()])).to(leaves.device)
    return Trees(batch, leaves, nothing)


def _variant(model: TreeFC, forward: Forward, trees: Trees) -> Variant:
    parameters = [*model.cell.parameters(), trees.leaves]
    return Variant(
        forward, [trees], trees.batch.num_graphs, lambda raw, _: raw.sum(), parameters, model
    )
