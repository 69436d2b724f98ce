"""TypeReadout: reductions over the nodes of several types, side by side."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from graphfold.batching.kernels import segment
from graphfold.batching.states import States
from graphfold.dag import TypedDAG
from graphfold.errors import ConfigError, did_you_mean
from graphfold.layers.readouts.readout import Readout

#: Name -> [num_graphs, width] from rows, of which ptr[i] .. ptr[i+1] are those of graph i.
REDUCTIONS: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "sum": segment.segment_sum,
    "mean": segment.segment_mean,
    "max": segment.segment_max,
}


class TypeReadout(Readout):
    """Sums, means or maxima over the nodes of each type, side by side; zeros where there are none.

    For graphs that mix levels, such as atoms, fragments and molecules.

    Args:
        input_size: width of the field.
        types: type name -> names of `REDUCTIONS`; the order is that of the parts of a row.
        field: the field to read.

    Shape:
        returns: [num_graphs, number of reductions * input_size]

    Raises:
        ConfigError: if there is no such reduction, or none at all.
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
        found = []
        for name, reductions in self.types.items():
            nodes = torch.nonzero(dag.op_type == dag.schema.type_index(name)).view(-1)
            graph = dag.batch.index_select(0, nodes)
            ptr = torch.searchsorted(graph, torch.arange(dag.num_graphs + 1, device=graph.device))
            rows = self.read(states, dag, nodes)
            found += [REDUCTIONS[reduction](rows, ptr) for reduction in reductions]
        return torch.cat(found, dim=1)
