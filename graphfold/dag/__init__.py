"""The common format: `TypedDAG`, its schema, builders and exchange with other libraries."""

from graphfold.dag.builder import GraphBuilder
from graphfold.dag.collate import collate, nodes_of_graphs, recode, select, split
from graphfold.dag.depth import compute_depth
from graphfold.dag.exchange import from_networkx, to_networkx
from graphfold.dag.hetero import from_hetero, to_hetero
from graphfold.dag.pyg import from_pyg, to_pyg
from graphfold.dag.schema import MISSING, Column, EdgeType, NodeType, Schema
from graphfold.dag.typed_dag import Relation, TypedDAG
from graphfold.dag.validate import validate

__all__ = [
    "MISSING",
    "Column",
    "EdgeType",
    "GraphBuilder",
    "NodeType",
    "Relation",
    "Schema",
    "TypedDAG",
    "collate",
    "compute_depth",
    "from_hetero",
    "from_networkx",
    "from_pyg",
    "nodes_of_graphs",
    "recode",
    "select",
    "split",
    "to_hetero",
    "to_networkx",
    "to_pyg",
    "validate",
]
