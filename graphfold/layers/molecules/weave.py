"""Weave: states of atoms and of pairs of atoms, each made of both."""

from __future__ import annotations

import torch
from torch import nn

from graphfold.batching.cell import NodeInput, State
from graphfold.batching.children import Children
from graphfold.layers.molecules.message_passing import Convolution


class WeaveAtomCell(Convolution):
    """The state of an atom after one more weave, for `Rounds("weave", ...)`.

    Kearnes et al. (2016), https://arxiv.org/abs/1603.00856, section 2.3, the first two operations,
    with P(v) the pairs that v is in:

        h_v' = relu(W (relu(A h_v + a) ‖ Σ_{p ∈ P(v)} relu(B h_p + b)) + c)

    Differences from the paper: no batch normalisation; dropout as an option. `NodePairs` makes the
    pairs; it runs beside `WeavePairCell`, in the same rounds.

    Args:
        hidden_size: width of `h`, the field of atoms and of pairs.
        dropout: probability of dropping an entry of the new `h`, drawn anew in every round.

    Shape:
        x: [num_nodes_of_type, hidden_size] if it is the state before the first round
        children: `h` of the pairs, [num_child_edges, hidden_size]
        returns: {"h": [group_size, hidden_size]}

    Raises:
        ShapeError: if rounds start from features that are not `hidden_size` wide.
        ConfigError: if `dropout` is not a probability.
    """

    def __init__(self, hidden_size: int, dropout: float = 0.0) -> None:
        super().__init__({"h": hidden_size}, dropout)
        self.from_own = nn.Linear(hidden_size, hidden_size)
        self.from_pair = nn.Linear(hidden_size, hidden_size)
        self.both = nn.Linear(2 * hidden_size, hidden_size)

    def forward(self, x: NodeInput, children: Children) -> State:
        """The state after one more round."""
        own = torch.relu(self.from_own(children.previous("h")))
        pairs = children.sum(torch.relu(self.from_pair(children.rows("h"))))
        return self.finish(torch.relu(self.both(torch.cat([own, pairs], 1))), x, children)


class WeavePairCell(Convolution):
    """The state of a pair of atoms after one more weave, for `Rounds("weave", ...)`.

    Kearnes et al. (2016), https://arxiv.org/abs/1603.00856, section 2.3, the last two operations,
    for the pair p of v and w, the same in both orders:

        m_vw = relu(A (h_v ‖ h_w) + a)
        h_p' = relu(W (m_vw + m_wv ‖ relu(B h_p + b)) + c)

    Differences from the paper: no batch normalisation; dropout as an option. See `WeaveAtomCell`.

    Args:
        hidden_size: width of `h`, the field of atoms and of pairs.
        dropout: probability of dropping an entry of the new `h`, drawn anew in every round.

    Shape:
        x: [num_nodes_of_type, hidden_size] if it is the state before the first round
        children: `h` of the two atoms, [num_child_edges, hidden_size]
        returns: {"h": [group_size, hidden_size]}

    Raises:
        ShapeError: if rounds start from features that are not `hidden_size` wide.
        ConfigError: if `dropout` is not a probability.
    """

    def __init__(self, hidden_size: int, dropout: float = 0.0) -> None:
        super().__init__({"h": hidden_size}, dropout)
        self.from_first = nn.Linear(hidden_size, hidden_size)
        self.from_second = nn.Linear(hidden_size, hidden_size, bias=False)
        self.from_own = nn.Linear(hidden_size, hidden_size)
        self.both = nn.Linear(2 * hidden_size, hidden_size)

    def forward(self, x: NodeInput, children: Children) -> State:
        """The state after one more round."""
        rows = children.rows("h")
        other = children.expand(children.sum("h")) - rows  # of two children
        atoms = children.sum(torch.relu(self.from_first(rows) + self.from_second(other)))
        own = torch.relu(self.from_own(children.previous("h")))
        return self.finish(torch.relu(self.both(torch.cat([atoms, own], 1))), x, children)
