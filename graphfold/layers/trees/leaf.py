"""LeafCell: features become fields by one linear map."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from graphfold.batching.cell import Cell, NodeInput, State
from graphfold.batching.children import Children
from graphfold.errors import ConfigError
from graphfold.layers.encoders.node_input import features, parts


class LeafCell(Cell):
    """A node without children: every field is a linear map of the features.

    h = W x + b

    Args:
        input_size: width of the node features.
        hidden_size: width of each field.
        fields: names of the fields.

    Shape:
        x: [group_size, input_size], or what `before` made of it
        returns: field -> [group_size, hidden_size]

    Raises:
        ConfigError: if there are no features to map.
    """

    arity = 0

    def __init__(self, input_size: int, hidden_size: int, fields: Sequence[str] = ("h",)) -> None:
        super().__init__()
        require_features(self, input_size)
        self.fields = dict.fromkeys(fields, hidden_size)
        self.from_x = nn.Linear(input_size, len(self.fields) * hidden_size)

    def before(self, x: NodeInput) -> NodeInput:
        """All fields side by side; a leaf has nothing to wait for."""
        return {"fields": self.from_x(features(x))}

    def forward(self, x: NodeInput, children: Children) -> State:
        """The fields of the leaves."""
        columns = parts(x)["fields"].chunk(len(self.fields), dim=1)
        return dict(zip(self.fields, columns, strict=True))


def require_features(cell: Cell, input_size: int) -> None:
    """Raises ConfigError for a cell that only has features to go by, and has none."""
    if input_size < 1:
        raise ConfigError(
            f"{type(cell).__name__} has input_size={input_size}, but a leaf is made of its "
            "features alone. Give its type a feature column."
        )
