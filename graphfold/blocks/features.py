"""Features: the columns of a node or an edge as one learned vector."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from graphfold.blocks.block import Block
from graphfold.blocks.function import Function
from graphfold.blocks.inputs import Tensor as TensorBlock
from graphfold.blocks.record import Record
from graphfold.dag import Column
from graphfold.layers import ColumnEncoder
from graphfold.layers.dropout import Dropout


def Features(
    columns: Sequence[Column], size: int, dropout: float = 0.0, name: str | None = None
) -> Block:
    """A vector [size] from a node or an edge of `graphfold.blocks.graphs`; see `ColumnEncoder`.

    Args:
        columns: what is read of it: columns of an encoded schema.
        size: of the vector.
        dropout: probability of dropping an entry of the vector in training.
        name: what messages and state dicts call it.

    Raises:
        ConfigError: if the columns cannot be encoded, or `dropout` is not a probability.
    """
    encode = Function(FeatureVector(columns, size, dropout), name, infer_output_type=False)
    encode.set_output_type([size])
    items = [(column.name, TensorBlock(column.shape, column.dtype)) for column in columns]
    return Record(items) >> encode


class FeatureVector(nn.Module):
    """What `Features` computes.

    Args:
        columns: see there.
        size: see there.
        dropout: see there.

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
