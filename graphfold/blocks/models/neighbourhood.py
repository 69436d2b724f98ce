"""Neighbourhoods of atoms as blocks."""

from __future__ import annotations

from graphfold.blocks.block import Block
from graphfold.blocks.concat import Concat
from graphfold.blocks.features import Features
from graphfold.blocks.layers import FC
from graphfold.blocks.record import AllOf
from graphfold.blocks.reductions import Sum
from graphfold.blocks.sequences import Map
from graphfold.blocks.simple import InputTransform
from graphfold.dag import EdgeType, Schema
from graphfold.errors import ConfigError


def neighbourhood(
    schema: Schema, level: str, hidden_size: int, radius: int = 2, relation: str = "bond"
) -> Block:
    """A sum over what surrounds every node, up to some steps away.

        h_0(v) = features of v
        h_r(v) = relu(W_r [h_r-1(v), sum of relu(V_r [h_r-1(u), features of (u, v)]) over u])

    where u are the neighbours of v; W_r and V_r have biases. It is a graph convolution with edge
    features, written as trees that are unrolled from each node: with `data.share` equal parts are
    computed once. A row is the sum of h_radius over a graph.

    Args:
        schema: the schema of the graphs, which have nodes of one type.
        level: what a row stands for, "graph".
        hidden_size: width of all vectors.
        radius: how many steps; lowering takes time exponential in it.
        relation: the edges to follow.

    Raises:
        ConfigError: if there are several types of nodes, or rows are asked for nodes.
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
