"""Root blocks that configs may name, each made by a function of the encoded schema."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from graphfold.blocks.block import Block
from graphfold.blocks.choices import OneOf, Optional
from graphfold.blocks.composition import compose
from graphfold.blocks.constants import Void
from graphfold.blocks.declaration import recursive
from graphfold.blocks.function import Concat, Function
from graphfold.blocks.layers import FC
from graphfold.blocks.node_rows import Features, NodeRows
from graphfold.blocks.record import AllOf, Record
from graphfold.blocks.reductions import Sum
from graphfold.blocks.selection import InputTransform
from graphfold.blocks.sequences import Map
from graphfold.dag import EdgeType, NodeType, Schema
from graphfold.errors import ConfigError

__all__ = ["neighbourhood", "tree_lstm"]


def tree_lstm(schema: Schema, level: str, hidden_size: int, dropout: float = 0.0) -> Block:
    """A Tree-LSTM with weights for each child: Tai et al. (2015), section 3.2.

    https://arxiv.org/abs/1503.00075. With the same weights its results are those of `LeafLSTMCell`
    and `NaryTreeLSTMCell`. A row is the `h` of a root, or of every node.

    Args:
        schema: the schema of the graphs: leaves, and inner nodes with two inputs.
        level: the meaning of a row, "graph" or "node".
        hidden_size: width of words, of `h` and of `c`.
        dropout: probability of dropping an entry of a word's vector.

    Raises:
        ConfigError: if a type has another number of inputs, or the level is "output".
    """
    if level == "output":
        raise ConfigError("tree_lstm gives rows of graphs or nodes. Set level=graph or level=node.")
    states = hidden_size, dropout

    def tree(tree: Block) -> Block:
        cases = {t.name: _state_of(t, tree, *states) for t in schema.types}
        state = OneOf(lambda node: node.type, cases)
        return state if level == "graph" else _with_rows(state)

    block: Block = InputTransform(lambda graph: graph.root) >> recursive(
        tree, output_type=([hidden_size], [hidden_size])
    )
    return block >> (Void() if level == "node" else Function(_h))


class LeafState(nn.Module):
    """The state of a leaf: equations 9-14 without children.

    Args:
        size: width of x, h and c.

    Shape:
        x: [num_rows, size]
        returns: h and c, [num_rows, size] each
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.from_x = nn.Linear(size, 3 * size)  # i, o, u

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        i, o, u = self.from_x(x).chunk(3, dim=1)
        c = torch.sigmoid(i) * torch.tanh(u)
        return torch.sigmoid(o) * torch.tanh(c), c


class PairState(nn.Module):
    """The state of an inner node: equations 9-14 with two children, each with a forget gate.

    Args:
        size: width of x, h and c.
        has_features: whether nodes have features.

    Shape:
        children: (h, c) of the first child and of the second, [num_rows, size] each
        x: [num_rows, size]
        returns: h and c, [num_rows, size] each
    """

    def __init__(self, size: int, has_features: bool) -> None:
        super().__init__()
        self.from_h = nn.Linear(2 * size, 5 * size)  # f_1, f_2, i, o, u
        self.from_x = nn.Linear(size, 5 * size, bias=False) if has_features else None

    def forward(self, children: Any, x: Tensor | None = None) -> tuple[Tensor, Tensor]:
        (h1, c1), (h2, c2) = children
        gates = self.from_h(torch.cat([h1, h2], dim=1))
        if self.from_x is not None:
            gates = gates + self.from_x(x)
        gate, u = torch.split(gates, [4 * h1.shape[1], h1.shape[1]], dim=1)
        f1, f2, i, o = torch.sigmoid(gate).chunk(4, dim=1)
        c = f1 * c1 + f2 * c2 + i * torch.tanh(u)
        return o * torch.tanh(c), c


def _state_of(kind: NodeType, tree: Block, size: int, dropout: float) -> Block:
    """From a node of a type to its state."""
    features = None
    if kind.features:
        features = Features(kind.features, size, dropout, f"{kind.name}_features")
    if kind.arity == 0 and features is not None:
        return features >> Function(LeafState(size), f"{kind.name}_state")
    if kind.arity != 2:
        raise ConfigError(
            f"tree_lstm needs leaves with features and nodes of two inputs, but the type "
            f"'{kind.name}' has {'any number of' if kind.arity is None else kind.arity} inputs and "
            f"{len(kind.features)} features. Set data.binarize=true, or take another model."
        )
    child = Optional(tree)  # an absent one has a state of zeros
    children = InputTransform(lambda node: node.inputs) >> Record((child, child))
    inputs = AllOf(children) if features is None else AllOf(children, features)
    return inputs >> Function(PairState(size, features is not None), f"{kind.name}_state")


def _with_rows(state: Block) -> Block:
    """The block with each `h` as a row."""
    rows = NodeRows()

    def with_rows(node: Any) -> Any:
        h_and_c = state(node)
        rows(h_and_c[0], node)
        return h_and_c

    return compose(with_rows)


def _h(h: Tensor, c: Tensor) -> Tensor:
    return h


def neighbourhood(
    schema: Schema, level: str, hidden_size: int, radius: int = 2, relation: str = "bond"
) -> Block:
    """A sum over the neighbourhoods of all nodes, up to some steps away.

        h_0(v) = features of v
        h_r(v) = relu(W_r [h_r-1(v), sum of relu(V_r [h_r-1(u), features of (u, v)]) over u])

    where u are the neighbours of v; W_r and V_r have biases. It is a graph convolution with edge
    features, written as trees that are unrolled from each node: with `data.share` equal parts are
    computed once. A row is the sum of h_radius over a graph.

    Args:
        schema: the schema of the graphs, which have nodes of one type.
        level: the meaning of a row, "graph".
        hidden_size: width of all vectors.
        radius: the number of steps; lowering takes time exponential in it.
        relation: the edges to follow.

    Raises:
        ConfigError: if there are several types of nodes, or the level is not "graph".
        SchemaError: if there is no such relation.
    """
    if level != "graph" or len(schema.types) != 1:
        raise ConfigError(
            f"neighbourhood gives a row for each graph of nodes of one type, not for each {level} "
            f"of {len(schema.types)} types. Take another model."
        )
    atom = schema.types[0]
    state = Features(atom.features, hidden_size, name=f"{atom.name}_features")
    for _ in range(radius):
        state = _step(state, schema.relation(relation), hidden_size)
    return InputTransform(lambda graph: graph.nodes) >> Map(state) >> Sum()


def _step(state: Block, relation: EdgeType, size: int) -> Block:
    """From h_r-1 to h_r; the blocks of a step are used in one place of the next, or two."""
    name = relation.name
    message = InputTransform(lambda edge: edge.node) >> state
    if relation.features:
        features = Features(relation.features, size, name=f"{name}_features")
        message = AllOf(message, features) >> Concat()
    edges = InputTransform(lambda node: node.edges(name))
    messages = edges >> Map(message >> FC(size, name="message")) >> Sum()
    return AllOf(state, messages) >> Concat() >> FC(size, name="combine")
