"""Schemas: how one is shown, and which columns may have a role."""

from __future__ import annotations

import pytest

from graphfold.dag import Column, EdgeType, NodeType, Schema
from graphfold.errors import SchemaError


def test_a_schema_is_shown_as_a_tree():
    schema = Schema(
        types=(
            NodeType("atom", 0, (Column("element", "int64", size=119), Column("xyz", shape=(3,)))),
            NodeType("fragment"),
        ),
        relations=(EdgeType("bond", (Column("order", "int64", size=5),)),),
        graph_features=(Column("smiles", "string"),),
        graph_targets=(Column("logS", unit="log mol/L"), Column("toxic", "int64", size=2)),
    )
    assert repr(schema).splitlines() == [
        "Schema(",
        "  type atom (0 inputs)",
        "    element int64 (119 codes)",
        "    xyz float32 x 3",
        "  type fragment (any number of inputs)",
        "  features of graphs",
        "    smiles string",
        "  relation bond",
        "    order int64 (5 codes)",
        "  targets of graphs",
        "    logS float32 [log mol/L]",
        "    toxic int64 (2 codes)",
        ")",
    ]


def test_features_of_nodes_and_edges_are_inputs_or_have_no_role():
    charge = Column("charge", role="input")
    Schema(types=(NodeType("atom", features=(charge,)),), relations=(EdgeType("bond", (charge,)),))
    note = Column("charge", role="note")
    with pytest.raises(SchemaError, match="'charge' of type:atom has the role 'note', but"):
        Schema(types=(NodeType("atom", features=(note,)),))
    for place in ("node_targets", "graph_targets"):
        with pytest.raises(SchemaError, match="'charge' of .* has the role 'input', but a target"):
            Schema(types=(NodeType("atom"),), **{place: (charge,)})
