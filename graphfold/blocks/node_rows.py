"""NodeRows: one row for each node of a graph, wherever in the blocks it is computed."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from graphfold.blocks.block import Block
from graphfold.blocks.errors import BlockValueError
from graphfold.blocks.metric import Metric
from graphfold.blocks.node_types import OUTPUTS
from graphfold.blocks.record import Record
from graphfold.blocks.simple import Identity, InputTransform
from graphfold.dag import Relation, TypedDAG
from graphfold.dag.typed_dag import repeat

#: The name of the metric.
ROWS = "rows"

_SPACE = f"relation:{OUTPUTS}"


def NodeRows() -> Block:
    """Takes (vector, node): the vector is the row of the node that the head reads.

    It is `Metric("rows")` with the node's number as the label.
    """
    number = InputTransform(lambda node: node.number)
    return (Record((Identity(), number)) >> Metric(ROWS)).set_constructor_name("NodeRows")


def in_node_order(lowered: TypedDAG, slot: int, dag: TypedDAG, nodes: Tensor) -> TypedDAG:
    """Lowered graphs whose rows come in the order of the nodes that they belong to.

    Args:
        lowered: the graphs, with labels that are numbers of nodes.
        slot: that of the metric.
        dag: the graphs that they were made of.
        nodes: [num_rows] the nodes of `dag` that have a row, graph by graph.

    Raises:
        BlockValueError: if one of them has no row or several, or another node has one.
    """
    columns = lowered.columns[_SPACE]
    mine = torch.nonzero(columns["slot"] == slot).view(-1)
    labels = lowered.dictionaries[_SPACE, "label"]
    numbers = torch.tensor([label.value for label in labels], dtype=torch.int64)  # type: ignore
    ptr = lowered.row_ptr(_SPACE)
    graph = repeat(torch.arange(lowered.num_graphs), ptr.diff())[mine]
    owner = dag.node_ptr[graph] + numbers[columns["label"][mine]]
    found, by_owner = owner.sort(stable=True)
    wanted, by_node = nodes.sort(stable=True)
    if not torch.equal(found, wanted):
        raise _misfit(dag, found, wanted)
    order = torch.arange(int(ptr[-1]))
    order[mine[by_node]] = mine[by_owner]
    relation = lowered.relations[OUTPUTS]
    sorted_columns = {name: column[order] for name, column in columns.items()}
    return replace(
        lowered,
        columns={**lowered.columns, _SPACE: sorted_columns},
        relations={**lowered.relations, OUTPUTS: Relation(relation.ptr, relation.index[order])},
    )


def without_labels(lowered: TypedDAG) -> TypedDAG:
    """Lowered graphs without the labels of metrics, which are Python objects."""
    columns = lowered.columns[_SPACE]
    return replace(
        lowered,
        columns={
            **lowered.columns,
            _SPACE: {**columns, "label": torch.full_like(columns["label"], -1)},
        },
        dictionaries={**lowered.dictionaries, (_SPACE, "label"): ()},
    )


def _misfit(dag: TypedDAG, found: Tensor, wanted: Tensor) -> BlockValueError:
    """The error that names the first node with too few or too many rows."""
    size = dag.num_nodes
    surplus = torch.bincount(found, minlength=size) - torch.bincount(wanted, minlength=size)
    node = int(torch.nonzero(surplus)[0])
    graph = int(dag.batch[node])
    file, line = dag.place(graph)
    number = node - int(dag.node_ptr[graph])
    what = "no row" if surplus[node] < 0 else "a row too many"
    return BlockValueError(
        f"{file}:{line}: node {number} of the graph has {what}. Let NodeRows see every node that "
        "the level asks for just once."
    )
