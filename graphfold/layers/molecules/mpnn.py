"""Message passing with features of edges: D-MPNN, MPNN, GGNN, and Weave with pairs of atoms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from graphfold.batching.cell import NodeInput, State
from graphfold.batching.children import Children
from graphfold.dag import Column
from graphfold.errors import ConfigError, did_you_mean
from graphfold.layers.activation import get_activation
from graphfold.layers.encoders.column_encoder import ColumnEncoder, parts
from graphfold.layers.molecules.message_passing import Convolution, RecurrentConvolution


class DMPNNBondCell(Convolution):
    """One round of messages along directed bonds, for `Rounds("continues", depth - 1)`.

    Equations 2-4 of Yang et al. (2019), https://arxiv.org/abs/1904.01561, for the bond from v to w:

        h⁰_vw = τ(W_i cat(x_v, e_vw))
        m_vw = Σ_{u ∈ N(v) \\ w} h_uv
        h_vw' = τ(h⁰_vw + W_m m_vw)

    W_i cat(x_v, e_vw) comes from the encoder of the bond's features, which include those of the
    atom v. Differences from the paper: as in the authors' program (chemprop), the added h⁰_vw is
    the one before τ, and a bias is an option.

    Args:
        hidden_size: width of `h_bond`, the field of a bond.
        activation: τ: "relu", "tanh", "sigmoid" or "none".
        dropout: probability of dropping an entry of the new `h_bond`, with new masks every round.
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
        self, hidden_size: int, activation: str = "relu", dropout: float = 0.0, bias: bool = False
    ) -> None:
        super().__init__({"h_bond": hidden_size}, dropout)
        self.message = nn.Linear(hidden_size, hidden_size, bias=bias)
        self.activation = get_activation(activation)
        self.activation_ = get_activation(activation, in_place=True)

    def initial(self, x: NodeInput) -> State:
        """The state of a bond before the first round."""
        return {"h_bond": self.activation(self.first(x))}

    def forward(self, x: NodeInput, children: Children) -> State:
        """The state after one more round."""
        h = self.activation_(self.message(children.sum("h_bond")).add_(parts(x)["x"]))
        return {"h_bond": self.drop(h, x)}


class DMPNNAtomCell(Convolution):
    """The state of an atom, from the bonds that arrive there, for `Rounds("arrives", 1)`.

    Equations 5-6 of Yang et al. (2019), https://arxiv.org/abs/1904.01561, with W_a cat(x_v, m_v) as
    the sum of W x_v, which comes from the encoder of the atom's features, and W' m_v:

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
        self.activation_ = get_activation(activation, in_place=True)

    def forward(self, x: NodeInput, children: Children) -> State:
        """The state of an atom; its state before, W x_v, is not read."""
        h = self.activation_(self.from_bonds(children.sum("h_bond")).add_(parts(x)["x"]))
        return {"h": self.drop(h, x)}


class MPNNCell(RecurrentConvolution):
    """One round of message passing with an edge network, for `Rounds` with shared weights.

    The final model of Gilmer et al. (2017), https://arxiv.org/abs/1704.01212: the messages of their
    section 5.1 and the update of Li et al. (2016). A network of two layers computes the matrix A of
    each edge from its columns. `Set2SetReadout` is the readout of the paper.

        m_v = Σ_{u ∈ N(v)} A(e_uv) h_u
        h_v' = GRU(m_v, h_v)

    A is computed once for each kind of edge, not for each edge. Differences from the paper: dropout
    and jumping as options; distances are columns like others.

    Args:
        hidden_size: width of `h`, the field of a node.
        edge_columns: the feature columns of the relation's edges.
        edge_hidden_size: width of the hidden layer of the edge network.
        dropout: probability of dropping an entry of the new `h`, with a new mask in every round.
        jumping: "sum" or "max" of the states of all rounds as the field `jump`; None for none.

    Shape:
        x: [num_nodes_of_type, hidden_size] if it is the state before the first round
        children: `h` of the neighbours, [num_child_edges, hidden_size], and the edge columns
        returns: {"h": [group_size, hidden_size]}, and with `jumping` the field `jump`

    Raises:
        ShapeError: if rounds start from features that are not `hidden_size` wide.
        ConfigError: if there are no edge columns or one cannot be encoded, `dropout` is not a
            probability, or there is no such way of jumping.
    """

    def __init__(
        self,
        hidden_size: int,
        edge_columns: Sequence[Column],
        edge_hidden_size: int = 64,
        dropout: float = 0.0,
        jumping: str | None = None,
    ) -> None:
        super().__init__(hidden_size, dropout, jumping)
        self.edge_encoder = ColumnEncoder(edge_columns, edge_hidden_size)
        self.edge_bias = nn.Parameter(torch.zeros(edge_hidden_size))
        self.matrix = nn.Linear(edge_hidden_size, hidden_size * hidden_size)

    def before_edges(self, edge: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """The matrix of each kind of bond, row by row."""
        hidden = torch.relu(self.edge_encoder(edge) + self.edge_bias)
        return {"matrix": self.matrix(hidden)}

    def forward(self, x: NodeInput, children: Children) -> State:
        """The state after one more round."""
        rows = children.rows("h").unsqueeze(1)
        matrices = children.edge["matrix"].view(-1, self.width, self.width)
        return self.update(children.sum((matrices * rows).sum(2)), x, children)


class GGNNCell(RecurrentConvolution):
    """One round of a gated graph neural network, for `Rounds` with shared weights.

    Equations 2-6 of Li et al. (2016), https://arxiv.org/abs/1511.05493, with a weight W_k for each
    kind k of edges, such as the orders of bonds:

        m_v = Σ_{u ∈ N(v)} W_{kind(u, v)} h_u + b
        h_v' = GRU(m_v, h_v)

    The neighbours of each kind are added up first, so that a node needs one product. With
    one kind it equals PyTorch Geometric's `GatedGraphConv`. Differences from the paper: both
    directions of an edge have one weight; the bias is one for all kinds; dropout and jumping as
    options.

    Args:
        hidden_size: width of `h`, the field of a node.
        edge_columns: the feature columns of the relation's edges.
        kind: the column of codes with the kinds of edges, a missing code among them; None for the
            first column of codes.
        dropout: probability of dropping an entry of the new `h`, with a new mask in every round.
        jumping: "sum" or "max" of the states of all rounds as the field `jump`; None for none.

    Shape:
        x: [num_nodes_of_type, hidden_size] if it is the state before the first round
        children: `h` of the neighbours, [num_child_edges, hidden_size], and the edge columns
        returns: {"h": [group_size, hidden_size]}, and with `jumping` the field `jump`

    Raises:
        ShapeError: if rounds start from features that are not `hidden_size` wide.
        ConfigError: if there is no such column of codes, `dropout` is not a probability, or there
            is no such way of jumping.
    """

    def __init__(
        self,
        hidden_size: int,
        edge_columns: Sequence[Column],
        kind: str | None = None,
        dropout: float = 0.0,
        jumping: str | None = None,
    ) -> None:
        super().__init__(hidden_size, dropout, jumping)
        column = _choose(edge_columns, kind)
        self.kind, self.num_kinds = column.name, (column.size or 0) + 1
        self.message = nn.Linear(self.num_kinds * hidden_size, hidden_size)

    def before_edges(self, edge: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """One-hot kinds of the bonds; the last kind is a missing code."""
        code = edge[self.kind].long()
        code = torch.where(code < 0, self.num_kinds - 1, code)
        kinds = torch.arange(self.num_kinds, device=code.device)
        return {"kind": (code.unsqueeze(1) == kinds).to(self.message.weight.dtype)}

    def forward(self, x: NodeInput, children: Children) -> State:
        """The state after one more round."""
        by_kind = children.edge["kind"].unsqueeze(2) * children.rows("h").unsqueeze(1)
        return self.update(self.message(children.sum(by_kind.flatten(1))), x, children)


def _choose(columns: Sequence[Column], kind: str | None) -> Column:
    """The column of codes called `kind`; None for the first one."""
    codes = {column.name: column for column in columns if column.size is not None}
    if kind is None and codes:
        return next(iter(codes.values()))
    if kind is None or kind not in codes:
        name = "." if kind is None else f" '{kind}'.{did_you_mean(kind, codes)}"
        raise ConfigError(
            f"GGNNCell needs a column of codes that tells the kinds of edges{name} The "
            f"columns of codes are: {', '.join(codes) or 'none'}."
        )
    return codes[kind]


class WeaveAtomCell(Convolution):
    """The state of an atom after one more weave, for `Rounds("weave", ...)`.

    Kearnes et al. (2016), https://arxiv.org/abs/1603.00856, section 2.3, the first two operations,
    with P(v) the pairs that v is in:

        h_v' = relu(W (relu(A h_v + a) ‖ Σ_{p ∈ P(v)} relu(B h_p + b)) + c)

    Differences from the paper: no batch normalisation; dropout as an option. `NodePairs` adds the
    pairs. It runs in the same rounds as `WeavePairCell`.

    Args:
        hidden_size: width of `h`, the field of atoms and of pairs.
        dropout: probability of dropping an entry of the new `h`, with a new mask in every round.

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
        dropout: probability of dropping an entry of the new `h`, with a new mask in every round.

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
