"""Cells over trees of molecular fragments, from the atoms up and down again."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from graphfold.batching.cell import NodeInput, State
from graphfold.batching.children import Children
from graphfold.layers.feature_cell import FeatureCell, add_part, apply_mask


class FragmentCell(FeatureCell):
    """A gated unit over atoms and child fragments, for the way `Up` a tree of fragments.

    The unit of Cho et al. (2014), https://arxiv.org/abs/1406.1078, equations 6-8, with the sum over
    child fragments in the place of the previous state, as in a Tree-GRU, and the features and the
    sum over atoms as the input. Over rings, paths and atoms as in Wollschläger et al. (2024),
    https://arxiv.org/abs/2406.08210, where however fragments exchange messages in rounds:

        a = Σ_atoms h_v      s = Σ_fragments h_k
        z = σ(W_z x + V_z a + U_z s + b_z)
        u = tanh(W_u x + V_u a + U_u s + b_u)
        h = z ⊙ s + (1 - z) ⊙ u

    Differences from Cho et al.: no reset gates; nodes may be without features; `u` may be dropped
    out.

    Args:
        input_size: width of the node features; 0 for nodes without features.
        hidden_size: width of `h`, the field of a node and of an atom.
        dropout: probability of dropping an entry of `u`.

    Shape:
        x: [group_size, input_size], or what `before` made of it
        children: rows of `h`, [num_child_edges, hidden_size], and the edge column `is_atom`
        returns: {"h": [group_size, hidden_size]}

    Raises:
        ConfigError: if `dropout` is not a probability.
    """

    def __init__(self, input_size: int, hidden_size: int, dropout: float = 0.0) -> None:
        super().__init__({"h": hidden_size}, input_size, 2 * hidden_size, dropout)
        self.from_children = nn.Linear(2 * hidden_size, 2 * hidden_size)  # z, u

    def before_edges(self, edge: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """1 for atoms and 0 for fragments, and the other way round."""
        is_atom = edge["is_atom"].to(self.from_children.weight.dtype).unsqueeze(1)
        return {"atom": is_atom, "fragment": 1 - is_atom}

    def forward(self, x: NodeInput, children: Children) -> State:
        """The state of the nodes."""
        h = children.rows("h")
        atoms = children.sum(h * children.edge["atom"])
        fragments = children.sum(h * children.edge["fragment"])
        gates = add_part(self.from_children(torch.cat([atoms, fragments], dim=1)), x)
        return {"h": _mix(gates, fragments, x)}


class ReadersCell(FeatureCell):
    """A gated unit over a node's own state and its readers, for the way `Down`.

    An atom reads the fragments that contain it, and a fragment reads its parent. The unit of
    Cho et al. (2014), https://arxiv.org/abs/1406.1078, equations 6-8, without a reset gate, where p
    is the node's own state before this pass:

        s = Σ_readers h_k
        z = σ(V_z p + U_z s + b_z)
        u = tanh(V_u p + U_u s + b_u)
        h = z ⊙ p + (1 - z) ⊙ u

    Args:
        hidden_size: width of `h`, the field of a node.
        dropout: probability of dropping an entry of `u`.

    Shape:
        x: [group_size, any], not read
        children: rows of `h` of the readers, [num_child_edges, hidden_size]
        returns: {"h": [group_size, hidden_size]}

    Raises:
        ConfigError: if `dropout` is not a probability.
    """

    def __init__(self, hidden_size: int, dropout: float = 0.0) -> None:
        super().__init__({"h": hidden_size}, dropout=dropout)
        self.linear = nn.Linear(2 * hidden_size, 2 * hidden_size)  # z, u

    def forward(self, x: NodeInput, children: Children) -> State:
        """The state of the nodes."""
        own = children.previous("h")
        gates = self.linear(torch.cat([own, children.sum("h")], dim=1))
        return {"h": _mix(gates, own, x)}


def _mix(gates: Tensor, old: Tensor, x: NodeInput) -> Tensor:
    """z ⊙ old + (1 - z) ⊙ u, from the two gates side by side."""
    update, candidate = gates.chunk(2, dim=1)
    z, u = torch.sigmoid(update), apply_mask(torch.tanh(candidate), x)
    return z * old + (1 - z) * u
