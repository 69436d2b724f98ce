"""How a schema is shown."""

from __future__ import annotations

from graphfold.dag import Column, EdgeType, NodeType, Schema


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
