"""DeepSetCell: any function of a node's features and the set of its children."""

from __future__ import annotations

import torch
from torch import nn

from graphfold.batching.cell import NodeInput, State
from graphfold.batching.children import Children
from graphfold.layers.encoders.node_input import parts
from graphfold.layers.feature_cell import FeatureCell, add_known, drop_known


class DeepSetCell(FeatureCell):
    """A network with two hidden layers over the sum of the children.

    Theorem 2 of Zaheer et al. (2017), https://arxiv.org/abs/1703.06114, at every node: a function
    of a set is ρ(Σ_k φ(x_k)). Here φ is what the child's own cell computes last, and ρ knows the
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
        self,
        input_size: int,
        hidden_size: int,
        inner_size: int | None = None,
        dropout: float = 0.0,
    ) -> None:
        inner = inner_size or 4 * hidden_size
        super().__init__({"h": hidden_size}, input_size, inner, dropout, dropped=inner)
        self.from_sum = nn.Linear(hidden_size, inner)
        self.inner = nn.Linear(inner, inner)
        self.to_h = nn.Linear(inner, hidden_size)

    def forward(self, x: NodeInput, children: Children) -> State:
        """The state of the nodes."""
        known = parts(x)
        y = add_known(self.from_sum(children.sum("h")), known)
        z = drop_known(torch.relu(self.inner(torch.relu(y))), known)
        return {"h": torch.tanh(self.to_h(z))}
