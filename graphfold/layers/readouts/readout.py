"""Readouts: from the states of nodes to the rows that a head reads.

A row stands for a node, an output node, a root, a pair of roots, a bond, or a graph.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from graphfold.batching.kernels import segment
from graphfold.batching.kernels.gather import OfTypes, RowIndex
from graphfold.batching.kernels.segment import segment_sum
from graphfold.batching.states import States
from graphfold.dag import TypedDAG
from graphfold.errors import ConfigError, ShapeError, did_you_mean


class Readout(nn.Module, ABC):
    """Turns the states of all nodes into the rows that a head reads.

    Args:
        input_size: width of the field.
        field: the field to read.

    Attributes:
        level: the meaning of a row: "graph", "node" or "output" (an output node).
        pairs: whether a row is two vectors, as in `PairReadout`.
        output_size: width of a row.
    """

    level: ClassVar[str]
    pairs: ClassVar[bool] = False

    def __init__(self, input_size: int, field: str = "h") -> None:
        super().__init__()
        self.field = field
        self.output_size = input_size

    def __repr__(self) -> str:
        """The field and the shape of the rows."""
        shape = f"num_{self.level}s, {'2, ' if self.pairs else ''}{self.output_size}"
        return f"{type(self).__name__}({self.field} -> [{shape}])"

    @abstractmethod
    def forward(self, states: States, dag: TypedDAG) -> Tensor:
        """[num_rows, output_size], or [num_rows, 2, output_size] for pairs."""

    def read(self, states: States, dag: TypedDAG, find: Callable[[TypedDAG], Tensor]) -> Tensor:
        """[num_nodes_found, input_size] the field of some nodes.

        Args:
            states: of all nodes.
            dag: the graphs.
            find: returns the nodes of graphs: of these, and of their copy on the CPU, which knows
                their types without waiting for a GPU. A function of a module, or like `OfTypes`.

        Raises:
            ShapeError: if the type of a node lacks the field.
        """
        nodes = RowIndex.of(dag, find)
        if states.is_everywhere(self.field, dag.schema):
            return states.at(self.field, nodes)
        op_type = dag.host.op_type.index_select(0, RowIndex.of(dag.host, find).rows)
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
        return segment_sum(self.read(states, dag, output_nodes), dag.output_ptr)


class PairReadout(Readout):
    """The states of the two output nodes of each graph; zeros for a graph without nodes.

    Shape:
        returns: [num_graphs, 2, input_size]

    Raises:
        ShapeError: if a graph has one output node, or more than two.
    """

    level = "graph"
    pairs = True

    def forward(self, states: States, dag: TypedDAG) -> Tensor:
        """The first and the second of every pair, in the order of the graphs."""
        _require_outputs(self, dag, 2)
        rows = self.read(states, dag, output_nodes)
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
        return self.read(states, dag, all_nodes)


class OutputReadout(Readout):
    """The state of every output node.

    Shape:
        returns: [num_outputs, input_size], in the order of the graphs and of their outputs
    """

    level = "output"

    def forward(self, states: States, dag: TypedDAG) -> Tensor:
        """All output nodes of all graphs."""
        return self.read(states, dag, output_nodes)


# Functions that find nodes of graphs, for `RowIndex.of`.


def all_nodes(dag: TypedDAG) -> Tensor:
    """[num_nodes] every node."""
    return torch.arange(dag.num_nodes, device=dag.device)


def output_nodes(dag: TypedDAG) -> Tensor:
    """[num_outputs] the output nodes, in the order of the graphs and of their outputs."""
    return dag.output_index


@dataclass(frozen=True)
class InputOfOutputs:
    """Finds an input of every output node."""

    place: int

    def __call__(self, dag: TypedDAG) -> Tensor:
        """[num_outputs] the nodes."""
        return dag.input_index[dag.input_ptr[dag.output_index] + self.place]


def _require_outputs(readout: Readout, dag: TypedDAG, number: int) -> None:
    count = dag.host.output_ptr.diff()
    wrong = torch.nonzero((count != number) & (count != 0))
    if len(wrong):
        graph = int(wrong[0])
        file, line = dag.place(graph)
        raise ShapeError(
            f"{file}:{line}: graph {graph} has {int(count[graph])} output nodes, but "
            f"{type(readout).__name__} reads {number} of each graph. Use OutputReadout, or a sum "
            "or mean over the outputs."
        )


class BondReadout(Readout):
    """The sum and the absolute difference of the two inputs of every output node.

        row = [h_u + h_v, |h_u - h_v|]

    The output nodes are bonds with targets, see `data.bond_target_columns`; u and v are their
    atoms, whose order does not matter.

    Shape:
        returns: [num_outputs, 2 * input_size], in the order of the graphs and of their outputs

    Raises:
        ShapeError: if an output node does not have two inputs.
    """

    level = "output"

    def __init__(self, input_size: int, field: str = "h") -> None:
        super().__init__(input_size, field)
        self.output_size = 2 * input_size

    def forward(self, states: States, dag: TypedDAG) -> Tensor:
        """All bonds of all graphs."""
        counts, outputs = dag.host.input_ptr.diff(), dag.host.output_index
        if bool((counts[outputs] != 2).any()):
            raise ShapeError(
                "BondReadout reads output nodes with two inputs, but the data has others. Set "
                "data.bond_target_columns, or use another readout."
            )
        one, other = (self.read(states, dag, InputOfOutputs(place)) for place in (0, 1))
        return torch.cat([one + other, (one - other).abs()], dim=1)


#: Name -> function to [num_graphs, width], from rows and pointers; graph i has ptr[i] .. ptr[i+1].
REDUCTIONS: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "sum": segment.segment_sum,
    "mean": segment.segment_mean,
    "max": segment.segment_max,
}


class TypeReadout(Readout):
    """Sums, means or maxima over the nodes of each type, side by side; zeros without nodes.

    For graphs that mix levels, such as atoms, fragments and molecules.

    Args:
        input_size: width of the field.
        types: type name -> names of `REDUCTIONS`; the parts of a row are in this order.
        field: the field to read.

    Shape:
        returns: [num_graphs, number of reductions * input_size]

    Raises:
        ConfigError: if there is no such reduction, or no reduction is named.
        SchemaError: if the graphs have no such type.
        ShapeError: if the type of a node lacks the field.
    """

    level = "graph"

    def __init__(
        self, input_size: int, types: Mapping[str, Sequence[str]], field: str = "h"
    ) -> None:
        super().__init__(input_size, field)
        self.types = {name: tuple(reductions) for name, reductions in types.items()}
        names = [name for reductions in self.types.values() for name in reductions]
        for name in names:
            if name not in REDUCTIONS:
                raise ConfigError(
                    f"TypeReadout has no reduction '{name}'.{did_you_mean(name, REDUCTIONS)} "
                    f"Use {', '.join(REDUCTIONS)}."
                )
        if not names:
            raise ConfigError("TypeReadout reads nothing. Name a type and its reductions.")
        self.output_size = len(names) * input_size

    def forward(self, states: States, dag: TypedDAG) -> Tensor:
        """One row per graph."""
        parts = []
        for name, reductions in self.types.items():
            types = frozenset([dag.schema.type_index(name)])
            rows, ptr = self.read(states, dag, OfTypes(types)), dag.nodes_of_types(types)[1]
            parts += [REDUCTIONS[reduction](rows, ptr) for reduction in reductions]
        return torch.cat(parts, dim=1)
