"""Directed message passing (D-MPNN): states of directed bonds, and what atoms make of them."""

from __future__ import annotations

from torch import nn

from graphfold.batching.cell import NodeInput, State
from graphfold.batching.children import Children
from graphfold.layers.activation import get_activation
from graphfold.layers.encoders.node_input import parts
from graphfold.layers.molecules.message_passing import Convolution, get_activation_


class DMPNNBondCell(Convolution):
    """One round of messages along directed bonds, for `Rounds("continues", depth - 1)`.

    Equations 2-4 of Yang et al. (2019), https://arxiv.org/abs/1904.01561, for the bond from v to w:

        h⁰_vw = τ(W_i cat(x_v, e_vw))
        m_vw = Σ_{u ∈ N(v) \\ w} h_uv
        h_vw' = τ(h⁰_vw + W_m m_vw)

    W_i cat(x_v, e_vw) is what the encoder makes of the bond's features, those of the atom v among
    them. Differences from the paper: as in the authors' program (chemprop), the h⁰_vw that is added
    is the one before τ, and there is no bias unless asked for.

    Args:
        hidden_size: width of `h_bond`, the field of a bond.
        activation: τ: "relu", "tanh", "sigmoid" or "none".
        dropout: probability of dropping an entry of the new `h_bond`, drawn anew in every round.
        bias: whether W_m has a bias.

    Shape:
        x: [num_nodes_of_type, hidden_size], W_i cat(x_v, e_vw)
        children: `h_bond` of the bonds before, [num_child_edges, hidden_size]
        returns: {"h_bond": [group_size, hidden_size]}

    Raises:
        ShapeError: if the features are not `hidden_size` wide.
        ConfigError: if `dropout` is not a probability, or there is no such activation.
    """

    def __init__(
        self,
        hidden_size: int,
        activation: str = "relu",
        dropout: float = 0.0,
        bias: bool = False,
    ) -> None:
        super().__init__({"h_bond": hidden_size}, dropout)
        self.message = nn.Linear(hidden_size, hidden_size, bias=bias)
        self.activation, self.activation_ = get_activation(activation), get_activation_(activation)

    def initial(self, x: NodeInput) -> State:
        """The state of a bond that no message has reached yet."""
        return {"h_bond": self.activation(self.first(x))}

    def forward(self, x: NodeInput, children: Children) -> State:
        """The state after one more round."""
        h = self.activation_(self.message(children.sum("h_bond")).add_(parts(x)["x"]))
        return {"h_bond": self.drop(h, x)}


class DMPNNAtomCell(Convolution):
    """The state of an atom, from the bonds that arrive there, for `Rounds("arrives", 1)`.

    Equations 5-6 of Yang et al. (2019), https://arxiv.org/abs/1904.01561, with W_a cat(x_v, m_v) as
    the sum of W x_v, which is what the encoder makes of the atom's features, and W' m_v:

        m_v = Σ_{u ∈ N(v)} h_uv
        h_v = τ(W x_v + W' m_v + b)

    Args:
        hidden_size: width of `h`, the field of an atom, and of `h_bond`.
        activation: τ: "relu", "tanh", "sigmoid" or "none".
        dropout: probability of dropping an entry of `h`.

    Shape:
        x: [num_nodes_of_type, hidden_size], W x_v
        children: `h_bond` of the bonds that arrive, [num_child_edges, hidden_size]
        returns: {"h": [group_size, hidden_size]}

    Raises:
        ShapeError: if the features are not `hidden_size` wide.
        ConfigError: if `dropout` is not a probability, or there is no such activation.
    """

    reads = ("h_bond",)

    def __init__(self, hidden_size: int, activation: str = "relu", dropout: float = 0.0) -> None:
        super().__init__({"h": hidden_size}, dropout)
        self.from_bonds = nn.Linear(hidden_size, hidden_size)
        self.activation_ = get_activation_(activation)

    def forward(self, x: NodeInput, children: Children) -> State:
        """The state of an atom; its state before, W x_v, is not read."""
        h = self.activation_(self.from_bonds(children.sum("h_bond")).add_(parts(x)["x"]))
        return {"h": self.drop(h, x)}
