"""TreeGRUCell: a gated recurrent unit over any number of children."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from graphfold.batching.cell import NodeInput, State
from graphfold.batching.children import Children
from graphfold.layers.encoders.node_input import parts
from graphfold.layers.feature_cell import FeatureCell, add_known, drop_known


class TreeGRUCell(FeatureCell):
    """Tree-GRU over any number of unordered children, with a reset gate for each.

    The unit of Cho et al. (2014), https://arxiv.org/abs/1406.1078, equations 5-8, with sums over
    children in the place of the previous state, as Tai et al. (2015) do for the LSTM; such units
    encode sentences in Zhou et al. (2016), https://aclanthology.org/C16-1274:

        h̃ = Σ_k h_k                           r_k = σ(W_r x + U_r h_k + b_r)
        z = σ(W_z x + U_z h̃ + b_z)            u = tanh(W_u x + U_u Σ_k r_k ⊙ h_k + b_u)
        h = z ⊙ h̃ + (1 - z) ⊙ u

    Differences from the papers: nodes may be without features; `u` may be dropped out (Semeniuta et
    al. 2016, https://arxiv.org/abs/1603.05118).

    Args:
        input_size: width of the node features; 0 for nodes without features.
        hidden_size: width of `h`, the field of a node.
        dropout: probability of dropping an entry of `u`.

    Shape:
        x: [group_size, input_size], or what `before` made of it
        children: rows of `h`, [num_child_edges, hidden_size]
        returns: {"h": [group_size, hidden_size]}

    Raises:
        ConfigError: if `dropout` is not a probability.
    """

    def __init__(self, input_size: int, hidden_size: int, dropout: float = 0.0) -> None:
        super().__init__({"h": hidden_size}, input_size, 3 * hidden_size, dropout)
        self.reset = nn.Linear(hidden_size, hidden_size)
        self.update = nn.Linear(hidden_size, hidden_size)
        self.candidate = nn.Linear(hidden_size, hidden_size)

    def of_x(self, product: Tensor) -> dict[str, Tensor]:
        """The parts of the two gates and of the candidate."""
        names = ("reset", "update", "candidate")
        return dict(zip(names, product.chunk(3, dim=1), strict=True))

    def forward(self, x: NodeInput, children: Children) -> State:
        """The state of the nodes."""
        known = parts(x)
        h = children.rows("h")
        total = children.sum(h)
        reset, update = self.reset(h), add_known(self.update(total), known, "update")
        if "reset" in known:
            reset = reset + children.expand(known["reset"])
        candidate = self.candidate(children.sum(torch.sigmoid(reset) * h))
        u = drop_known(torch.tanh(add_known(candidate, known, "candidate")), known)
        z = torch.sigmoid(update)
        return {"h": z * total + (1 - z) * u}
