"""Every broken promise of the format is found and named."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from graphfold.dag import Column, GraphBuilder, NodeType, Relation, Schema, collate, validate
from graphfold.errors import GraphError, SchemaError

SCHEMA = Schema(
    types=(NodeType("word", 0), NodeType("pair", 2, inputs=("word", "pair"))),
    node_targets=(Column("label", "int64", size=3),),
)


def tree(line: int = 7):
    builder = GraphBuilder(SCHEMA, "trees.txt")
    words = builder.nodes("word", 2, label=[0, 1])
    builder.output(builder.node("pair", list(words), label=2))
    builder.finish(line=line)
    return builder.build()


def test_a_good_graph_passes():
    validate(collate([tree(1), tree(2)]))


def test_dangling_and_foreign_inputs():
    dag = tree()
    with pytest.raises(GraphError, match=r"trees.txt:7: input 9 is not a node of the graph"):
        validate(replace(dag, input_index=torch.tensor([0, 9])))
    both = collate([tree(7), tree(8)])
    with pytest.raises(GraphError, match=r"trees.txt:8: input -2 is not a node"):
        validate(replace(both, input_index=torch.tensor([0, 1, 3, 1])))


def test_wrong_depth_is_found():
    with pytest.raises(GraphError, match="stored depths differ"):
        validate(replace(tree(), depth=torch.tensor([0, 0, 5])))


def test_wrong_arity_names_the_node():
    both = collate([tree(7), tree(8)])
    pointers = torch.tensor([0, 0, 0, 2, 2, 2, 3])
    short = replace(both, input_ptr=pointers, input_index=torch.tensor([0, 1, 3]))
    with pytest.raises(SchemaError, match=r"trees.txt:8: node 2 of type 'pair' has 1 inputs"):
        validate(short)


def test_wrong_input_type():
    schema = Schema(
        (NodeType("word", 0), NodeType("pair", 2, inputs=("pair",))),
        node_targets=SCHEMA.node_targets,
    )
    with pytest.raises(SchemaError, match="has an input of type 'word'. It may read: pair"):
        validate(replace(tree(), schema=schema))


def test_wrong_dtype_shape_absent_column_and_code():
    dag = tree()
    for label, message in [
        (torch.zeros(3), r"is torch.float32\[3\], but its schema says torch.int64\[3\]"),
        (torch.zeros(2).long(), r"is torch.int64\[2\]"),
        (torch.tensor([0, 3, 1]), r"codes from 0 to 3, outside 0 .. 2"),
        (torch.tensor([-2, 0, 1]), r"codes from -2 to 1"),
    ]:
        with pytest.raises(SchemaError, match=message):
            validate(replace(dag, columns={**dag.columns, "node": {"label": label}}))
    with pytest.raises(SchemaError, match="column 'label' of node is absent"):
        validate(replace(dag, columns={**dag.columns, "node": {}}))


def test_a_graph_without_root_and_scattered_nodes():
    dag = tree()
    with pytest.raises(GraphError, match="trees.txt:7: graph has no output node"):
        validate(replace(dag, output_ptr=torch.tensor([0, 0]), output_index=torch.empty(0).long()))
    both = collate([tree(), tree()])
    with pytest.raises(GraphError, match="not contiguous"):
        validate(replace(both, batch=torch.tensor([0, 1, 0, 1, 1, 1])))


def test_pointers_must_cover_their_index():
    dag = tree()
    with pytest.raises(GraphError, match="the input pointers do not cover"):
        validate(replace(dag, input_ptr=torch.tensor([0, 0, 0, 5])))
    broken = Relation(torch.tensor([0, 1]), torch.tensor([0]))
    with pytest.raises(GraphError, match="the relation x pointers"):
        validate(replace(dag, relations={"x": broken}))
    with pytest.raises(GraphError, match="the input pointers do not cover"):
        validate(replace(dag, input_ptr=dag.input_ptr.clamp(min=1)))
