"""Tree-LSTM cells: leaves, a fixed number of ordered children, any number of unordered ones."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from graphfold.batching.cell import Cell, NodeInput, State
from graphfold.batching.children import Children
from graphfold.layers.dropout import StateDropout
from graphfold.layers.encoders.node_input import features, parts
from graphfold.layers.trees.leaf import require_features


class LeafLSTMCell(Cell):
    """The leaf of a Tree-LSTM over constituents: no children, so no forget gate.

    Equations 9-14 of Tai et al. (2015), https://arxiv.org/abs/1503.00075, without children:

        i = σ(W_i x + b_i)    o = σ(W_o x + b_o)    u = tanh(W_u x + b_u)
        c = i ⊙ u             h = o ⊙ tanh(c)

    Difference from the paper: dropout of `u`, see `NaryTreeLSTMCell`.

    Args:
        input_size: width of the node features.
        hidden_size: width of `h` and of `c`, the two fields of a node.
        dropout: probability of dropping an entry of `u`.

    Shape:
        x: [group_size, input_size], or what `before` made of it
        returns: {"h": [group_size, hidden_size], "c": [group_size, hidden_size]}

    Raises:
        ConfigError: if there are no features, or `dropout` is not a probability.
    """

    arity = 0

    def __init__(self, input_size: int, hidden_size: int, dropout: float = 0.0) -> None:
        super().__init__()
        require_features(self, input_size)
        self.fields = {"h": hidden_size, "c": hidden_size}
        self.from_x = nn.Linear(input_size, 3 * hidden_size)  # i, o, u
        self.dropout = StateDropout(dropout)

    def before(self, x: NodeInput) -> NodeInput:
        """The products with the features, and the dropout mask."""
        x = features(x)
        return {"gates": self.from_x(x), **self.dropout(x, self.fields["h"])}

    def forward(self, x: NodeInput, children: Children) -> State:
        """The state of the leaves."""
        known = parts(x)
        gate, u = _activate(known["gates"], self.fields["h"], known)
        i, o = gate.chunk(2, dim=1)
        return _state(o, i * u)


class NaryTreeLSTMCell(Cell):
    """Tree-LSTM over `arity` ordered children; each has its own weights and forget gate.

    Equations 9-14 of Tai et al. (2015), https://arxiv.org/abs/1503.00075:

        i = σ(W_i x + Σ_l U_il h_l + b_i)      f_k = σ(W_fk x + Σ_l U_fkl h_l + b_fk)
        o = σ(W_o x + Σ_l U_ol h_l + b_o)      u = tanh(W_u x + Σ_l U_ul h_l + b_u)
        c = i ⊙ u + Σ_l f_l ⊙ c_l              h = o ⊙ tanh(c)

    Differences from the paper: the forget gates have their own W_fk and b_fk (the paper shares W_f
    and b_f among the children); nodes may be without features; `u` may be dropped out, the
    recurrent dropout of Semeniuta et al. (2016), https://arxiv.org/abs/1603.05118, which Looks et
    al. (2017), https://arxiv.org/abs/1702.02181, use in their Tree-LSTM.

    Args:
        input_size: width of the node features; 0 for nodes without features.
        hidden_size: width of `h` and of `c`, the two fields of a node.
        arity: the number of children; an absent one reads zeros.
        dropout: probability of dropping an entry of `u`.
        forget_bias: added to the forget gates' bias at the start; a positive one keeps more of the
            children's memory early in training.

    Shape:
        x: [group_size, input_size], or what `before` made of it
        children: `h` and `c`, [group_size, arity, hidden_size] each
        returns: {"h": [group_size, hidden_size], "c": [group_size, hidden_size]}

    Raises:
        ConfigError: if `dropout` is not a probability.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        arity: int = 2,
        dropout: float = 0.0,
        forget_bias: float = 0.0,
    ) -> None:
        super().__init__()
        self.fields = {"h": hidden_size, "c": hidden_size}
        self.arity = arity
        width = (3 + arity) * hidden_size  # f_1 .. f_arity, i, o, u
        self.from_x = nn.Linear(input_size, width, bias=False) if input_size else None
        self.from_h = nn.Linear(arity * hidden_size, width)
        self.dropout = StateDropout(dropout)
        with torch.no_grad():
            self.from_h.bias[: arity * hidden_size].add_(forget_bias)

    def before(self, x: NodeInput) -> NodeInput:
        """The products with the features, if there are any, and the dropout mask."""
        x = features(x)
        known: dict[str, Tensor] = self.dropout(x, self.fields["h"])
        return known if self.from_x is None else {"gates": self.from_x(x), **known}

    def forward(self, x: NodeInput, children: Children) -> State:
        """The state of the nodes."""
        known = parts(x)
        size = self.fields["h"]
        gates: Tensor = self.from_h(children.stack("h").flatten(1))
        if "gates" in known:
            gates = gates + known["gates"]
        gate, u = _activate(gates, size, known)
        f, i, o = torch.split(gate, [gate.shape[1] - 2 * size, size, size], dim=1)
        c = children.stack("c")
        kept = (f.view_as(c) * c).sum(1)
        return _state(o, torch.addcmul(kept, i, u))


class ChildSumTreeLSTMCell(Cell):
    """Tree-LSTM over any number of unordered children.

    Equations 2-8 of Tai et al. (2015), https://arxiv.org/abs/1503.00075:

        h̃ = Σ_k h_k                           f_k = σ(W_f x + U_f h_k + b_f)
        i = σ(W_i x + U_i h̃ + b_i)            c = i ⊙ u + Σ_k f_k ⊙ c_k
        o = σ(W_o x + U_o h̃ + b_o)            h = o ⊙ tanh(c)
        u = tanh(W_u x + U_u h̃ + b_u)

    On a chain it equals `torch.nn.LSTM`. Differences from the paper: nodes may be without features;
    dropout of `u`, see `NaryTreeLSTMCell`.

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
        super().__init__()
        self.fields = {"h": hidden_size, "c": hidden_size}
        self.from_x = nn.Linear(input_size, 4 * hidden_size, bias=False) if input_size else None
        self.from_sum = nn.Linear(hidden_size, 3 * hidden_size)  # i, o, u
        self.from_h = nn.Linear(hidden_size, hidden_size)  # f, once per child
        self.dropout = StateDropout(dropout)
        with torch.no_grad():
            self.from_h.bias.add_(forget_bias)

    def before(self, x: NodeInput) -> NodeInput:
        """The products with the features, if there are any, and the dropout mask."""
        x = features(x)
        size = self.fields["h"]
        known: dict[str, Tensor] = self.dropout(x, size)
        if self.from_x is None:
            return known
        forget, gates = torch.split(self.from_x(x), [size, 3 * size], dim=1)
        return {"forget": forget, "gates": gates, **known}

    def forward(self, x: NodeInput, children: Children) -> State:
        """The state of the nodes."""
        known = parts(x)
        h = children.rows("h")
        gates: Tensor = self.from_sum(children.sum(h))
        forget: Tensor = self.from_h(h)
        if "gates" in known:
            gates = gates + known["gates"]
            forget = forget + children.expand(known["forget"])
        gate, u = _activate(gates, self.fields["h"], known)
        i, o = gate.chunk(2, dim=1)
        kept = children.sum(torch.sigmoid(forget) * children.rows("c"))
        return _state(o, torch.addcmul(kept, i, u))


def _activate(gates: Tensor, size: int, known: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
    """All gates but the last block in one tensor, and `u`, the last block, dropped out."""
    gate, u = torch.split(gates, [gates.shape[1] - size, size], dim=1)
    u = torch.tanh(u)
    return torch.sigmoid(gate), u * known["mask"] if "mask" in known else u


def _state(o: Tensor, c: Tensor) -> State:
    return {"h": o * torch.tanh(c), "c": c}
