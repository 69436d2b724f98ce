"""Graph convolutions: GCN, isomorphism networks (GIN, GINE), neighbourhood aggregation (PNA)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from graphfold.batching.cell import NodeInput, State
from graphfold.batching.children import Children
from graphfold.dag import Column
from graphfold.errors import ConfigError
from graphfold.layers.encoders.column_encoder import ColumnEncoder
from graphfold.layers.molecules.message_passing import AfterConvolution, Convolution, has_bias


class GCNCell(Convolution):
    """One round of graph convolution, for `Rounds`.

    Equation 2 of Kipf & Welling (2017), https://arxiv.org/abs/1609.02907, for one node, with d̃ the
    number of neighbours plus one:

        h_v' = activation(W Σ_{u ∈ N(v) ∪ {v}} h_u / √(d̃_u d̃_v) + b)

    Self-loops of the data are ignored, as in PyTorch Geometric.
    Before the first round h is the features, unless an earlier pass computed it. Differences from
    the paper: a bias, but for batch normalisation; normalisation and a residual connection,
    h_v + h_v', as options.

    Args:
        hidden_size: width of `h`, the field of a node.
        activation: "relu", "tanh", "sigmoid" or "none".
        dropout: probability of dropping an entry of the new `h`, with a new mask in every round.
        norm: "batch" or "layer" normalisation before the activation; None for none.
        residual: whether to add the old `h` to the new one.
        jumping: "sum" or "max" of the states of all rounds as the field `jump`; None for none.

    Shape:
        x: [num_nodes_of_type, hidden_size] if it is the state before the first round
        children: `h` of the neighbours, [num_child_edges, hidden_size]
        returns: {"h": [group_size, hidden_size]}, and with `jumping` the field `jump`

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
        residual: bool = False,
        jumping: str | None = None,
    ) -> None:
        super().__init__({"h": hidden_size}, dropout, residual, jumping)
        self.linear = nn.Linear(hidden_size, hidden_size, bias=has_bias(norm))
        self.after_convolution = AfterConvolution(hidden_size, activation, norm)

    def forward(self, x: NodeInput, children: Children) -> State:
        """The state after one more round."""
        is_other = (1 - children.is_self).to(self.linear.weight.dtype)
        own = _norm(children.sum(is_other.unsqueeze(1)).squeeze(1), is_other)
        weight = _norm(children.child_count, own) * children.expand(own) * is_other
        total = children.sum("h", weight, own.square())
        return self.finish(self.after_convolution(self.linear(total), x), x, children)


def _norm(count: Tensor, like: Tensor) -> Tensor:
    """1 / √(neighbours + 1)."""
    return (count + 1).to(like.dtype).rsqrt()


class GINCell(Convolution):
    """One round of a graph isomorphism network, for `Rounds`.

    Equation 4.1 of Xu et al. (2019), https://arxiv.org/abs/1810.00826, with a two-layer MLP:

        h_v' = activation(MLP((1 + ε) h_v + Σ_{u ∈ N(v)} h_u))

    Before the first round h is the features, unless an earlier pass computed it.

    Args:
        hidden_size: width of `h`, the field of a node, and of the MLP's hidden layer.
        activation: of the new `h`: "relu", "tanh", "sigmoid" or "none".
        dropout: probability of dropping an entry of the new `h`, with a new mask in every round.
        norm: normalisation inside the MLP: "batch", as in the paper, "layer" or None.
        learn_epsilon: whether ε is learned (GIN-ε in the paper) or stays 0 (GIN-0).
        residual: whether to add the old `h` to the new one.
        jumping: "sum" or "max" of the states of all rounds as the field `jump`; None for none.

    Shape:
        x: [num_nodes_of_type, hidden_size] if it is the state before the first round
        children: `h` of the neighbours, [num_child_edges, hidden_size]
        returns: {"h": [group_size, hidden_size]}, and with `jumping` the field `jump`

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
        h = self.update(self.update.own() * children.previous("h") + children.sum("h"), x)
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
        dropout: probability of dropping an entry of the new `h`, with a new mask in every round.
        norm: normalisation inside the MLP: "batch", "layer" or None.
        learn_epsilon: whether ε is learned or stays 0.
        residual: whether to add the old `h` to the new one.
        jumping: "sum" or "max" of the states of all rounds as the field `jump`; None for none.

    Shape:
        x: [num_nodes_of_type, hidden_size] if it is the state before the first round
        children: `h` of the neighbours, [num_child_edges, hidden_size], and the edge columns
        returns: {"h": [group_size, hidden_size]}, and with `jumping` the field `jump`

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
        return self.finish(self.update(own + children.sum(messages), x), x, children)


class GINUpdate(nn.Module):
    """activation(MLP(total)), the update of both networks, of (1 + ε) h + the sum of messages."""

    def __init__(self, size: int, activation: str, norm: str | None, learn_epsilon: bool) -> None:
        super().__init__()
        self.inner = nn.Linear(size, size, bias=has_bias(norm))
        self.between = AfterConvolution(size, "relu", norm)
        self.outer = nn.Linear(size, size)
        self.last = AfterConvolution(size, activation, norm=None)
        self.epsilon = nn.Parameter(torch.zeros(1)) if learn_epsilon else None

    def own(self) -> Tensor | float:
        """1 + ε, the factor of the old state."""
        return 1.0 if self.epsilon is None else 1 + self.epsilon

    def forward(self, total: Tensor, x: NodeInput) -> Tensor:
        """[num_rows, size] the new state; x is the input of the cell."""
        new: Tensor = self.last(self.outer(self.between(self.inner(total), x)), x)
        return new


#: Below this variance, messages count as equal: the slope of the root stays finite.
LEAST_VARIANCE = 1e-5

#: Mean, minimum, maximum and deviation; each unscaled, amplified and attenuated.
NUM_AGGREGATORS, NUM_SCALERS = 4, 3


class PNACell(Convolution):
    """One round of principal neighbourhood aggregation, for `Rounds`.

    Equations 5-8 of Corso et al. (2020), https://arxiv.org/abs/2004.05718, in the form of PyTorch
    Geometric's `PNAConv` with one tower, with d the number of neighbours, δ the mean of log(d + 1)
    over the training part, e_uv the encoded columns of the edge, and ‖ for vectors side by side:

        m_uv = T h_v + S h_u + e_uv + b
        a_v = mean_u(m_uv) ‖ min_u(m_uv) ‖ max_u(m_uv) ‖ std_u(m_uv)
        h_v' = activation(L U (h_v ‖ a_v ‖ log(d + 1) / δ a_v ‖ δ / log(d + 1) a_v))

    The towers of the paper are left out; `L` and `U` have biases, but none before batch
    normalisation. Without neighbours the aggregates are zero.

    Args:
        hidden_size: width of `h`, the field of a node.
        mean_log_degree: δ. "auto" in a config is replaced by δ of the training part.
        edge_columns: the feature columns of the relation's edges; none if they are not read.
        activation: of the new `h`: "relu", "tanh", "sigmoid" or "none".
        dropout: probability of dropping an entry of the new `h`, with a new mask in every round.
        norm: "batch" or "layer" normalisation before the activation; None for none.
        residual: whether to add the old `h` to the new one.
        jumping: "sum" or "max" of the states of all rounds as the field `jump`; None for none.

    Shape:
        x: [num_nodes_of_type, hidden_size] if it is the state before the first round
        children: `h` of the neighbours, [num_child_edges, hidden_size], and the edge columns
        returns: {"h": [group_size, hidden_size]}, and with `jumping` the field `jump`

    Raises:
        ShapeError: if rounds start from features that are not `hidden_size` wide.
        ConfigError: if `mean_log_degree` is not positive, an edge column cannot be encoded,
            `dropout` is not a probability, or there is no such activation.
    """

    def __init__(
        self,
        hidden_size: int,
        mean_log_degree: float | str,
        edge_columns: Sequence[Column] = (),
        activation: str = "relu",
        dropout: float = 0.0,
        norm: str | None = None,
        residual: bool = False,
        jumping: str | None = None,
    ) -> None:
        super().__init__({"h": hidden_size}, dropout, residual, jumping)
        if not isinstance(mean_log_degree, (int, float)) or not mean_log_degree > 0:
            raise ConfigError(
                f"mean_log_degree is {mean_log_degree!r}, but it has to be positive: the mean of "
                "log(neighbours + 1) over the nodes. Set it to auto in the config."
            )
        self.mean_log_degree = float(mean_log_degree)
        self.target = nn.Linear(hidden_size, hidden_size)
        self.source = nn.Linear(hidden_size, hidden_size, bias=False)
        self.edge_encoder = ColumnEncoder(edge_columns, hidden_size) if edge_columns else None
        width = (1 + NUM_AGGREGATORS * NUM_SCALERS) * hidden_size
        self.inner = nn.Linear(width, hidden_size, bias=has_bias(norm))
        self.outer = nn.Linear(hidden_size, hidden_size, bias=has_bias(norm))
        self.after_convolution = AfterConvolution(hidden_size, activation, norm)

    def before_edges(self, edge: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """The encoded columns, once for each kind of bond."""
        return {} if self.edge_encoder is None else {"bond": self.edge_encoder(edge)}

    def forward(self, x: NodeInput, children: Children) -> State:
        """The state after one more round."""
        h = children.previous("h")
        messages = self.source(children.rows("h")) + children.expand(self.target(h))
        if self.edge_encoder is not None:
            messages = messages + children.edge["bond"]
        joined = torch.cat([h, *self._scaled(_aggregate(messages, children), children)], 1)
        new = self.after_convolution(self.outer(self.inner(joined)), x)
        return self.finish(new, x, children)

    def _scaled(self, rows: Tensor, children: Children) -> tuple[Tensor, Tensor, Tensor]:
        """[group_size, width] each: the aggregates unscaled, amplified and attenuated."""
        count = children.count.to(rows.dtype).unsqueeze(1)
        amplified = rows * (torch.log(count + 1) / self.mean_log_degree)
        attenuated = rows * (self.mean_log_degree / torch.log(count.clamp(min=1) + 1))
        return rows, amplified, attenuated


def _aggregate(messages: Tensor, children: Children) -> Tensor:
    """[group_size, 4 width] mean, minimum, maximum and standard deviation over the neighbours."""
    mean = children.mean(messages)
    # The mean of squares less the square of the mean would lose small differences.
    variance = children.mean((messages - children.expand(mean)).square())
    deviation = variance.clamp(min=LEAST_VARIANCE).sqrt()
    is_zero = deviation <= math.sqrt(LEAST_VARIANCE)
    deviation = deviation.masked_fill(is_zero, 0.0)
    return torch.cat([mean, -children.max(-messages), children.max(messages), deviation], 1)
