"""GraphBuilder: what adapters write comes back as columns."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from graphfold.dag import Column, EdgeType, GraphBuilder, NodeType, Schema, validate
from graphfold.dag.compare import difference
from graphfold.errors import GraphError, SchemaError

SCHEMA = Schema(
    types=(
        NodeType("word", 0, (Column("form", "string"), Column("vector", "float32", (2,)))),
        NodeType("phrase", None),
    ),
    inputs=EdgeType("inputs", (Column("role", "string"),)),
    relations=(EdgeType("next", (Column("gap", "int64"),)),),
    node_targets=(Column("label", "int64", names=tuple("abcde"), task="classification"),),
    graph_features=(Column("text", "string"),),
    graph_targets=(Column("score", unit="stars"),),
)


def two_trees() -> GraphBuilder:
    builder = GraphBuilder(SCHEMA, "reviews.txt")
    good = builder.node("word", form="good", vector=[1, 2], label=3, span=(0, 4))
    builder.output(good)
    builder.finish(line=1, text="good", score=4.5)
    root = builder.node("phrase", label=2)
    left, right = builder.nodes("word", 2, form=["not", "good"], label=np.array([1, 3]))
    builder.inputs(root, [left, right], role=["neg", "head"])
    builder.edges("next", [left], [right], gap=[1])
    builder.output(root)
    builder.finish(line=2, text="not good")
    return builder


def test_columns_in_node_order_with_missing_values():
    dag = two_trees().build()
    validate(dag)
    assert dag.op_type.tolist() == [0, 1, 0, 0]
    assert dag.strings("type:word", "form") == ["good", "not", "good"]
    assert dag.node_targets["label"].tolist() == [3, 2, 1, 3]
    assert dag.features("word")["vector"][0].tolist() == [1, 2]
    assert torch.isnan(dag.features("word")["vector"][1:]).all()
    assert dag.graph_column("score")[0] == 4.5
    assert torch.isnan(dag.graph_column("score")[1])
    assert dag.strings("inputs", "role") == ["neg", "head"]
    assert dag.span.tolist() == [[0, 4], [-1, -1], [-1, -1], [-1, -1]]
    assert (dag.place(0), dag.place(1)) == (("reviews.txt", 1), ("reviews.txt", 2))


def test_what_is_finished_does_not_change_with_the_lists_it_came_from():
    builder, inputs = GraphBuilder(SCHEMA), [0]
    builder.node("word")
    builder.node("phrase", inputs)
    builder.nodes("phrase", 1, inputs=[inputs])
    builder.inputs(builder.node("phrase"), inputs)
    builder.output(1)
    builder.finish()
    inputs[0] = 99
    assert builder.build().input_index.tolist() == [0, 0, 0]


def test_relations_are_sorted_by_target_with_their_columns():
    builder = GraphBuilder(SCHEMA)
    builder.nodes("word", 3)
    builder.edges("next", [0, 1, 2], [2, 0, 2], gap=[10, 20, 30])
    builder.output(0)
    builder.finish()
    dag = builder.build()
    assert dag.relations["next"].index.tolist() == [1, 0, 2]
    assert dag.columns["relation:next"]["gap"].tolist() == [20, 10, 30]


def test_discard_forgets_only_the_unfinished_graph():
    builder = two_trees()
    builder.node("word", form="half")
    builder.discard()
    assert builder.num_nodes == 0
    assert builder.build().num_graphs == 2


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda b: b.node("wrod"), "no node type 'wrod'. Did you mean 'word'"),
        (lambda b: b.node("word", from_="x"), "no column of node 'from_'"),
        (lambda b: b.node("phrase", form="x"), "no column of node 'form'"),
        (lambda b: b.nodes("word", 2, form=["a"]), "has 1 values for 2 rows of type:word"),
        (lambda b: b.edges("bond", [], []), "no relation 'bond'"),
        (lambda b: b.edges("next", [], [], gpa=[]), "Did you mean 'gap'"),
        (lambda b: b.inputs(b.node("phrase"), [0], role=[]), "has 0 values for 1 rows of inputs"),
        (lambda b: b.inputs(b.node("phrase"), [0], rol=["x"]), "Did you mean 'role'"),
    ],
)
def test_what_the_schema_lacks_is_an_error(write, message):
    with pytest.raises(SchemaError, match=message):
        write(GraphBuilder(SCHEMA))


def test_nodes_one_by_one_are_those_of_whole_columns():
    single, bulk = GraphBuilder(SCHEMA), GraphBuilder(SCHEMA)
    for label, form in ((1, "a"), (None, "b"), (3, None)):
        single.node("word", label=label, form=form)
    single.node("phrase", [0, 1], (0, 2))
    single.node("phrase", [3, None], label=0)
    bulk.nodes("word", 3, label=[1, None, 3], form=["a", "b", None], vector=None)
    bulk.nodes("phrase", 2, [(0, 2), (-1, -1)], [[0, 1], [3, None]], label=[None, 0])
    for builder in (single, bulk):
        builder.output(4)
        builder.finish()
    assert difference(single.build(), bulk.build()) is None


@pytest.mark.parametrize(
    "write",
    [
        lambda b: b.node("word", frm="x"),
        lambda b: b.nodes("word", 2, label=[1], form=["a", "b"]),
        lambda b: b.nodes("word", 2, [(0, 1)]),
        lambda b: b.edges("next", [0], [1], gap=[]),
    ],
)
def test_what_is_refused_is_not_added(write):
    builder = two_trees()
    nodes = builder.nodes("word", 2)
    with pytest.raises(SchemaError):
        write(builder)
    builder.output(*nodes)
    builder.finish()
    dag = builder.build()
    validate(dag)
    assert dag.num_nodes == 6
    assert len(dag.relations["next"].index) == 1


@pytest.mark.parametrize("node", [1, 7, -1])
def test_dangling_inputs_outputs_and_edges_are_errors(node):
    for write in (
        lambda b: b.inputs(0, [node]),
        lambda b: b.edges("next", [0], [node]),
        lambda b: b.output(node),
    ):
        builder = GraphBuilder(SCHEMA)
        builder.output(builder.node("phrase"))
        write(builder)
        with pytest.raises(GraphError, match=rf"node {node} is named, but the graph has the nodes"):
            builder.finish()


def test_a_graph_without_output_is_refused():
    builder = GraphBuilder(SCHEMA)
    builder.node("word")
    with pytest.raises(GraphError, match="at least one output node"):
        builder.finish()


def test_a_value_of_another_kind_is_an_error():
    builder = GraphBuilder(SCHEMA)
    builder.output(builder.node("word", label="high"))
    builder.finish()
    with pytest.raises(SchemaError, match="column 'label' of node cannot be int64"):
        builder.build()


def test_a_cycle_is_named():
    builder = GraphBuilder(SCHEMA)
    nodes = builder.nodes("phrase", 4)
    for reader, read in [(0, 1), (1, 2), (2, 1), (3, 0)]:
        builder.inputs(nodes[reader], [read])
    builder.output(3)
    builder.finish()
    with pytest.raises(GraphError, match=r"cycle through nodes (1 -> 2 -> 1|2 -> 1 -> 2)"):
        builder.build()


def test_schema_contradictions_are_errors():
    with pytest.raises(SchemaError, match="names 'a' twice"):
        Schema((NodeType("a"), NodeType("a")))
    with pytest.raises(SchemaError, match="names 'label' twice"):
        Schema((NodeType("a", features=(Column("label"),)),), node_targets=(Column("label"),))
    with pytest.raises(SchemaError, match="no node type 'b'"):
        Schema((NodeType("a", inputs=("b",)),))
    with pytest.raises(SchemaError, match="dtype 'float16'"):
        Column("x", "float16")
    with pytest.raises(SchemaError, match="has 2 names for 3 codes of int64"):
        Column("x", "int64", size=3, names=("no", "yes"))
    with pytest.raises(SchemaError, match="has 2 names for 2 codes of float32. Give a column of"):
        Column("x", names=("no", "yes"))
    with pytest.raises(SchemaError, match="the task 'clas'. Use one of regression, classification"):
        Column("x", task="clas")


def test_classes_are_told_by_name_else_by_code():
    named = Column("x", "int64", names=["no", "yes"])
    assert (named.size, [*named.classes]) == (2, ["no", "yes"])
    for column, classes in {
        Column("x", "int64", size=3): [0, 1, 2],
        Column("x", "bool"): [0, 1],
        Column("x"): [],
    }.items():
        assert [*column.classes] == classes


def test_schema_survives_json():
    import json

    assert Schema.from_dict(json.loads(json.dumps(SCHEMA.to_dict()))) == SCHEMA
