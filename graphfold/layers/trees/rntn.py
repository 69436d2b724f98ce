"""RNTNCell: a recursive network whose children multiply each other through a tensor."""

from __future__ import annotations

import torch
from torch import nn

from graphfold.batching.cell import NodeInput, State
from graphfold.batching.children import Children
from graphfold.layers.encoders.node_input import parts
from graphfold.layers.feature_cell import FeatureCell, add_known, drop_known


class RNTNCell(FeatureCell):
    """Recursive neural tensor network over `arity` ordered children.

    Socher et al. (2013), https://aclanthology.org/D13-1170, section 4.3, with z = [h_1; ...;
    h_arity] and a slice V_j of the tensor for each entry j of `h`:

        h_j = tanh(zᵀ V_j z + (W z + b)_j)

    All V_j z are one product with a matrix, whose rows are then multiplied by z and summed: a node
    needs `arity * hidden_size²` numbers of memory. The outer product z zᵀ, which needs
    `arity²` times as many as a slice, is never held.

    Differences from the paper: any fixed arity; nodes may have features, which add V x inside tanh;
    `h` may be dropped out.

    Args:
        input_size: width of the node features; 0 for nodes without features.
        hidden_size: width of `h`, the field of a node; 25 to 35 in the paper.
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
        width = arity * hidden_size
        self.from_h = nn.Linear(width, hidden_size)
        self.tensor = nn.Linear(width, hidden_size * width, bias=False)  # V_1; V_2; ...
        # A quadratic form adds up width² terms: small at first, or every tanh saturates.
        nn.init.uniform_(self.tensor.weight, -0.5 / width, 0.5 / width)

    def forward(self, x: NodeInput, children: Children) -> State:
        """The state of the nodes."""
        known = parts(x)
        z = children.stack("h").flatten(1)
        products = self.tensor(z).view(-1, self.fields["h"], z.shape[1])
        total = self.from_h(z) + (products * z.unsqueeze(1)).sum(2)
        return {"h": drop_known(torch.tanh(add_known(total, known)), known)}
