"""The virtual node: which edges it has, that it is not seen from outside, and what it carries."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import torch
from hypothesis import given
from strategies import bond_schema, dags, with_empty_graph

from graphfold.batching import Rounds
from graphfold.dag import Column, GraphBuilder, NodeType, Schema, TypedDAG
from graphfold.dag.depth import compute_depth
from graphfold.layers import FeatureEncoder, GINECell, GraphModel, RegressionHead, SumReadout
from graphfold.layers.virtual_node import VirtualNode

BOND = (Column("order", "uint8", size=3), Column("length"))
PLAIN = bond_schema(BOND)
ATOM = NodeType("atom", 0, (Column("symbol", "int64", size=5),))
SCHEMA = Schema((ATOM,), relations=PLAIN.relations, graph_targets=(Column("y"),))
graphs = dags(SCHEMA, symmetric=True, outputs="all")


def edges(dag: TypedDAG) -> list[tuple[int, int, int]]:
    """(source, target, order) of every bond, in order."""
    relation = dag.relations["bond"]
    target = torch.repeat_interleave(torch.arange(dag.num_nodes), relation.ptr.diff())
    order = dag.columns["relation:bond"]["order"]
    return list(zip(relation.index.tolist(), target.tolist(), order.tolist(), strict=True))


@given(dag=graphs)
def test_every_node_gets_an_edge_from_and_to_that_of_its_graph(dag):
    dag = with_empty_graph(dag)
    made = VirtualNode("bond").lower(dag)
    assert made.schema == VirtualNode("bond").schema(dag.schema)
    real = torch.nonzero(made.op_type == 0).view(-1).tolist()
    assert len(real) == dag.num_nodes
    old = {(real[s], real[t], order) for s, t, order in edges(dag)}
    new = set()
    for graph in range(dag.num_graphs):
        nodes = torch.nonzero(made.batch == graph).view(-1).tolist()
        if nodes:
            *others, virtual = nodes
            assert int(made.op_type[virtual]) == 1
            assert others == [real[n] for n in torch.nonzero(dag.batch == graph).view(-1).tolist()]
            new |= {pair for n in others for pair in ((n, virtual, 3), (virtual, n, 3))}
    assert set(edges(made)) == old | new
    assert len(edges(made)) == len(edges(dag)) + 2 * dag.num_nodes
    assert made.output_index.tolist() == [real[n] for n in dag.output_index.tolist()]
    assert torch.equal(made.depth, compute_depth(made.input_ptr, made.input_index))
    assert torch.equal(made.span[real], dag.span)
    assert made.num_graphs == dag.num_graphs


def model(rounds: int, relation: str | None) -> GraphModel:
    torch.manual_seed(0)
    cell = partial(GINECell, hidden_size=4, activation="tanh")
    types = ["atom"] if relation is None else ["atom", "virtual"]
    return GraphModel(
        SCHEMA,
        partial(FeatureEncoder, size=4),
        [Rounds("bond", rounds)],
        [dict.fromkeys(types, cell)],
        SumReadout,
        RegressionHead,
        virtual_node=relation,
    ).double()


def lone_atoms() -> TypedDAG:
    """Two atoms of one molecule that no bond joins, and an atom alone."""
    builder = GraphBuilder(SCHEMA)
    for count in (2, 1):
        atoms = builder.nodes("atom", count, symbol=list(range(count)))
        builder.output(*atoms)
        builder.finish(y=0.0)
    return builder.build()


def test_two_rounds_carry_a_message_between_atoms_that_no_bond_joins():
    dag = lone_atoms()
    other = dag.columns["type:atom"]["symbol"].clone()
    other[1] = 4
    changed = replace(dag, columns={**dag.columns, "type:atom": {"symbol": other}})
    for relation, rounds, is_told in ((None, 2, False), ("bond", 1, False), ("bond", 2, True)):
        one = model(rounds, relation)
        states = [one.states(one.plan(each))["h"][0] for each in (dag, changed)]
        assert torch.equal(*states) != is_told


@given(dag=graphs)
def test_readouts_see_the_nodes_of_the_data_only(dag):
    one = model(2, "bond")
    batch = one.plan(with_empty_graph(dag))
    states = one.states(batch)
    rows = one.rows(states, batch)
    h = states["h"]
    assert h.shape == (dag.num_nodes, 4)
    want = torch.zeros(dag.num_graphs + 1, 4, dtype=h.dtype).index_add(0, dag.batch, h)
    torch.testing.assert_close(rows, want)
    assert set(one.network.execution.values()) <= {"compiled (native)"}
