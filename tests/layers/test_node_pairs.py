"""Pairs of nodes: which nodes they join, their features, and Weave over them."""

from __future__ import annotations

import networkx as nx
import pytest
import torch
from hypothesis import given
from strategies import bond_schema, dags, with_empty_graph

from graphfold.batching import Batch, Network, Rounds, build_schedule
from graphfold.dag import Column, TypedDAG
from graphfold.layers import WeaveAtomCell, WeavePairCell
from graphfold.layers.node_pairs import NodePairs

SCHEMA = bond_schema((Column("order", "uint8", size=3),))
graphs = dags(SCHEMA, symmetric=True, outputs="all")


def bonds(dag: TypedDAG) -> dict[tuple[int, int], set[int]]:
    """(source, target) -> the orders of the bonds between them."""
    relation, joined = dag.relations["bond"], {}
    target = torch.repeat_interleave(torch.arange(dag.num_nodes), relation.ptr.diff())
    orders = dag.columns["relation:bond"]["order"].tolist()
    for one, other, order in zip(relation.index.tolist(), target.tolist(), orders, strict=True):
        joined.setdefault((one, other), set()).add(order)
    return joined


@pytest.mark.parametrize("most", [1, 2, 3])
@given(dag=graphs)
def test_there_is_a_pair_for_every_two_nodes_that_are_near(most, dag):
    dag = with_empty_graph(dag)
    made = NodePairs("bond", most).lower(dag)
    assert made.schema == NodePairs("bond", most).schema(dag.schema)
    known, graph = bonds(dag), nx.Graph(list(bonds(dag)))
    real = torch.nonzero(made.op_type == 0).view(-1)
    pairs = torch.nonzero(made.op_type == 1).view(-1)
    weave, distances = made.relations["weave"], {}
    columns = made.columns["type:pair"]
    for number, pair in enumerate(pairs.tolist()):
        ends = weave.index[weave.ptr[pair] : weave.ptr[pair + 1]]
        one, other = torch.searchsorted(real, ends).tolist()
        assert torch.equal(real[[one, other]], ends)
        assert int(made.batch[pair]) == int(dag.batch[one])
        order = int(columns["edge_order"][number])
        assert order in known.get((one, other), {3})
        distances[one, other] = int(columns["distance"][number]) + 1
        for end in ends.tolist():
            assert pair in weave.index[weave.ptr[end] : weave.ptr[end + 1]].tolist()
    paths = dict(nx.all_pairs_shortest_path_length(graph, most))
    want = {(a, b): n for a, ends in paths.items() for b, n in ends.items() if a < b}
    assert distances == want
    assert len(weave.index) == 4 * len(want)


@given(dag=graphs)
def test_weave_equals_its_equations(dag):
    made, passes = NodePairs("bond", 2).lower(dag), [Rounds("weave", 1)]
    atom, pair = WeaveAtomCell(4), WeavePairCell(4)
    network = Network(made.schema, (passes[0], {"atom": atom, "pair": pair})).double()
    is_pair = made.op_type == 1
    h = torch.randn(made.num_nodes, 4, dtype=torch.float64)
    x = {"atom": h[~is_pair], "pair": h[is_pair]}
    got = network(Batch(made, build_schedule(made, passes)), x)["h"]
    weave = made.relations["weave"]
    for node in range(made.num_nodes):
        near = h[weave.index[weave.ptr[node] : weave.ptr[node + 1]]]
        if is_pair[node]:
            v, w = near
            a, b = pair.from_first, pair.from_second
            messages = torch.relu(a(v) + b(w)) + torch.relu(a(w) + b(v))
            want = pair.both(torch.cat([messages, torch.relu(pair.from_own(h[node]))]))
        else:
            messages = torch.relu(atom.from_pair(near)).sum(0)
            want = atom.both(torch.cat([torch.relu(atom.from_own(h[node])), messages]))
        torch.testing.assert_close(got[node], torch.relu(want))
