"""Degrees of the training part in the config of a model."""

from __future__ import annotations

import math

import pytest

from graphfold.dag import Column, EdgeType, GraphBuilder, NodeType, Schema, TypedDAG
from graphfold.errors import SchemaError
from graphfold.layers.virtual_node import VirtualNode
from graphfold.training.config.model import fill_degrees, mean_log_degree


def star() -> TypedDAG:
    """An atom with three neighbours, beside a graph of one atom."""
    atom = NodeType("atom", 0, (Column("symbol", "int64", size=2),))
    builder = GraphBuilder(Schema((atom,), relations=(EdgeType("bond"),)))
    builder.nodes("atom", 4)
    builder.edges("bond", [0, 0, 0, 1, 2, 3], [1, 2, 3, 0, 0, 0])
    builder.output(0)
    builder.finish()
    builder.output(builder.node("atom"))
    builder.finish()
    return builder.build()


def config() -> dict:
    cells = [{"atom": {"mean_log_degree": "auto"}, "virtual": {}}, {"atom": {"mean_log_degree": 2}}]
    passes = [{"relation": "bond", "rounds": 2}] * 2
    return {"cells": cells, "passes": passes}


def test_auto_becomes_the_mean_of_the_logarithms():
    given = config()
    before = given["cells"]
    fill_degrees(given, star)
    want = (math.log(4) + 3 * math.log(2) + math.log(1)) / 5
    assert given["cells"][0]["atom"]["mean_log_degree"] == pytest.approx(want)
    assert given["cells"][1] == {"atom": {"mean_log_degree": 2}}
    assert before[0]["atom"] == {"mean_log_degree": "auto"}  # that of the caller stays


def test_a_virtual_node_is_a_neighbour():
    given = config()
    fill_degrees(given, star, VirtualNode("bond"))
    want = (math.log(5) + 3 * math.log(3) + math.log(2)) / 5
    assert given["cells"][0]["atom"]["mean_log_degree"] == pytest.approx(want)


def test_a_type_without_nodes_and_an_unknown_relation():
    dag = star()
    assert mean_log_degree(dag, None, "atom") == 0
    with pytest.raises(SchemaError, match="no relation 'bonds'"):
        mean_log_degree(dag, "bonds", "atom")
