"""Tree-RNN cells: one fully connected layer over the children side by side."""

from __future__ import annotations

import torch
from torch import nn

from graphfold.batching.cell import Cell, NodeInput, State
from graphfold.batching.children import Children
from graphfold.layers.activation import get_activation
from graphfold.layers.encoders.node_input import parts
from graphfold.layers.feature_cell import FeatureCell, add_known, drop_known


class TreeRNNCell(FeatureCell):
    """Recursive neural network over `arity` ordered children.

    Socher et al. (2011), "Parsing Natural Scenes and Natural Language with Recursive Neural
    Networks", equation 2:

        h = tanh(W [h_1; ...; h_arity] + b)

    Differences from the paper: any fixed arity; nodes may have features, which add V x inside tanh;
    `h` may be dropped out.

    Args:
        input_size: width of the node features; 0 for nodes without features.
        hidden_size: width of `h`, the field of a node.
        arity: the number of children; an absent one reads zeros.
        dropout: probability of dropping an entry of `h`.

    Shape:
        x: [group_size, input_size], or what `before` made of it
        children: `h`, [group_size, arity, hidden_size]
        returns: {"h": [group_size, hidden_size]}

    Raises:
        ConfigError: if `dropout` is not a probability.
    """

    def __init__(
        self, input_size: int, hidden_size: int, arity: int = 2, dropout: float = 0.0
    ) -> None:
        super().__init__({"h": hidden_size}, input_size, hidden_size, dropout)
        self.arity = arity
        self.from_h = nn.Linear(arity * hidden_size, hidden_size)

    def forward(self, x: NodeInput, children: Children) -> State:
        """The state of the nodes."""
        known = parts(x)
        total = self.from_h(children.stack("h").flatten(1))
        return {"h": drop_known(torch.tanh(add_known(total, known)), known)}


class TreeFCCell(Cell):
    """The cell of Fold's Tree-FC benchmark: one fully connected layer over the children.

    Looks et al. (2017), https://arxiv.org/abs/1702.02181, measure dynamic batching with it; Xu et
    al. (2018) repeat the measurement for Cavs. Features of inner nodes are not read.

        h = activation(W [h_1; ...; h_arity] + b)

    Args:
        hidden_size: width of `h`, the field of a node.
        arity: the number of children; an absent one reads zeros.
        activation: "relu", "tanh", "sigmoid" or "none".

    Shape:
        children: `h`, [group_size, arity, hidden_size]
        returns: {"h": [group_size, hidden_size]}

    Raises:
        ConfigError: if there is no such activation.
    """

    def __init__(self, hidden_size: int, arity: int = 2, activation: str = "relu") -> None:
        super().__init__()
        self.fields = {"h": hidden_size}
        self.arity = arity
        self.activation = get_activation(activation)
        self.from_h = nn.Linear(arity * hidden_size, hidden_size)

    def forward(self, x: NodeInput, children: Children) -> State:
        """The state of the nodes."""
        return {"h": self.activation(self.from_h(children.stack("h").flatten(1)))}
