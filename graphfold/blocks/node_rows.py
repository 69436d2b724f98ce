"""Features and NodeRows: from graphs to vectors, and from vectors to the rows of a head."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from graphfold.blocks.block import Block, Identity
from graphfold.blocks.block_errors import BlockValueError
from graphfold.blocks.function import Function
from graphfold.blocks.inputs import Tensor as TensorBlock
from graphfold.blocks.record import Record
from graphfold.blocks.running.node_types import OUTPUTS
from graphfold.blocks.running.results import Metric
from graphfold.blocks.selection import InputTransform
from graphfold.dag import Column, Relation, TypedDAG
from graphfold.dag.typed_dag import repeat
from graphfold.layers import ColumnEncoder
from graphfold.layers.dropout import Dropout

#: The name of the metric.
ROWS = "rows"

_SPACE = f"relation:{OUTPUTS}"


def Features(
    columns: Sequence[Column], size: int, dropout: float = 0.0, name: str | None = None
) -> Block:
    """A vector [size] from a node or an edge of a `Graph`; see `ColumnEncoder`.

    Args:
        columns: the features to read: columns of an encoded schema.
        size: width of the vector.
        dropout: probability of dropping an entry of the vector in training.
        name: its name in messages and state dicts.

    Raises:
        ConfigError: if the columns cannot be encoded, or `dropout` is not a probability.
    """
    encode = Function(FeatureVector(columns, size, dropout), name, infer_output_type=False)
    encode.set_output_type([size])
    items = [(column.name, TensorBlock(column.shape, column.dtype)) for column in columns]
    return Record(items) >> encode


class FeatureVector(nn.Module):
    """The module of `Features`, whose arguments it takes.

    Shape:
        values: one for each column, [num_rows, *shape of the column]
        returns: [num_rows, size]
    """

    def __init__(self, columns: Sequence[Column], size: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.names = tuple(column.name for column in columns)
        self.encoder = ColumnEncoder(columns, size)
        self.dropout = Dropout(dropout)

    def forward(self, *values: Tensor) -> Tensor:
        vector: Tensor = self.dropout(self.encoder(dict(zip(self.names, values, strict=True))))
        return vector


def NodeRows() -> Block:
    """Takes (vector, node) and makes the vector the node's row, which the head reads.

    It is `Metric("rows")` with the node's number as the label.
    """
    number = InputTransform(lambda node: node.number)
    return (Record((Identity(), number)) >> Metric(ROWS)).set_constructor_name("NodeRows")


def in_node_order(lowered: TypedDAG, slot: int, dag: TypedDAG, nodes: Tensor) -> TypedDAG:
    """Sorts the rows of lowered graphs by the nodes that they belong to.

    Args:
        lowered: the graphs, with labels that are numbers of nodes.
        slot: the slot of the metric.
        dag: the graphs before lowering.
        nodes: [num_rows] the nodes of `dag` that have a row, graph by graph.

    Raises:
        BlockValueError: if one of them has no row or several, or another node has one.
    """
    columns = lowered.columns[_SPACE]
    edges = torch.nonzero(columns["slot"] == slot).view(-1)
    labels = lowered.dictionaries[_SPACE, "label"]
    numbers = torch.tensor([label.value for label in labels], dtype=torch.int64, device="cpu")  # type: ignore
    ptr = lowered.row_ptr(_SPACE)
    graph = repeat(torch.arange(lowered.num_graphs, device="cpu"), ptr.diff())[edges]
    owner, by_owner = (dag.node_ptr[graph] + numbers[columns["label"][edges]]).sort(stable=True)
    wanted, by_node = nodes.sort(stable=True)
    if not torch.equal(owner, wanted):
        raise _misfit(dag, owner, wanted)
    order = torch.arange(int(ptr[-1]), device="cpu")
    order[edges[by_node]] = edges[by_owner]
    relation = lowered.relations[OUTPUTS]
    sorted_columns = {name: column[order] for name, column in columns.items()}
    return replace(
        lowered,
        columns={**lowered.columns, _SPACE: sorted_columns},
        relations={**lowered.relations, OUTPUTS: Relation(relation.ptr, relation.index[order])},
    )


def without_labels(lowered: TypedDAG) -> TypedDAG:
    """Removes the labels of metrics, which are Python objects, from lowered graphs."""
    columns = lowered.columns[_SPACE]
    return replace(
        lowered,
        columns={
            **lowered.columns,
            _SPACE: {**columns, "label": torch.full_like(columns["label"], -1)},
        },
        dictionaries={**lowered.dictionaries, (_SPACE, "label"): ()},
    )


def _misfit(dag: TypedDAG, owner: Tensor, wanted: Tensor) -> BlockValueError:
    """The error that names the first node with too few or too many rows."""
    size = dag.num_nodes
    surplus = torch.bincount(owner, minlength=size) - torch.bincount(wanted, minlength=size)
    node = int(torch.nonzero(surplus)[0])
    graph = int(dag.batch[node])
    file, line = dag.place(graph)
    number = node - int(dag.node_ptr[graph])
    fault = "no row" if surplus[node] < 0 else "a row too many"
    return BlockValueError(
        f"{file}:{line}: node {number} of the graph has {fault}. Let NodeRows see every node that "
        "the level asks for just once."
    )
