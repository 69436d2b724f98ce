"""Readouts and poolings against loops over graphs."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from strategies import MIXED_SCHEMA, dags, empty, with_empty_graph
from torch import Tensor

from graphfold.batching import States
from graphfold.dag import GraphBuilder, TypedDAG
from graphfold.errors import ShapeError
from graphfold.layers import (
    AttentionReadout,
    BondReadout,
    MaxReadout,
    MeanReadout,
    NodeReadout,
    OutputReadout,
    PairReadout,
    RootReadout,
    ScaledSumReadout,
    SumReadout,
)
from graphfold.layers.readouts.pooling import Pooling

SIZE = 3
ALL_TYPES = frozenset(range(3))


def make_states(dag: TypedDAG, types: frozenset[int] = ALL_TYPES) -> tuple[States, Tensor]:
    """Random states of the field "h" in a random row order, and the same in node order."""
    order = torch.randperm(dag.num_nodes)
    row = torch.empty_like(order)
    row[order] = torch.arange(1, dag.num_nodes + 1)
    h = torch.randn(dag.num_nodes, SIZE)
    has = torch.tensor([int(t) in types for t in dag.op_type], dtype=torch.bool)
    h[~has] = 0
    rows = torch.cat([torch.full((1, SIZE), 99.0), h[order]])
    return States({"h": rows}, row, dict.fromkeys(types, frozenset({"h"}))), h


def attention(readout: AttentionReadout, rows: Tensor) -> Tensor:
    score = readout.score(torch.tanh(readout.hidden(rows)))
    return (torch.softmax(score, 0) * rows).sum(0)


POOLINGS: list[tuple[type[Pooling], Callable[[Pooling, Tensor], Tensor]]] = [
    (SumReadout, lambda _, rows: rows.sum(0)),
    (ScaledSumReadout, lambda readout, rows: rows.sum(0) / readout.divide_by),
    (MeanReadout, lambda _, rows: rows.mean(0)),
    (MaxReadout, lambda _, rows: rows.max(0).values),
    (AttentionReadout, attention),
]


@pytest.mark.parametrize(("make", "loop"), POOLINGS)
@pytest.mark.parametrize("types", [ALL_TYPES, frozenset({1, 2})], ids=["all", "inner"])
@given(dag=dags())
def test_poolings_over_nodes_equal_loops(make, loop, types, dag):
    dag, readout = with_empty_graph(dag), make(SIZE)
    states, h = make_states(dag, types)
    want = torch.zeros(dag.num_graphs, SIZE)
    for graph in range(dag.num_graphs):
        nodes = [n for n in range(dag.num_nodes) if dag.batch[n] == graph]
        nodes = [n for n in nodes if int(dag.op_type[n]) in types]
        if nodes:
            want[graph] = loop(readout, h[nodes])
    torch.testing.assert_close(readout(states, dag), want)


@pytest.mark.parametrize(("make", "loop"), POOLINGS)
@given(dag=dags(outputs="some"))
def test_poolings_over_outputs_equal_loops(make, loop, dag):
    dag, readout = with_empty_graph(dag), make(SIZE, over="outputs")
    states, h = make_states(dag)
    want = torch.zeros(dag.num_graphs, SIZE)
    for graph in range(dag.num_graphs - 1):
        outputs = dag.output_index[dag.output_ptr[graph] : dag.output_ptr[graph + 1]]
        want[graph] = loop(readout, h[outputs])
    torch.testing.assert_close(readout(states, dag), want)


@given(dag=dags())
def test_roots_in_the_order_of_the_graphs(dag):
    states, h = make_states(dag)
    assert torch.equal(RootReadout(SIZE)(states, dag), h[dag.output_index])
    with_empty = RootReadout(SIZE)(states, with_empty_graph(dag))
    assert torch.equal(with_empty, torch.cat([h[dag.output_index], torch.zeros(1, SIZE)]))


@given(dag=dags(outputs="some"))
def test_nodes_and_outputs_in_their_order(dag):
    states, h = make_states(dag)
    assert torch.equal(NodeReadout(SIZE)(states, dag), h)
    assert torch.equal(OutputReadout(SIZE)(states, dag), h[dag.output_index])


def pairs(*outputs: tuple[int, ...]) -> TypedDAG:
    builder = GraphBuilder(MIXED_SCHEMA, "pairs.txt")
    for line, nodes in enumerate(outputs):
        builder.nodes("word", 4)
        builder.output(*nodes)
        builder.finish(line=line + 1)
    return builder.build()


def test_pairs_keep_left_and_right():
    dag = pairs((1, 0), (2, 3))
    states, h = make_states(dag)
    want = torch.stack([h[[1, 0]], h[[6, 7]], torch.zeros(2, SIZE)])
    assert torch.equal(PairReadout(SIZE)(states, with_empty_graph(dag)), want)


def bonds(*ends: tuple[int, ...]) -> TypedDAG:
    builder = GraphBuilder(MIXED_SCHEMA, "bonds.txt")
    for two in ends:
        builder.nodes("word", 3)
        builder.output(builder.node("pair", two))
        builder.finish(line=1)
    return builder.build()


def test_a_bond_is_the_same_from_both_ends():
    dag = bonds((0, 2), (2, 0), (1, 1))
    states, h = make_states(dag)
    rows = BondReadout(SIZE)(states, dag)
    assert rows.shape == (3, BondReadout(SIZE).output_size)
    for row, (one, other) in zip(rows, ((0, 2), (6, 4), (9, 9)), strict=True):
        torch.testing.assert_close(row, torch.cat([h[one] + h[other], (h[one] - h[other]).abs()]))


def test_a_bond_has_two_ends():
    dag = pairs((0,))
    with pytest.raises(ShapeError, match="two inputs, but the data has others"):
        BondReadout(SIZE)(make_states(dag)[0], dag)


@pytest.mark.parametrize(
    "make", [SumReadout, MeanReadout, MaxReadout, AttentionReadout, RootReadout, PairReadout]
)
def test_no_graph_at_all(make):
    dag = empty(MIXED_SCHEMA)
    assert make(SIZE)(make_states(dag)[0], dag).shape[0] == 0


@pytest.mark.parametrize(("make", "number"), [(RootReadout, 1), (PairReadout, 2)])
def test_another_number_of_outputs_is_refused(make, number):
    dag = pairs(tuple(range(number)), (0, 1, 2))
    match = f"pairs.txt:2: graph 1 has 3 output nodes, but {make.__name__} reads {number} of each"
    with pytest.raises(ShapeError, match=match):
        make(SIZE)(make_states(dag)[0], dag)


@pytest.mark.parametrize("make", [RootReadout, OutputReadout, NodeReadout])
def test_a_node_without_the_field_is_refused(make):
    dag = pairs((0,))
    states, _ = make_states(dag, frozenset({1}))
    match = f"{make.__name__} reads field 'h' of a node of type 'word', which has no such field"
    with pytest.raises(ShapeError, match=match):
        make(SIZE)(states, dag)
