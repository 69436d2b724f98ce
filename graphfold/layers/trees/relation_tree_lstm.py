"""RelationTreeLSTMCell: the label of an edge decides what of a child passes, and how."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from graphfold.batching.cell import NodeInput, State
from graphfold.batching.children import Children
from graphfold.dag import Column
from graphfold.errors import ConfigError
from graphfold.layers.encoders.column_encoder import ColumnEncoder
from graphfold.layers.trees.tree_lstm import SumTreeLSTMCell


class RelationTreeLSTMCell(SumTreeLSTMCell):
    """Child-Sum Tree-LSTM whose edges have labels, such as the relations of a dependency tree.

    Equations 2-8 of Tai et al. (2015), https://arxiv.org/abs/1503.00075, with messages m_k in the
    place of the children's h_k in the sum, and a forget gate that knows the relation r of a child:

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
        bases: how many matrices the relations mix; 0 for gates.
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
        """Of each relation the part of the forget gate, and the gate or the mixture."""
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
        """[num_child_edges, hidden_size] what each child sends along its edge."""
        if self.from_child is None:
            return chosen * h
        by_base: Tensor = self.from_child(h).view(-1, self.bases, self.fields["h"])
        return (by_base * chosen.unsqueeze(2)).sum(1)
