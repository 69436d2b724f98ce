"""Attention to neighbours: GAT, GATv2, and AttentiveFP, which updates its state by a GRU."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from graphfold.batching.cell import NodeInput, State
from graphfold.batching.children import Children
from graphfold.dag import Column
from graphfold.errors import ConfigError
from graphfold.layers.encoders.column_encoder import ColumnEncoder
from graphfold.layers.molecules.message_passing import (
    AfterConvolution,
    Convolution,
    RecurrentConvolution,
    has_bias,
)

#: The slope of leaky ReLU below zero.
SLOPE = 0.2


class GraphAttention(Convolution):
    """Base of GAT and GATv2: several heads attend to the neighbours and to the node itself.

    As in PyTorch Geometric, a node is its own neighbour over an edge with the mean features of its
    edges, and the heads are side by side. Self-loops of the data are left out before.

    Args:
        hidden_size: width of `h`, the field of a node.
        edge_columns: the feature columns of the relation's edges; none if they are not read.
        heads: number of heads; each is hidden_size / heads wide.
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
        ConfigError: if the heads do not divide the width, an edge column cannot be encoded,
            `dropout` is not a probability, or there is no such activation.
    """

    def __init__(
        self,
        hidden_size: int,
        edge_columns: Sequence[Column] = (),
        heads: int = 4,
        activation: str = "relu",
        dropout: float = 0.0,
        norm: str | None = None,
        residual: bool = False,
        jumping: str | None = None,
    ) -> None:
        super().__init__({"h": hidden_size}, dropout, residual, jumping)
        if heads < 1 or hidden_size % heads:
            raise ConfigError(
                f"{type(self).__name__} cannot share hidden_size={hidden_size} among {heads} "
                "heads. Set a width that is a multiple of the number of heads."
            )
        self.head_shape = heads, hidden_size // heads
        self.edge_encoder = ColumnEncoder(edge_columns, hidden_size) if edge_columns else None
        self.bias = nn.Parameter(torch.zeros(hidden_size)) if has_bias(norm) else None
        self.after_convolution = AfterConvolution(hidden_size, activation, norm)
        self.add_weights(hidden_size)

    @abstractmethod
    def add_weights(self, hidden_size: int) -> None:
        """Adds the weights of the scores, which are the last in a checkpoint."""

    def draw_attention(self) -> nn.Parameter:
        """[heads, hidden_size / heads] attention vectors, drawn like a linear layer's weight."""
        bound = self.head_shape[1] ** -0.5
        return nn.Parameter(torch.empty(self.head_shape).uniform_(-bound, bound))

    def score(self, rows: Tensor, attention: Tensor) -> Tensor:
        """[num_rows, heads] the product of each head's part of the rows with `attention`."""
        by_head = rows.view(-1, *self.head_shape)
        return (by_head * attention).sum(2)

    def attend(
        self, children: Children, rows: Tensor, score: Tensor, own: Tensor, own_score: Tensor
    ) -> Tensor:
        """[group_size, hidden_size] means over neighbours and the node itself by softmax of scores.

        Shape:
            rows: [num_child_edges, hidden_size]
            score: [num_child_edges, heads]
            own: [group_size, hidden_size]
            own_score: [group_size, heads]
        """
        weight, own_weight = softmax_with_own(children, score, own_score)
        total = children.sum(self._times(rows, weight)) + self._times(own, own_weight)
        return total if self.bias is None else total + self.bias

    def _times(self, rows: Tensor, weight: Tensor) -> Tensor:
        by_head = rows.view(-1, *self.head_shape)
        return (by_head * weight.unsqueeze(2)).flatten(1)


class GATCell(GraphAttention):
    """One round of graph attention, for `Rounds`.

    Equations 1-5 of Velickovic et al. (2018), https://arxiv.org/abs/1710.10903, in the form of
    PyTorch Geometric's `GATConv` with edge features, for each head, with e_uv the encoded columns:

        s_uv = leaky_relu(a · W h_v + b · W h_u + c · e_uv)
        h_v' = activation(Σ_{u ∈ N(v) ∪ {v}} softmax_u(s_uv) W h_u + bias)

    Differences from the paper: edge features; attention is not dropped out, only the new `h` is;
    normalisation, a residual connection and jumping as options. See `GraphAttention` for the
    arguments.
    """

    def add_weights(self, hidden_size: int) -> None:
        self.linear = nn.Linear(hidden_size, hidden_size, bias=False)
        self.of_target, self.of_source = self.draw_attention(), self.draw_attention()
        self.of_edge = None if self.edge_encoder is None else self.draw_attention()

    def before_edges(self, edge: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """The contribution of a bond to the score of each head, once for each kind of bond."""
        if self.edge_encoder is None or self.of_edge is None:
            return {}
        return {"bond": self.score(self.edge_encoder(edge), self.of_edge)}

    def forward(self, x: NodeInput, children: Children) -> State:
        """The state after one more round."""
        own, rows = self.linear(children.previous("h")), self.linear(children.rows("h"))
        target = self.score(own, self.of_target)
        score = self.score(rows, self.of_source) + children.expand(target)
        own_score = self.score(own, self.of_source) + target
        if self.edge_encoder is not None:
            score = score + children.edge["bond"]
            own_score = own_score + mean_of_others(children, children.edge["bond"])
        score = functional.leaky_relu(score, SLOPE)
        own_score = functional.leaky_relu(own_score, SLOPE)
        total = self.attend(children, rows, score, own, own_score)
        return self.finish(self.after_convolution(total, x), x, children)


class GATv2Cell(GraphAttention):
    """One round of dynamic graph attention (its ranking depends on the node), for `Rounds`.

    Equation 7 of Brody et al. (2022), https://arxiv.org/abs/2105.14491, in the form of PyTorch
    Geometric's `GATv2Conv` with edge features, for each head, with e_uv the encoded columns:

        s_uv = a · leaky_relu(W h_u + V h_v + e_uv)
        h_v' = activation(Σ_{u ∈ N(v) ∪ {v}} softmax_u(s_uv) W h_u + bias)

    Differences from the paper: edge features; attention is not dropped out, only the new `h` is;
    normalisation, a residual connection and jumping as options. See `GraphAttention` for the
    arguments.
    """

    def add_weights(self, hidden_size: int) -> None:
        self.source = nn.Linear(hidden_size, hidden_size)
        self.target = nn.Linear(hidden_size, hidden_size)
        self.attention = self.draw_attention()

    def before_edges(self, edge: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """The encoded columns, once for each kind of bond."""
        return {} if self.edge_encoder is None else {"bond": self.edge_encoder(edge)}

    def forward(self, x: NodeInput, children: Children) -> State:
        """The state after one more round."""
        h = children.previous("h")
        own, rows, target = self.source(h), self.source(children.rows("h")), self.target(h)
        joint, own_joint = rows + children.expand(target), own + target
        if self.edge_encoder is not None:
            joint = joint + children.edge["bond"]
            own_joint = own_joint + mean_of_others(children, children.edge["bond"])
        score = self.score(functional.leaky_relu(joint, SLOPE), self.attention)
        own_score = self.score(functional.leaky_relu(own_joint, SLOPE), self.attention)
        total = self.attend(children, rows, score, own, own_score)
        return self.finish(self.after_convolution(total, x), x, children)


def mean_of_others(children: Children, values: Tensor) -> Tensor:
    """[group_size, ...] means of values on the edges, without self-loops."""
    is_other = (1 - children.is_self).to(values.dtype).unsqueeze(1)
    return children.sum(values * is_other) / children.sum(is_other).clamp(min=1)


def softmax_with_own(children: Children, score: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
    """Scores of neighbours and of the node itself, normalised together; self-loops get no weight.

    Shape:
        score: [num_child_edges, heads]
        own: [group_size, heads]
        returns: the same shapes
    """
    is_self, mine = children.is_self.to(own.dtype).unsqueeze(1), own.detach()
    # A self-loop far above all others would leave nothing of them.
    score = score + is_self * (children.expand(own) - score)
    highest = torch.maximum(children.max(score.detach()), mine)
    # Without neighbours their maximum is 0, from which the node's own score may be far.
    highest = torch.where((children.count > 0).unsqueeze(1), highest, mine)
    weight = torch.exp(score - children.expand(highest)) * (1 - is_self)
    own_weight = torch.exp(own - highest)
    total = children.sum(weight) + own_weight
    return weight / children.expand(total), own_weight / total


#: The slope of leaky ReLU below zero.
ATTENTIVE_FP_SLOPE = 0.01


class AttentiveConvolution(RecurrentConvolution):
    """Base of the two AttentiveFP cells: relu(GRU(elu(context), old state)).

    Args:
        hidden_size: width of `h`, the field of a node.
        dropout: probability of dropping an entry of the context, with a new mask in every round.
        jumping: "sum" or "max" of the states of all rounds as the field `jump`; None for none.
    """

    def __init__(self, hidden_size: int, dropout: float, jumping: str | None) -> None:
        super().__init__(hidden_size, dropout, jumping)
        self.linear = nn.Linear(hidden_size, hidden_size)
        self.of_target = nn.Linear(hidden_size, 1, bias=False)
        self.of_source = nn.Linear(hidden_size, 1, bias=False)

    def initial(self, x: NodeInput) -> State:
        """The state before the first round: leaky_relu of the features."""
        states = super().initial(x)
        return {
            name: functional.leaky_relu(state, ATTENTIVE_FP_SLOPE) for name, state in states.items()
        }

    def attend(self, score: Tensor, rows: Tensor, x: NodeInput, children: Children) -> State:
        """The state after a context of `rows` [num_child_edges, hidden_size] weighted by scores."""
        weight = children.softmax(functional.leaky_relu(score, ATTENTIVE_FP_SLOPE))
        total = children.sum(weight * rows)
        # A node without neighbours has the bias alone for its context, as in PyTorch Geometric.
        context = self.drop(functional.elu(self.linear(total)), x)
        h = torch.relu(self.gru(context, children.previous("h")))
        return self.finish(h, {}, children)


class AttentiveFPFirstCell(AttentiveConvolution):
    """The round of AttentiveFP that reads bonds, the first, for `Rounds(relation, 1)`.

    Xiong et al. (2020), https://doi.org/10.1021/acs.jmedchem.9b00959, equations 1-5, in the form of
    PyTorch Geometric's `AttentiveFP`, with e_uv the encoded columns of the bond:

        n_uv = leaky_relu(V h_u + e_uv)
        c_v = elu(W Σ_{u ∈ N(v)} softmax_u(leaky_relu(a · h_v + b · n_uv)) h_u + bias)
        h_v' = relu(GRU(c_v, h_v))

    Before the first round h is leaky_relu of the features. Differences from the paper: the sum is
    over h_u, not over n_uv, so that bonds change the weights of neighbours, not their messages;
    attention is not dropped out, only the context is; jumping as an option.

    Args:
        hidden_size: width of `h`, the field of a node.
        edge_columns: the feature columns of the relation's edges.
        dropout: probability of dropping an entry of the context, with a new mask in every round.
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
        dropout: float = 0.0,
        jumping: str | None = None,
    ) -> None:
        super().__init__(hidden_size, dropout, jumping)
        self.edge_encoder = ColumnEncoder(edge_columns, hidden_size)
        self.neighbour = nn.Linear(hidden_size, hidden_size, bias=False)

    def before_edges(self, edge: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """The encoded columns, once for each kind of bond."""
        return {"bond": self.edge_encoder(edge)}

    def forward(self, x: NodeInput, children: Children) -> State:
        """The state after the round."""
        rows = children.rows("h")
        joint = functional.leaky_relu(
            self.neighbour(rows) + children.edge["bond"], ATTENTIVE_FP_SLOPE
        )
        target = self.of_target(children.previous("h"))
        return self.attend(self.of_source(joint) + children.expand(target), rows, x, children)


class AttentiveFPCell(AttentiveConvolution):
    """A later round of AttentiveFP, for `Rounds` after the round of `AttentiveFPFirstCell`.

    Xiong et al. (2020), https://doi.org/10.1021/acs.jmedchem.9b00959, equations 6-8, in the form of
    PyTorch Geometric's `AttentiveFP`:

        c_v = elu(W Σ_{u ∈ N(v)} softmax_u(leaky_relu(a · W h_v + b · W h_u)) h_u + bias)
        h_v' = relu(GRU(c_v, h_v))

    Differences from the paper: attention is not dropped out, only the context is; jumping as an
    option.

    Args:
        hidden_size: width of `h`, the field of a node.
        dropout: probability of dropping an entry of the context, with a new mask in every round.
        jumping: "sum" or "max" of the states of all rounds as the field `jump`; None for none.

    Shape:
        x: [num_nodes_of_type, hidden_size] if it is the state before the first round
        children: `h` of the neighbours, [num_child_edges, hidden_size]
        returns: {"h": [group_size, hidden_size]}, and with `jumping` the field `jump`

    Raises:
        ShapeError: if rounds start from features that are not `hidden_size` wide.
        ConfigError: if `dropout` is not a probability, or there is no such way of jumping.
    """

    def __init__(self, hidden_size: int, dropout: float = 0.0, jumping: str | None = None) -> None:
        super().__init__(hidden_size, dropout, jumping)

    def forward(self, x: NodeInput, children: Children) -> State:
        """The state after one more round."""
        rows, weight = children.rows("h"), self.linear.weight
        # a · W h is (a W) · h: no product with W for each edge.
        source = functional.linear(rows, self.of_source.weight @ weight)
        target = functional.linear(children.previous("h"), self.of_target.weight @ weight)
        return self.attend(source + children.expand(target), rows, x, children)
