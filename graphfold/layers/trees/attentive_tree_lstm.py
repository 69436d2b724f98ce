"""AttentiveTreeLSTMCell: a Child-Sum Tree-LSTM that weighs its children."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from graphfold.batching.cell import NodeInput, State
from graphfold.batching.children import Children
from graphfold.layers.encoders.node_input import parts
from graphfold.layers.feature_cell import FeatureCell, add_known
from graphfold.layers.trees.tree_lstm import activate, new_state


class AttentiveTreeLSTMCell(FeatureCell):
    """Tree-LSTM over any number of unordered children, with attention in the place of their sum.

    Equations 2-8 of Tai et al. (2015), https://arxiv.org/abs/1503.00075, where h̃ is not the sum of
    the children but, after Zhou et al. (2016), https://aclanthology.org/C16-1274, section 3.2:

        a_k = softmax_k(w · tanh(W_a h_k + U_a x))    h̃ = tanh(W_g Σ_k a_k h_k + b_g)

    Differences from the papers: the query is the node's own features x, where Zhou et al. have the
    vector of the other sentence of a pair; without features the children alone decide. Dropout of
    `u`, see `NaryTreeLSTMCell`.

    Args:
        input_size: width of the node features; 0 for nodes without features.
        hidden_size: width of `h` and of `c`, the two fields of a node.
        dropout: probability of dropping an entry of `u`.
        forget_bias: added to the forget gate's bias at the start.

    Shape:
        x: [group_size, input_size], or what `before` made of it
        children: rows of `h` and `c`, [num_child_edges, hidden_size] each
        returns: {"h": [group_size, hidden_size], "c": [group_size, hidden_size]}

    Raises:
        ConfigError: if `dropout` is not a probability.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        dropout: float = 0.0,
        forget_bias: float = 0.0,
    ) -> None:
        fields = {"h": hidden_size, "c": hidden_size}
        super().__init__(fields, input_size, 5 * hidden_size, dropout)
        self.from_mean = nn.Linear(hidden_size, hidden_size)
        self.from_sum = nn.Linear(hidden_size, 3 * hidden_size)  # i, o, u
        self.from_h = nn.Linear(hidden_size, 2 * hidden_size)  # f and the key, once per child
        self.score = nn.Linear(hidden_size, 1, bias=False)
        with torch.no_grad():
            self.from_h.bias[:hidden_size].add_(forget_bias)

    def of_x(self, product: Tensor) -> dict[str, Tensor]:
        """The parts of what is computed for each child, and of the other gates."""
        of_children, gates = product.tensor_split([2 * self.fields["h"]], dim=1)
        return {"of_children": of_children, "gates": gates}

    def forward(self, x: NodeInput, children: Children) -> State:
        """The state of the nodes."""
        known = parts(x)
        h = children.rows("h")
        of_children: Tensor = self.from_h(h)
        if "of_children" in known:
            of_children = of_children + children.expand(known["of_children"])
        forget, key = of_children.chunk(2, dim=1)
        mean = children.attend(h, self.score(torch.tanh(key)))
        gates = add_known(self.from_sum(torch.tanh(self.from_mean(mean))), known, "gates")
        gate, u = activate(gates, self.fields["h"], known)
        i, o = gate.chunk(2, dim=1)
        kept = children.sum(torch.sigmoid(forget) * children.rows("c"))
        return new_state(o, torch.addcmul(kept, i, u))
