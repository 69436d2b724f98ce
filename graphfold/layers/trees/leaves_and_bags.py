"""Cells without structure: leaves, bags of nodes, neighbours, sets."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from graphfold.batching.cell import Cell, NodeInput, State
from graphfold.batching.children import Children
from graphfold.errors import ConfigError
from graphfold.layers.encoders.column_encoder import features, parts
from graphfold.layers.feature_cell import FeatureCell, add_part, apply_mask


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
        """All fields side by side; a leaf needs no children."""
        return {"fields": self.from_x(features(x))}

    def forward(self, x: NodeInput, children: Children) -> State:
        """The fields of the leaves."""
        columns = parts(x)["fields"].chunk(len(self.fields), dim=1)
        return dict(zip(self.fields, columns, strict=True))


def require_features(cell: Cell, input_size: int) -> None:
    """Raises ConfigError for a leaf cell without features."""
    if input_size < 1:
        raise ConfigError(
            f"{type(cell).__name__} has input_size={input_size}, but a leaf is made of its "
            "features alone. Give its type a feature column."
        )


class BagCell(Cell):
    """A linear map of a node's features, or the sum of such maps over its subtree.

    With a sum over the nodes and a linear head the whole model is linear in the counts of codes and
    the sums of numbers: a bag of words, or of operators, as a baseline.

        h = W x + b                with `subtree`: h = W x + b + Σ_k h_k

    With `subtree` the root of each tree of a pair has the bag of that tree.

    Args:
        input_size: width of the node features; nodes without features all have h = b.
        hidden_size: width of `h`, the field of a node.
        subtree: whether a node adds the states of its children.

    Shape:
        x: [group_size, input_size], or what `before` made of it
        returns: {"h": [group_size, hidden_size]}
    """

    def __init__(self, input_size: int, hidden_size: int, subtree: bool = False) -> None:
        super().__init__()
        self.subtree = subtree
        self.reads = ("h",) if subtree else ()
        self.fields = {"h": hidden_size}
        self.from_x = nn.Linear(input_size, hidden_size, bias=False) if input_size else None
        self.bias = nn.Parameter(torch.zeros(hidden_size))

    def before(self, x: NodeInput) -> NodeInput:
        """The map of the node's own features."""
        x = features(x)
        rows: Tensor = x.new_zeros(x.shape[0], 1) if self.from_x is None else self.from_x(x)
        return {"h": rows + self.bias}

    def forward(self, x: NodeInput, children: Children) -> State:
        """The state of the nodes."""
        own = parts(x)["h"]
        return {"h": own + children.sum("h") if self.subtree else own}


class NeighboursCell(Cell):
    """The sum of a node and its inputs, or in a pass `Down` its readers, without weights.

    After `BagCell`, several such passes give a node the bag of all nodes within as many steps. With
    a linear head it is a baseline: a model that is linear in the nodes and ignores their places.

        y = x + Σ_k x_k

    Args:
        hidden_size: width of both fields.
        source: x, the field of an earlier pass.
        field: y, the field of a node.

    Shape:
        children: rows of `source`, [num_child_edges, hidden_size]
        returns: {field: [group_size, hidden_size]}
    """

    def __init__(self, hidden_size: int, source: str = "h", field: str = "around") -> None:
        super().__init__()
        self.source, self.field = source, field
        self.fields = {field: hidden_size}
        self.reads = (source,)

    def forward(self, x: NodeInput, children: Children) -> State:
        """The sums of the nodes."""
        return {self.field: children.previous(self.source) + children.sum(self.source)}


class DeepSetCell(FeatureCell):
    """A network with two hidden layers over the sum of the children.

    Theorem 2 of Zaheer et al. (2017), https://arxiv.org/abs/1703.06114, at every node: a function
    of a set is ρ(Σ_k φ(x_k)). Here φ is the last layer of the child's cell, and ρ also reads the
    node's features:

        y = ReLU(W x + U Σ_k h_k + b)    z = ReLU(V y + d)    h = tanh(T z + e)

    If children are digits, their sum is the histogram of the digits, so one node can learn their
    minimum, their median and their sum. Differences from the paper: it gives vectors, not numbers;
    `z` may be dropped out.

    Args:
        input_size: width of the node features; 0 for nodes without features.
        hidden_size: width of `h`, the field of a node.
        inner_size: width of y and z; None for four times `hidden_size`.
        dropout: probability of dropping an entry of `z`.

    Shape:
        x: [group_size, input_size], or what `before` made of it
        children: rows of `h`, [num_child_edges, hidden_size]
        returns: {"h": [group_size, hidden_size]}

    Raises:
        ConfigError: if `dropout` is not a probability.
    """

    def __init__(
        self, input_size: int, hidden_size: int, inner_size: int | None = None, dropout: float = 0.0
    ) -> None:
        inner = inner_size or 4 * hidden_size
        super().__init__({"h": hidden_size}, input_size, inner, dropout, dropped=inner)
        self.from_sum = nn.Linear(hidden_size, inner)
        self.inner = nn.Linear(inner, inner)
        self.to_h = nn.Linear(inner, hidden_size)

    def forward(self, x: NodeInput, children: Children) -> State:
        """The state of the nodes."""
        y = add_part(self.from_sum(children.sum("h")), x)
        z = apply_mask(torch.relu(self.inner(torch.relu(y))), x)
        return {"h": torch.tanh(self.to_h(z))}
