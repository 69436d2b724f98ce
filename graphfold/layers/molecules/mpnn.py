"""MPNNCell: message passing through a network of the edge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from graphfold.batching.cell import NodeInput, State
from graphfold.batching.children import Children
from graphfold.dag import Column
from graphfold.layers.encoders.column_encoder import ColumnEncoder
from graphfold.layers.molecules.recurrent import RecurrentConvolution


class MPNNCell(RecurrentConvolution):
    """One round of message passing with an edge network, for `Rounds` of one weight for all.

    The model with which Gilmer et al. (2017), https://arxiv.org/abs/1704.01212, end: the messages
    of their section 5.1 and the update of Li et al. (2016), with A a matrix for each edge that a
    network of two layers makes of its columns. `Set2SetReadout` is the readout of the paper.

        m_v = Σ_{u ∈ N(v)} A(e_uv) h_u
        h_v' = GRU(m_v, h_v)

    A is made once for each kind of edge, not for each edge. Differences from the paper: dropout and
    jumping as options; distances are columns like others.

    Args:
        hidden_size: width of `h`, the field of a node.
        edge_columns: the feature columns of the relation's edges.
        edge_hidden_size: width of the hidden layer of the edge network.
        dropout: probability of dropping an entry of the new `h`, drawn anew in every round.
        jumping: "sum" or "max" of the states of all rounds as the field `jump`; None for none.

    Shape:
        x: [num_nodes_of_type, hidden_size] if it is the state before the first round
        children: `h` of the neighbours, [num_child_edges, hidden_size], and the edge columns
        returns: {"h": [group_size, hidden_size]}, and `jump` like it if asked for

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
