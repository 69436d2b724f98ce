"""FeatureEncoder: one vector for each node from its features.

GraphInputs joins inputs of graphs, such as descriptors, to the rows of a readout.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn

from graphfold.batching.scheduling.sources import Sources
from graphfold.dag import Column, NodeType, Schema, TypedDAG
from graphfold.errors import ConfigError, did_you_mean
from graphfold.layers.dropout import Dropout
from graphfold.layers.encoders.column_encoder import ColumnEncoder


class GraphInputs(nn.Module):
    """Joins the inputs of graphs (`Schema.graph_inputs`) to the rows of a readout.

    Args:
        schema: the schema of the graphs.

    Attributes:
        size: the number of numbers of one graph; 0 without inputs.

    Shape:
        rows: [num_rows, width]
        graph_of: graphs -> [num_rows] the graph that each row belongs to
        returns: [num_rows, width + size]
    """

    def __init__(self, schema: Schema) -> None:
        super().__init__()
        self.columns = schema.graph_inputs
        self.size = sum(torch.Size(column.shape).numel() for column in self.columns)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(str, self.columns))})"

    def forward(
        self, rows: Tensor, graph_of: Callable[[TypedDAG], Tensor], dag: TypedDAG
    ) -> Tensor:
        """The rows, each followed by the inputs of its graph."""
        if not self.columns:
            return rows
        values = (dag.columns["graph"][column.name] for column in self.columns)
        inputs = [value.reshape(dag.num_graphs, -1).to(rows.dtype) for value in values]
        return torch.cat([rows, torch.cat(inputs, dim=1).index_select(0, graph_of(dag))], dim=1)


class FeatureEncoder(nn.Module):
    """Encodes the features of each node type by one `ColumnEncoder`.

    Args:
        schema: the schema of the graphs, its string features encoded as codes.
        size: width of a node's vector; a type without features has width 0.
        dropout: probability of dropping an entry of a node's vector.
        features: type name -> names of the columns to read; all columns of the other types.

    Attributes:
        widths: type name -> width of its vectors.

    Shape:
        returns: type name -> [num_nodes_of_type, width], in node order

    Raises:
        ConfigError: if `features` names unknown types or columns, a column cannot be encoded, or
            `dropout` is not a probability.
    """

    like: Tensor

    def __init__(
        self,
        schema: Schema,
        size: int,
        dropout: float = 0.0,
        features: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        super().__init__()
        chosen = _choose(schema, features or {})
        self.widths = {name: size if columns else 0 for name, columns in chosen.items()}
        self.encoders = nn.ModuleDict(
            {name: ColumnEncoder(columns, size) for name, columns in chosen.items() if columns}
        )
        self.dropout = Dropout(dropout)
        # Gives types without features the dtype and the device of the others.
        self.register_buffer("like", torch.zeros(0), persistent=False)

    def __repr__(self) -> str:
        """The width of each type's vectors."""
        widths = ", ".join(f"{name} [{width}]" for name, width in self.widths.items())
        return f"{type(self).__name__}({widths})"

    def forward(self, dag: TypedDAG, sources: Sequence[Sources] | None = None) -> dict[str, Tensor]:
        """The vectors of all nodes; with `sources`, of those nodes alone."""
        vectors = {}
        for index, node_type in enumerate(dag.schema.types):
            rows = None if sources is None else sources[index].node
            count = dag.num_nodes_by_type[index] if rows is None else len(rows)
            vectors[node_type.name] = self._encode(dag, node_type.name, rows, count)
        return vectors

    def _encode(self, dag: TypedDAG, name: str, rows: Tensor | None, count: int) -> Tensor:
        if name not in self.encoders:
            return self.like.new_zeros(count, 0)
        encoded: Tensor = self.dropout(self.encoders[name](dag.features(name), rows=rows))
        return encoded


def _choose(schema: Schema, features: Mapping[str, Sequence[str]]) -> dict[str, tuple[Column, ...]]:
    """The columns to read of each type."""
    types = {node_type.name: node_type for node_type in schema.types}
    faults = [
        f"features names the type '{name}', which the schema lacks."
        f"{did_you_mean(name, types)} It has: {', '.join(types)}."
        for name in features
        if name not in types
    ]
    for name in features.keys() & types.keys():
        faults += _unknown_columns(types[name], features[name])
    if faults:
        raise ConfigError(" ".join(faults))
    return {
        name: tuple(c for c in node_type.features if c.name in features.get(name, (c.name,)))
        for name, node_type in types.items()
    }


def _unknown_columns(node_type: NodeType, names: Sequence[str]) -> list[str]:
    columns = [column.name for column in node_type.features]
    return [
        f"features names the column '{name}', which type '{node_type.name}' lacks."
        f"{did_you_mean(name, columns)} It has: {', '.join(columns) or 'none'}."
        for name in names
        if name not in columns
    ]
