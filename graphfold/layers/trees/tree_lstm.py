"""Tree-LSTM cells: for leaves, ordered and unordered children, with attention or edge labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from graphfold.batching.cell import NodeInput, State
from graphfold.batching.children import Children
from graphfold.dag import Column
from graphfold.errors import ConfigError
from graphfold.layers.encoders.column_encoder import ColumnEncoder
from graphfold.layers.feature_cell import FeatureCell, add_part, apply_mask
from graphfold.layers.trees.leaves_and_bags import require_features


class LeafLSTMCell(FeatureCell):
    """The leaf of a Tree-LSTM over constituents, without children and forget gates.

    Equations 9-14 of Tai et al. (2015), https://arxiv.org/abs/1503.00075, without children:

        i = σ(W_i x + b_i)    o = σ(W_o x + b_o)    u = tanh(W_u x + b_u)
        c = i ⊙ u             h = o ⊙ tanh(c)

    Differences from the paper: dropout of `u`, and `own`, see `NaryTreeLSTMCell`.

    Args:
        input_size: width of the node features; they are not read if `own` is given.
        hidden_size: width of `h` and of `c`, the two fields of a node.
        dropout: probability of dropping an entry of `u`.
        own: fields of earlier passes that are x, see `NaryTreeLSTMCell`.

    Shape:
        x: [group_size, input_size], or what `before` made of it
        returns: {"h": [group_size, hidden_size], "c": [group_size, hidden_size]}

    Raises:
        ConfigError: if there are no features, or `dropout` is not a probability.
    """

    arity = 0
    from_x: nn.Linear

    def __init__(
        self, input_size: int, hidden_size: int, dropout: float = 0.0, own: Sequence[str] = ()
    ) -> None:
        require_features(self, input_size or len(own))
        fields, width = {"h": hidden_size, "c": hidden_size}, 3 * hidden_size  # i, o, u
        super().__init__(fields, input_size, width, dropout, own=own, bias=True)

    def forward(self, x: NodeInput, children: Children) -> State:
        """The state of the leaves."""
        x = self.inputs(x, children)
        gate, u = activate(x["x"], self.fields["h"], x)
        i, o = gate.chunk(2, dim=1)
        return new_state(o, i * u)


class NaryTreeLSTMCell(FeatureCell):
    """Tree-LSTM over `arity` ordered children; each has its own weights and forget gate.

    Equations 9-14 of Tai et al. (2015), https://arxiv.org/abs/1503.00075:

        i = σ(W_i x + Σ_l U_il h_l + b_i)      f_k = σ(W_fk x + Σ_l U_fkl h_l + b_fk)
        o = σ(W_o x + Σ_l U_ol h_l + b_o)      u = tanh(W_u x + Σ_l U_ul h_l + b_u)
        c = i ⊙ u + Σ_l f_l ⊙ c_l              h = o ⊙ tanh(c)

    Differences from the paper: the forget gates have their own W_fk and b_fk (the paper shares W_f
    and b_f among the children); nodes may be without features; `u` may be dropped out, the
    recurrent dropout of Semeniuta et al. (2016), https://arxiv.org/abs/1603.05118, which Looks et
    al. (2017), https://arxiv.org/abs/1702.02181, use in their Tree-LSTM.

    In a deep Tree-LSTM, x is the node's own `h` of the pass before: `own=["h"]`.

    Args:
        input_size: width of the node features; 0 for nodes without features.
        hidden_size: width of `h` and of `c`, the two fields of a node.
        arity: the number of children; an absent one reads zeros.
        dropout: probability of dropping an entry of `u`.
        forget_bias: added to the forget gates' bias at the start; a positive one keeps more of the
            children's memory early in training.
        own: fields that earlier passes gave the node, `hidden_size` wide each. Side by side they
            are x, in place of the features; none for the features.

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
        own: Sequence[str] = (),
    ) -> None:
        width = (3 + arity) * hidden_size  # f_1 .. f_arity, i, o, u
        super().__init__({"h": hidden_size, "c": hidden_size}, input_size, width, dropout, own=own)
        self.arity = arity
        self.from_h = nn.Linear(arity * hidden_size, width)
        with torch.no_grad():
            self.from_h.bias[: arity * hidden_size].add_(forget_bias)

    def forward(self, x: NodeInput, children: Children) -> State:
        """The state of the nodes."""
        x, size = self.inputs(x, children), self.fields["h"]
        gates = add_part(self.from_h(children.stack("h").flatten(1)), x)
        gate, u = activate(gates, size, x)
        f, i, o = torch.split(gate, [gate.shape[1] - 2 * size, size, size], dim=1)
        c = children.stack("c")
        return new_state(o, torch.addcmul((f.view_as(c) * c).sum(1), i, u))


class SumTreeLSTMCell(FeatureCell):
    """Base of Tree-LSTMs over unordered children: equations 3-8, from the sum of the children on.

    Args:
        fields: the fields of a node, name -> width; those of a Tree-LSTM come first.
        input_size: width of the node features; 0 for nodes without features.
        hidden_size: width of `h` and of `c`.
        dropout: probability of dropping an entry of `u`.
        forget_bias: added to the forget gate's bias at the start.
        own: fields of earlier passes that are x, see `NaryTreeLSTMCell`.
    """

    def __init__(
        self,
        fields: Mapping[str, int],
        input_size: int,
        hidden_size: int,
        dropout: float,
        forget_bias: float = 0.0,
        own: Sequence[str] = (),
    ) -> None:
        super().__init__(fields, input_size, 4 * hidden_size, dropout, own=own)
        self.from_sum = nn.Linear(hidden_size, 3 * hidden_size)  # i, o, u
        self.from_h = nn.Linear(hidden_size, hidden_size)  # f, once per child
        with torch.no_grad():
            self.from_h.bias.add_(forget_bias)

    def of_x(self, product: Tensor) -> dict[str, Tensor]:
        """The parts of the forget gates of the children, and of the other gates."""
        forget, gates = product.tensor_split([self.dropped], dim=1)
        return {"forget": forget, "gates": gates}

    def state(
        self, total: Tensor, forget: Tensor, x: NodeInput, children: Children, field: str = "c"
    ) -> State:
        """`h` and `c` of the nodes.

        Args:
            total: [group_size, hidden_size] the sum over the children.
            forget: [num_child_edges, hidden_size] their forget gates, without x.
            x: the argument of `forward`.
            children: the argument of `forward`.
            field: the name of the children's `c`.
        """
        x = self.inputs(x, children)
        forget = add_part(forget, x, "forget", children)
        gates = add_part(self.from_sum(total), x, "gates")
        gate, u = activate(gates, self.dropped, x)
        i, o = gate.chunk(2, dim=1)
        memory = children.sum(torch.sigmoid(forget) * children.rows(field))
        return new_state(o, torch.addcmul(memory, i, u))


class ChildSumTreeLSTMCell(SumTreeLSTMCell):
    """Tree-LSTM over any number of unordered children.

    Equations 2-8 of Tai et al. (2015), https://arxiv.org/abs/1503.00075:

        h̃ = Σ_k h_k                           f_k = σ(W_f x + U_f h_k + b_f)
        i = σ(W_i x + U_i h̃ + b_i)            c = i ⊙ u + Σ_k f_k ⊙ c_k
        o = σ(W_o x + U_o h̃ + b_o)            h = o ⊙ tanh(c)
        u = tanh(W_u x + U_u h̃ + b_u)

    On a chain it equals `torch.nn.LSTM`: in the passes `Up("next")` and `Down("next")` over words,
    with a `prefix` for each, it is a bidirectional one. Differences from the paper: nodes may be
    without features; dropout of `u`, and `own`, see `NaryTreeLSTMCell`.

    Args:
        input_size: width of the node features; 0 for nodes without features.
        hidden_size: width of `h` and of `c`, the two fields of a node.
        dropout: probability of dropping an entry of `u`.
        forget_bias: added to the forget gate's bias at the start.
        own: fields of earlier passes that are x, see `NaryTreeLSTMCell`.
        prefix: put before the names of the fields, so that passes in two directions do not share
            them.

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
        own: Sequence[str] = (),
        prefix: str = "",
    ) -> None:
        self.h, self.c = f"{prefix}h", f"{prefix}c"
        fields = {self.h: hidden_size, self.c: hidden_size}
        super().__init__(fields, input_size, hidden_size, dropout, forget_bias, own)

    def forward(self, x: NodeInput, children: Children) -> State:
        """The state of the nodes."""
        h = children.rows(self.h)
        state = self.state(children.sum(h), self.from_h(h), x, children, self.c)
        return {self.h: state["h"], self.c: state["c"]}


def activate(gates: Tensor, size: int, x: NodeInput) -> tuple[Tensor, Tensor]:
    """The sigmoid of all blocks but the last; `u`, the tanh of the last block, dropped out."""
    gate, u = torch.split(gates, [gates.shape[1] - size, size], dim=1)
    return torch.sigmoid(gate), apply_mask(torch.tanh(u), x)


def new_state(o: Tensor, c: Tensor) -> State:
    """The two fields of a Tree-LSTM."""
    return {"h": o * torch.tanh(c), "c": c}


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
        self, input_size: int, hidden_size: int, dropout: float = 0.0, forget_bias: float = 0.0
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
        """The parts of the blocks of each child (forget gate, key), and of the other gates."""
        of_children, gates = product.tensor_split([2 * self.fields["h"]], dim=1)
        return {"of_children": of_children, "gates": gates}

    def forward(self, x: NodeInput, children: Children) -> State:
        """The state of the nodes."""
        h = children.rows("h")
        forget, key = add_part(self.from_h(h), x, "of_children", children).chunk(2, dim=1)
        mean = children.attend(h, self.score(torch.tanh(key)))
        gates = add_part(self.from_sum(torch.tanh(self.from_mean(mean))), x, "gates")
        gate, u = activate(gates, self.fields["h"], x)
        i, o = gate.chunk(2, dim=1)
        memory = children.sum(torch.sigmoid(forget) * children.rows("c"))
        return new_state(o, torch.addcmul(memory, i, u))


class RelationTreeLSTMCell(SumTreeLSTMCell):
    """Child-Sum Tree-LSTM over edges with labels, such as the relations of a dependency tree.

    Equations 2-8 of Tai et al. (2015), https://arxiv.org/abs/1503.00075, with messages m_k in the
    place of the children's h_k in the sum, and a forget gate that reads the relation r of a child:

        h̃ = Σ_k m_k    f_k = σ(W_f x + U_f h_k + v_r + b_f)    i, o, u as there, from h̃

    With `bases=0` the relation is a gate, after the relation gates of Kleenankandy and Abdul Nazeer
    (2020), https://arxiv.org/abs/2002.07775; here it depends on the relation alone:

        m_k = σ(g_r) ⊙ h_k

    With `bases=B` it chooses a matrix, as in Miwa and Bansal (2016),
    https://arxiv.org/abs/1601.00770, section 3.3. All matrices are mixtures of B common ones,
    equation 3 of Schlichtkrull et al. (2018), https://arxiv.org/abs/1703.06103, so rare relations
    share what frequent ones learn. As many bases as relations make them independent.

        m_k = Σ_b a_rb V_b h_k

    Args:
        input_size: width of the node features; 0 for nodes without features.
        hidden_size: width of `h` and of `c`, the two fields of a node.
        edge_columns: the feature columns of the edges.
        bases: the number of matrices that the relations mix; 0 for gates.
        dropout: probability of dropping an entry of `u`.
        forget_bias: added to the forget gate's bias at the start.

    Shape:
        x: [group_size, input_size], or what `before` made of it
        children: rows of `h` and `c`, [num_child_edges, hidden_size] each, and the edge columns
        returns: {"h": [group_size, hidden_size], "c": [group_size, hidden_size]}

    Raises:
        ConfigError: if the edges have no columns or one cannot be encoded, `bases` is negative, or
            `dropout` is not a probability.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        edge_columns: Sequence[Column],
        bases: int = 0,
        dropout: float = 0.0,
        forget_bias: float = 0.0,
    ) -> None:
        if bases < 0:
            raise ConfigError(f"bases={bases} is no number of matrices. Use 0 for gates, or more.")
        if not edge_columns:
            raise ConfigError(
                "RelationTreeLSTMCell reads the relation of each child, but the inputs of these "
                "data have no columns. Read them (CoNLL-U: data.tree=heads, another target than "
                "deprel), or use ChildSumTreeLSTMCell (model=child_sum_tree_lstm)."
            )
        fields = {"h": hidden_size, "c": hidden_size}
        super().__init__(fields, input_size, hidden_size, dropout, forget_bias)
        self.bases = bases
        self.from_child = nn.Linear(hidden_size, bases * hidden_size, bias=False) if bases else None
        self.relation = ColumnEncoder(edge_columns, hidden_size + (bases or hidden_size))

    def before_edges(self, edge: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """For each relation its part of the forget gate, and its gate or its mixture of bases."""
        encoded: Tensor = self.relation(edge)
        forget, chosen = encoded.tensor_split([self.fields["h"]], dim=1)
        if self.bases:  # at first all relations have the same matrix, as large as one of the bases
            return {"forget": forget, "chosen": chosen + self.bases**-0.5}
        return {"forget": forget, "chosen": torch.sigmoid(chosen)}

    def forward(self, x: NodeInput, children: Children) -> State:
        """The state of the nodes."""
        h = children.rows("h")
        total = children.sum(self._messages(h, children.edge["chosen"]))
        return self.state(total, self.from_h(h) + children.edge["forget"], x, children)

    def _messages(self, h: Tensor, chosen: Tensor) -> Tensor:
        """[num_child_edges, hidden_size] the message of each child."""
        if self.from_child is None:
            return chosen * h
        by_base: Tensor = self.from_child(h).view(-1, self.bases, self.fields["h"])
        return (by_base * chosen.unsqueeze(2)).sum(1)
