"""MV-RNN cells: every node has a vector, its meaning, and a matrix, what it does to others."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from graphfold.batching.cell import Cell, NodeInput, State
from graphfold.batching.children import Children
from graphfold.layers.encoders.node_input import features, parts
from graphfold.layers.feature_cell import FeatureCell, drop_known
from graphfold.layers.trees.leaf import require_features


class MVLeafCell(Cell):
    """A word of an MV-RNN: a vector, and a matrix of low rank beside its diagonal.

    Socher et al. (2012), https://aclanthology.org/D12-1110, section 2.4 (low-rank matrices):

        h = a    M = U V + diag(s)

    Difference from the paper: a, U, V and s are linear maps of the word's features; in the paper
    each word has its own. s is one at first, so M is near the identity, as in the paper.

    Args:
        input_size: width of the node features.
        hidden_size: width of `h`; the field `m` holds the matrix, row after row.
        rank: the columns of U; 3 in the paper.

    Shape:
        x: [group_size, input_size], or what `before` made of it
        returns: {"h": [group_size, hidden_size], "m": [group_size, hidden_size²]}

    Raises:
        ConfigError: if there are no features.
    """

    arity = 0
    eye: Tensor

    def __init__(self, input_size: int, hidden_size: int, rank: int = 3) -> None:
        super().__init__()
        require_features(self, input_size)
        self.fields = {"h": hidden_size, "m": hidden_size * hidden_size}
        self.rank = rank
        self.from_x = nn.Linear(input_size, (2 + 2 * rank) * hidden_size)  # s, a, U, V
        self.register_buffer("eye", torch.eye(hidden_size), persistent=False)
        with torch.no_grad():
            self.from_x.bias[:hidden_size] = 1.0

    def before(self, x: NodeInput) -> NodeInput:
        """The vectors and the matrices; a leaf has nothing to wait for."""
        size, low = self.fields["h"], self.rank * self.fields["h"]
        s, a, u, v = torch.split(self.from_x(features(x)), [size, size, low, low], dim=1)
        product = torch.bmm(u.view(-1, size, self.rank), v.view(-1, self.rank, size))
        return {"h": a, "m": (product + s.unsqueeze(2) * self.eye).flatten(1)}

    def forward(self, x: NodeInput, children: Children) -> State:
        """The state of the leaves."""
        known = parts(x)
        return {"h": known["h"], "m": known["m"]}


class MVRNNCell(FeatureCell):
    """Matrix-vector recursive network: each child's matrix acts on the other child's vector.

    Socher et al. (2012), https://aclanthology.org/D12-1110, equations 2 and 3, for children (a, A)
    and (b, B):

        h = tanh(W [B a; A b] + b_W)    M = W_M [A; B]

    Difference from the paper: `h` may be dropped out. The matrices of phrases are full, as there.

    Args:
        hidden_size: width of `h`; the field `m` holds the matrix, row after row.
        dropout: probability of dropping an entry of `h`.

    Shape:
        children: `h` and `m`, [group_size, 2, hidden_size] and [group_size, 2, hidden_size²]
        returns: {"h": [group_size, hidden_size], "m": [group_size, hidden_size²]}

    Raises:
        ConfigError: if `dropout` is not a probability.
    """

    arity = 2

    def __init__(self, hidden_size: int, dropout: float = 0.0) -> None:
        fields = {"h": hidden_size, "m": hidden_size * hidden_size}
        super().__init__(fields, dropout=dropout)
        self.from_h = nn.Linear(2 * hidden_size, hidden_size)
        self.from_m = nn.Linear(2 * hidden_size, hidden_size, bias=False)

    def forward(self, x: NodeInput, children: Children) -> State:
        """The state of the nodes."""
        known, size = parts(x), self.fields["h"]
        h, m = children.stack("h"), children.stack("m").view(-1, 2, size, size)
        ba = (m[:, 1] * h[:, 0].unsqueeze(1)).sum(2)
        ab = (m[:, 0] * h[:, 1].unsqueeze(1)).sum(2)
        p = torch.tanh(self.from_h(torch.cat([ba, ab], 1)))
        # Column by column, each a product of all nodes with the one matrix W_M.
        columns = [self.from_m(column) for column in m.flatten(1, 2).unbind(2)]
        matrix = torch.stack(columns, 2).flatten(1)
        return {"h": drop_known(p, known), "m": matrix}
