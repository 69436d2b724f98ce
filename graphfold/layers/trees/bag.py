"""BagCell: a node for itself, the base of models that do not look at the structure."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from graphfold.batching.cell import Cell, NodeInput, State
from graphfold.batching.children import Children
from graphfold.layers.encoders.node_input import features, parts


class BagCell(Cell):
    """A linear map of a node's features; its children are not read, or only added up.

    With a sum over the nodes and a linear head the whole model is linear in the counts of codes and
    the sums of numbers: a bag of words, or of operators, to compare other models with.

        h = W x + b                with `subtree`: h = W x + b + Σ_k h_k

    With `subtree` a root has the bag of its own tree, as pairs of trees need it.

    Args:
        input_size: width of the node features; nodes without features all have h = b.
        hidden_size: width of `h`, the field of a node.
        subtree: whether a node adds up what is below it.

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
        """The node for itself."""
        x = features(x)
        rows: Tensor = x.new_zeros(x.shape[0], 1) if self.from_x is None else self.from_x(x)
        return {"h": rows + self.bias}

    def forward(self, x: NodeInput, children: Children) -> State:
        """The state of the nodes."""
        own = parts(x)["h"]
        return {"h": own + children.sum("h") if self.subtree else own}
