"""Readouts: which rows of the node states a head gets, and what they stand for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor, nn

from graphfold.batching.kernels.segment import segment_sum
from graphfold.batching.states import States
from graphfold.dag import TypedDAG
from graphfold.errors import ShapeError


class Readout(nn.Module, ABC):
    """Turns the states of all nodes into the rows that a head reads.

    Args:
        input_size: width of the field.
        field: the field to read.

    Attributes:
        level: what one row stands for: "graph", "node" or "output" (an output node).
        pairs: whether a row is two vectors, as `PairReadout` gives them.
        output_size: width of a row.
    """

    level: ClassVar[str]
    pairs: ClassVar[bool] = False

    def __init__(self, input_size: int, field: str = "h") -> None:
        super().__init__()
        self.field = field
        self.output_size = input_size

    def __repr__(self) -> str:
        """The shape of what it gives."""
        shape = f"num_{self.level}s, {'2, ' if self.pairs else ''}{self.output_size}"
        return f"{type(self).__name__}({self.field} -> [{shape}])"

    @abstractmethod
    def forward(self, states: States, dag: TypedDAG) -> Tensor:
        """[num_rows, output_size], or [num_rows, 2, output_size] for pairs."""

    def read(self, states: States, dag: TypedDAG, nodes: Tensor) -> Tensor:
        """[len(nodes), input_size] the field of some nodes.

        Raises:
            ShapeError: if the type of a node lacks the field.
        """
        if states.is_everywhere(self.field, dag.schema):
            return states.at(self.field, nodes)
        op_type = dag.op_type.index_select(0, nodes)
        absent = op_type[~states.has(self.field, op_type)]
        if len(absent):
            name = dag.schema.types[int(absent[0])].name
            raise ShapeError(
                f"{type(self).__name__} reads field '{self.field}' of a node of type '{name}', "
                "which has no such field. Give the cell of that type the field, or read another."
            )
        return states.at(self.field, nodes)


class RootReadout(Readout):
    """The state of the single output node of each graph; zeros for a graph without nodes.

    Shape:
        returns: [num_graphs, input_size]

    Raises:
        ShapeError: if a graph has several output nodes.
    """

    level = "graph"

    def forward(self, states: States, dag: TypedDAG) -> Tensor:
        """The roots in the order of the graphs."""
        _require_outputs(self, dag, 1)
        return segment_sum(self.read(states, dag, dag.output_index), dag.output_ptr)


class PairReadout(Readout):
    """The states of the two output nodes of each graph; zeros for a graph without nodes.

    Shape:
        returns: [num_graphs, 2, input_size]

    Raises:
        ShapeError: if a graph has another number of output nodes than two.
    """

    level = "graph"
    pairs = True

    def forward(self, states: States, dag: TypedDAG) -> Tensor:
        """The first and the second of every pair, in the order of the graphs."""
        _require_outputs(self, dag, 2)
        rows = self.read(states, dag, dag.output_index)
        pairs = rows.view(-1, 2, rows.shape[1])
        return segment_sum(pairs, dag.output_ptr // 2)


class NodeReadout(Readout):
    """The state of every node.

    Shape:
        returns: [num_nodes, input_size], in node order
    """

    level = "node"

    def forward(self, states: States, dag: TypedDAG) -> Tensor:
        """All nodes of all graphs."""
        return self.read(states, dag, torch.arange(dag.num_nodes, device=dag.op_type.device))


class OutputReadout(Readout):
    """The state of every output node.

    Shape:
        returns: [num_outputs, input_size], in the order of the graphs and of their outputs
    """

    level = "output"

    def forward(self, states: States, dag: TypedDAG) -> Tensor:
        """All output nodes of all graphs."""
        return self.read(states, dag, dag.output_index)


def _require_outputs(readout: Readout, dag: TypedDAG, number: int) -> None:
    count = dag.output_ptr.diff()
    wrong = torch.nonzero((count != number) & (count != 0))
    if len(wrong):
        graph = int(wrong[0])
        file, line = dag.place(graph)
        raise ShapeError(
            f"{file}:{line}: graph {graph} has {int(count[graph])} output nodes, but "
            f"{type(readout).__name__} reads {number} of each graph. Use OutputReadout, or a sum "
            "or mean over the outputs."
        )
