"""GraphInputs: what is known of whole graphs, beside what a readout makes of their nodes."""

from __future__ import annotations

from itertools import accumulate

import torch
from torch import Tensor, nn

from graphfold.dag import Column, Schema, TypedDAG


class GraphInputs(nn.Module):
    """Joins the inputs of whole graphs (`Schema.graph_inputs`) to the rows of a readout.

    Args:
        schema: the schema of the graphs.

    Attributes:
        size: the numbers of one graph, over all its inputs; 0 for none.

    Shape:
        rows: [num_rows, width]
        graph: [num_rows] the graph that each row belongs to
        returns: [num_rows, width + size]
    """

    def __init__(self, schema: Schema) -> None:
        super().__init__()
        self.columns = schema.graph_inputs
        self.size = sum(torch.Size(column.shape).numel() for column in self.columns)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(str, self.columns))})"

    def spans(self) -> list[tuple[Column, slice]]:
        """Each input with the slice of the columns of `read` that it takes."""
        sizes = [torch.Size(column.shape).numel() for column in self.columns]
        ends = [*accumulate(sizes)]
        slices = [slice(end - size, end) for size, end in zip(sizes, ends, strict=True)]
        return list(zip(self.columns, slices, strict=True))

    def read(self, dag: TypedDAG) -> Tensor:
        """[num_graphs, size] the inputs, side by side."""
        values = (dag.columns["graph"][column.name] for column in self.columns)
        return torch.cat([v.reshape(dag.num_graphs, -1).float() for v in values], dim=1)

    def forward(self, rows: Tensor, graph: Tensor, dag: TypedDAG) -> Tensor:
        """The rows, each followed by the inputs of its graph."""
        if not self.columns:
            return rows
        return torch.cat([rows, self.read(dag).to(rows.dtype)[graph]], dim=1)
