"""The Tree-LSTM as a block: the loss and the gradients of the cells, with the same weights."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from graphfold import blocks as td
from graphfold.batching import Batch, Network, Up, build_schedule
from graphfold.dag import Column, GraphBuilder, NodeType, Schema
from graphfold.layers import LeafLSTMCell, NaryTreeLSTMCell

SIZE, WORDS, CLASSES = 6, 11, 3


class Leaf(nn.Module):
    """Equations 9-14 of Tai et al. (2015) without children."""

    def __init__(self, table: nn.Embedding, from_x: nn.Linear) -> None:
        super().__init__()
        self.table, self.from_x = table, from_x

    def forward(self, word: Tensor) -> tuple[Tensor, Tensor]:
        i, o, u = self.from_x(self.table(word)).chunk(3, 1)
        c = i.sigmoid() * u.tanh()
        return o.sigmoid() * c.tanh(), c


class Node(nn.Module):
    """Equations 9-14 with two children."""

    def __init__(self, from_h: nn.Linear) -> None:
        super().__init__()
        self.from_h = from_h

    def forward(self, left: Any, right: Any) -> tuple[Tensor, Tensor]:
        (h1, c1), (h2, c2) = left, right
        f1, f2, i, o, u = self.from_h(torch.cat([h1, h2], 1)).chunk(5, 1)
        c = i.sigmoid() * u.tanh() + f1.sigmoid() * c1 + f2.sigmoid() * c2
        return o.sigmoid() * c.tanh(), c


class Loss(nn.Module):
    """Of the class of one node."""

    def __init__(self, classify: nn.Linear) -> None:
        super().__init__()
        self.classify = classify

    def forward(self, h: Tensor, label: Tensor) -> Tensor:
        return F.cross_entropy(self.classify(h), label, reduction="none")


class Parts:
    """The modules that both forms share."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.table = nn.Embedding(WORDS, SIZE)
        self.leaf = LeafLSTMCell(SIZE, SIZE)
        self.node = NaryTreeLSTMCell(0, SIZE)
        self.classify = nn.Linear(SIZE, CLASSES)
        modules = (self.table, self.leaf, self.node, self.classify)
        self.parameters = [p for module in modules for p in module.parameters()]


def block_form(parts: Parts) -> td.Block:
    """Trees (label, word) and (label, tree, tree); the losses are a metric."""
    label = td.GetItem(0) >> td.Scalar("int64")
    word = td.GetItem(1) >> td.Scalar("int64") >> Leaf(parts.table, parts.leaf.from_x)
    loss = td.Function(Loss(parts.classify)) >> td.Metric("loss")

    @td.recursive(output_type=([SIZE], [SIZE]))
    def tree(tree: td.Block) -> td.Block:
        pair = td.Record([(1, tree), (2, tree)]) >> Node(parts.node.from_h)
        state = td.OneOf(len, {2: word, 3: pair})

        @td.compose
        def scored(x: Any) -> Any:
            node_state = state(x)
            loss(node_state[0], label(x))
            return node_state

        return scored

    return tree >> td.Void()


def cell_form(parts: Parts, trees: list[Any]) -> Tensor:
    """The losses of all nodes, by the cells."""
    schema = Schema(
        (NodeType("word", 0, (Column("word", "int64"),)), NodeType("phrase", 2)),
        node_targets=(Column("label", "int64"),),
    )
    builder = GraphBuilder(schema)

    def add(tree: Any) -> int:
        if len(tree) == 2:
            return builder.node("word", word=tree[1], label=tree[0])
        return builder.node("phrase", [add(tree[1]), add(tree[2])], label=tree[0])

    for tree in trees:
        builder.output(add(tree))
        builder.finish()
    dag = builder.build()
    network = Network(schema, (Up(), {"word": parts.leaf, "phrase": parts.node}))
    x = {
        "word": parts.table(dag.features("word")["word"]),
        "phrase": torch.zeros(dag.num_nodes_by_type[1], 0, dtype=torch.float64),
    }
    states = network(Batch(dag, build_schedule(dag, [Up()])), x)
    raw = parts.classify(states["h"])
    return F.cross_entropy(raw, dag.node_targets["label"], reduction="none")


def random_trees(count: int) -> list[Any]:
    generator = random.Random(0)

    def tree(size: int) -> Any:
        label = generator.randrange(CLASSES)
        if size == 1:
            return label, generator.randrange(WORDS)
        left = generator.randint(1, size - 1)
        return label, tree(left), tree(size - left)

    return [tree(generator.randint(1, 12)) for _ in range(count)]


@pytest.mark.parametrize("share", [False, True])
@pytest.mark.parametrize("way", ["auto", "eager", "reference"])
def test_loss_and_gradients_are_those_of_the_cells(way: str, share: bool) -> None:
    if share and way == "reference":
        pytest.skip("the reference computes every node")
    parts, trees = Parts(), random_trees(7)
    model = td.compile(block_form(parts), run=way, share=share).double()
    want = cell_form(parts, trees)
    wanted = torch.autograd.grad(want.sum(), parts.parameters)
    got = model.result(trees).metrics["loss"]
    torch.testing.assert_close(got.sum(), want.sum(), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(got.sort()[0], want.sort()[0], rtol=1e-12, atol=1e-12)
    grads = torch.autograd.grad(got.sum(), parts.parameters)
    for one, other in zip(grads, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


def test_launches_are_as_many_as_the_cells_need() -> None:
    trees = random_trees(7)
    batch = td.compile(block_form(Parts())).batch(trees)
    names = [batch.dag.schema.types[g.op_type].name for g in batch.schedule.passes[0].groups]
    depth = max(_depth(tree) for tree in trees)
    assert names.count("Leaf(x)") == 1
    assert names.count("Node(0:0,0:1,1:0,1:1)") == depth
    assert names.count("Loss(0:0,x)") == 1


def _depth(tree: Any) -> int:
    return 0 if len(tree) == 2 else 1 + max(_depth(tree[1]), _depth(tree[2]))
