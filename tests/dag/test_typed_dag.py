"""TypedDAG: which nodes are of some types, here and for a copy on another device."""

from __future__ import annotations

from itertools import pairwise

import torch

from graphfold.dag import GraphBuilder, NodeType, Schema, TypedDAG

#: The types of the nodes of three graphs.
TYPES = ("aba", "c", "bbca")


def graphs() -> TypedDAG:
    builder = GraphBuilder(Schema(tuple(NodeType(name, 0) for name in "abc")))
    for names in TYPES:
        for name in names:
            builder.node(name)
        builder.output(0)
        builder.finish()
    return builder.build()


def test_nodes_of_types_are_in_order_and_graph_by_graph():
    dag = graphs()
    for types in ({0}, {1, 2}, {0, 1, 2}, set()):
        nodes, ptr = dag.nodes_of_types(types)
        every = [i for i, name in enumerate("".join(TYPES)) if "abc".index(name) in types]
        assert nodes.tolist() == every
        of_graph = [dag.batch[nodes[start:stop]].tolist() for start, stop in pairwise(ptr.tolist())]
        assert of_graph == [
            [graph] * sum("abc".index(name) in types for name in own)
            for graph, own in enumerate(TYPES)
        ]


def test_a_copy_elsewhere_asks_the_graphs_on_the_cpu():
    dag = graphs()
    there = dag.to("meta")  # whose numbers nobody can read
    assert there.num_nodes_by_type == dag.num_nodes_by_type == [3, 3, 2]
    nodes, ptr = there.nodes_of_types({1, 2})
    assert (nodes.device.type, nodes.shape, ptr.shape) == ("meta", (5,), (4,))
    assert there.nodes_of_types({2, 1})[0] is nodes
    assert there.nodes_of_type("b").shape == (3,)
    assert there.node_ptr.is_meta
    assert there.node_ptr.shape == dag.node_ptr.shape
    assert there.host is dag.host is dag
    assert there.to("meta").on_cpu is dag


def test_nodes_that_were_found_for_a_prediction_serve_training():
    dag = graphs()
    with torch.inference_mode():
        nodes, ptr = dag.nodes_of_types({0})
    assert not nodes.is_inference()
    assert not ptr.is_inference()
