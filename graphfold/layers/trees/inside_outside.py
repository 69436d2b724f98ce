"""Inside-outside cells: predict a node from the rest of its tree, without its own features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from graphfold.batching.cell import Cell, NodeInput, State
from graphfold.batching.children import Children
from graphfold.dag import Column
from graphfold.layers.encoders.column_encoder import ColumnEncoder
from graphfold.layers.feature_cell import FeatureCell, add_part, apply_mask
from graphfold.layers.trees.tree_lstm import SumTreeLSTMCell


class LabelCell(Cell):
    """The columns of the edges between a node and its readers, such as the relation to its head.

    For a pass `Down`, before the passes that need the label of the edge above a node:

        l = Σ_edges E(edge)

    Args:
        hidden_size: width of `label`, the field of a node.
        edge_columns: the feature columns of the edges.

    Shape:
        children: the edge columns
        returns: {"label": [group_size, hidden_size]}; zeros for a root

    Raises:
        ConfigError: if the edges have no columns, or one cannot be encoded.
    """

    reads = ()

    def __init__(self, hidden_size: int, edge_columns: Sequence[Column]) -> None:
        super().__init__()
        self.fields = {"label": hidden_size}
        self.encoder = ColumnEncoder(edge_columns, hidden_size)

    def before_edges(self, edge: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """The vector of each kind of edge."""
        return {"label": self.encoder(edge)}

    def forward(self, x: NodeInput, children: Children) -> State:
        """The labels of the nodes."""
        return {"label": children.sum(children.edge["label"])}


class InsideCell(SumTreeLSTMCell):
    """Child-Sum Tree-LSTM that also stores a context without the node's own features.

    The inside representations of Le and Zuidema (2014), https://aclanthology.org/D14-1081, section
    3, with equations 2-8 of Tai et al. (2015), https://arxiv.org/abs/1503.00075, as composition.
    The children send messages, which include their labels l:

        s = Σ_k m_k                          i, o, u from x and s    f_k = σ(W_f x + U_f h_k + b_f)
        c = i ⊙ u + Σ_k f_k ⊙ c_k            h = o ⊙ tanh(c)         m = tanh(W_m h + U_m l + b_m)

    `context` is s. Differences from the papers: any number of children, each with its message;
    dropout of `u`, see `NaryTreeLSTMCell`.

    Args:
        input_size: width of the node features; 0 for nodes without features.
        hidden_size: width of all fields.
        dropout: probability of dropping an entry of `u`.

    Shape:
        x: [group_size, input_size], or what `before` made of it
        children: rows of `h`, `c` and `message`, [num_child_edges, hidden_size] each
        returns: `h`, `c`, `message` and `context`, [group_size, hidden_size] each

    Raises:
        ConfigError: if `dropout` is not a probability.
    """

    reads = ("h", "c", "message")

    def __init__(self, input_size: int, hidden_size: int, dropout: float = 0.0) -> None:
        fields = dict.fromkeys((*self.reads, "context"), hidden_size)
        super().__init__(fields, input_size, hidden_size, dropout)
        self.to_message = nn.Linear(2 * hidden_size, hidden_size)

    def forward(self, x: NodeInput, children: Children) -> State:
        """The state of the nodes."""
        context = children.sum("message")
        state = self.state(context, self.from_h(children.rows("h")), x, children)
        both = torch.cat([state["h"], children.previous("label")], 1)
        return {**state, "message": torch.tanh(self.to_message(both)), "context": context}


class OutsideCell(FeatureCell):
    """The outside of a node: the tree without its subtree; `h` joins it with the `context` below.

    The outside representations of Le and Zuidema (2014), https://aclanthology.org/D14-1081, section
    3, for a pass `Down` after `InsideCell`. A node p sends its children a_p, a summary of its
    outside and of its own features. A child adds the messages of its siblings, the sum of all
    messages without its own, so no feature of a node comes back to it:

        o = tanh(W_a Σ_p a_p + W_s Σ_p (s_p - m) + W_l l + b)    a = tanh(V_o o + V_x x + d)
        h = tanh(U [o, s] + e)

    This holds if every node has at most one reader, as in a tree. Difference from the paper: any
    number of children.

    Args:
        input_size: width of the node features; 0 for nodes without features.
        hidden_size: width of all fields.
        dropout: probability of dropping an entry of `h`.

    Shape:
        x: [group_size, input_size], or what `before` made of it
        children: rows of `around` and `context`, [num_child_edges, hidden_size] each
        returns: {"h": [group_size, hidden_size], "around": [group_size, hidden_size]}

    Raises:
        ConfigError: if `dropout` is not a probability.
    """

    reads = ("around", "context")

    def __init__(self, input_size: int, hidden_size: int, dropout: float = 0.0) -> None:
        fields = {"h": hidden_size, "around": hidden_size}
        super().__init__(fields, input_size, hidden_size, dropout)
        self.outside = nn.Linear(3 * hidden_size, hidden_size)
        self.to_around = nn.Linear(hidden_size, hidden_size)
        self.to_h = nn.Linear(2 * hidden_size, hidden_size)

    def forward(self, x: NodeInput, children: Children) -> State:
        """The state of the nodes."""
        message = children.previous("message")
        count = children.count.to(message.dtype).unsqueeze(1)
        siblings = children.sum("context") - count * message
        above = [children.sum("around"), siblings, children.previous("label")]
        outside = torch.tanh(self.outside(torch.cat(above, 1)))
        around = add_part(self.to_around(outside), x)
        h = torch.tanh(self.to_h(torch.cat([outside, children.previous("context")], 1)))
        return {"h": apply_mask(h, x), "around": torch.tanh(around)}
