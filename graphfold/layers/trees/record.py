"""Cells for records: leaves of any kind, and bags of items."""

from __future__ import annotations

import torch
from torch import nn

from graphfold.batching.cell import Cell, NodeInput, State
from graphfold.batching.children import Children
from graphfold.layers.encoders.node_input import features, parts
from graphfold.layers.trees.bag import BagCell


class RecordLeafCell(BagCell):
    """A value without parts.

        h = tanh(W x + b)

    Args:
        input_size: width of the features; a leaf without features, such as an empty object, has
            h = tanh(b).
        hidden_size: width of `h`, the field of a node.

    Shape:
        x: [group_size, input_size], or what `before` made of it
        returns: {"h": [group_size, hidden_size]}
    """

    arity = 0

    def before(self, x: NodeInput) -> NodeInput:
        """The whole state; there is nothing to wait for."""
        return {"h": torch.tanh(parts(super().before(x))["h"])}


class RecordBagCell(Cell):
    """A bag of any number of items, whose order does not count.

    Pevný and Somol (2016), https://arxiv.org/abs/1609.07257, equation 3, with both of its poolings,
    and with the features x of the bag itself, such as how many items it has:

        h = tanh(W [mean_k h_k; max_k h_k] + U x + b)

    The mean and the maximum of an empty bag are zeros.

    Args:
        input_size: width of the features of the bag; 0 for none.
        hidden_size: width of `h`, the field of a node.

    Shape:
        x: [group_size, input_size], or what `before` made of it
        children: rows of `h`, [num_child_edges, hidden_size]
        returns: {"h": [group_size, hidden_size]}
    """

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.fields = {"h": hidden_size}
        self.from_pooled = nn.Linear(2 * hidden_size, hidden_size)
        self.from_x = nn.Linear(input_size, hidden_size, bias=False) if input_size else None

    def before(self, x: NodeInput) -> NodeInput:
        """U x, for all bags at once."""
        x = features(x)
        return x if self.from_x is None else self.from_x(x)

    def forward(self, x: NodeInput, children: Children) -> State:
        """The state of the nodes."""
        pooled = self.from_pooled(torch.cat([children.mean("h"), children.max("h")], dim=1))
        return {"h": torch.tanh(pooled if self.from_x is None else pooled + parts(x)["x"])}
