"""Graph isomorphism networks, without and with edge features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from graphfold.batching.cell import NodeInput, State
from graphfold.batching.children import Children
from graphfold.dag import Column
from graphfold.layers.encoders.column_encoder import ColumnEncoder
from graphfold.layers.molecules.message_passing import AfterConvolution, Convolution


class GINCell(Convolution):
    """One round of a graph isomorphism network, for `Rounds`.

    Equation 4.1 of Xu et al. (2019), https://arxiv.org/abs/1810.00826, with a two-layer MLP:

        h_v' = activation(MLP((1 + ε) h_v + Σ_{u ∈ N(v)} h_u))

    Before the first round h is the features, unless an earlier pass computed it.

    Args:
        hidden_size: width of `h`, the field of a node, and of the MLP's hidden layer.
        activation: of the new `h`: "relu", "tanh", "sigmoid" or "none".
        dropout: probability of dropping an entry of the new `h`, drawn anew in every round.
        norm: normalisation inside the MLP: "batch", as in the paper, "layer" or None.
        learn_epsilon: whether ε is learned (GIN-ε in the paper) or stays 0 (GIN-0).
        residual: whether to add the old `h` to the new one.
        jumping: "sum" or "max" of the states of all rounds as the field `jump`; None for none.

    Shape:
        x: [num_nodes_of_type, hidden_size] if it is the state before the first round
        children: `h` of the neighbours, [num_child_edges, hidden_size]
        returns: {"h": [group_size, hidden_size]}, and `jump` like it if asked for

    Raises:
        ShapeError: if rounds start from features that are not `hidden_size` wide.
        ConfigError: if `dropout` is not a probability, or there is no such activation.
    """

    def __init__(
        self,
        hidden_size: int,
        activation: str = "relu",
        dropout: float = 0.0,
        norm: str | None = None,
        learn_epsilon: bool = False,
        residual: bool = False,
        jumping: str | None = None,
    ) -> None:
        super().__init__({"h": hidden_size}, dropout, residual, jumping)
        self.update = GINUpdate(hidden_size, activation, norm, learn_epsilon)

    def forward(self, x: NodeInput, children: Children) -> State:
        """The state after one more round."""
        h = self.update(self.update.own() * children.previous("h") + children.sum("h"))
        return self.finish(h, x, children)


class GINECell(Convolution):
    """One round of a graph isomorphism network that reads edge features, for `Rounds`.

    Hu et al. (2020), https://arxiv.org/abs/1905.12265, in the form of PyTorch Geometric's
    `GINEConv`, with e_uv the encoded columns of the edge:

        h_v' = activation(MLP((1 + ε) h_v + Σ_{u ∈ N(v)} relu(h_u + e_uv)))

    Args:
        hidden_size: width of `h`, the field of a node, and of the MLP's hidden layer.
        edge_columns: the feature columns of the relation's edges.
        activation: of the new `h`: "relu", "tanh", "sigmoid" or "none".
        dropout: probability of dropping an entry of the new `h`, drawn anew in every round.
        norm: normalisation inside the MLP: "batch", "layer" or None.
        learn_epsilon: whether ε is learned or stays 0.
        residual: whether to add the old `h` to the new one.
        jumping: "sum" or "max" of the states of all rounds as the field `jump`; None for none.

    Shape:
        x: [num_nodes_of_type, hidden_size] if it is the state before the first round
        children: `h` of the neighbours, [num_child_edges, hidden_size], and the edge columns
        returns: {"h": [group_size, hidden_size]}, and `jump` like it if asked for

    Raises:
        ShapeError: if rounds start from features that are not `hidden_size` wide.
        ConfigError: if there are no edge columns or one cannot be encoded, `dropout` is not a
            probability, or there is no such activation.
    """

    def __init__(
        self,
        hidden_size: int,
        edge_columns: Sequence[Column],
        activation: str = "relu",
        dropout: float = 0.0,
        norm: str | None = None,
        learn_epsilon: bool = False,
        residual: bool = False,
        jumping: str | None = None,
    ) -> None:
        super().__init__({"h": hidden_size}, dropout, residual, jumping)
        self.edge_encoder = ColumnEncoder(edge_columns, hidden_size)
        self.update = GINUpdate(hidden_size, activation, norm, learn_epsilon)

    def before_edges(self, edge: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """The encoded columns, once for each kind of edge."""
        return {"bond": self.edge_encoder(edge)}

    def forward(self, x: NodeInput, children: Children) -> State:
        """The state after one more round."""
        messages = torch.relu_(children.rows("h") + children.edge["bond"])
        own = self.update.own() * children.previous("h")
        return self.finish(self.update(own + children.sum(messages)), x, children)


class GINUpdate(nn.Module):
    """activation(MLP(total)), what both networks do with (1 + ε) h + the sum of messages."""

    def __init__(self, size: int, activation: str, norm: str | None, learn_epsilon: bool) -> None:
        super().__init__()
        self.inner = nn.Linear(size, size)
        self.between = AfterConvolution(size, "relu", norm)
        self.outer = nn.Linear(size, size)
        self.last = AfterConvolution(size, activation, norm=None)
        self.epsilon = nn.Parameter(torch.zeros(1)) if learn_epsilon else None

    def own(self) -> Tensor | float:
        """1 + ε, what the old state is times."""
        return 1.0 if self.epsilon is None else 1 + self.epsilon

    def forward(self, total: Tensor) -> Tensor:
        """[num_rows, size] the new state."""
        new: Tensor = self.last(self.outer(self.between(self.inner(total))))
        return new
