"""AttentiveFP: attention to neighbours, and a gated recurrent unit that keeps the state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from graphfold.batching.cell import NodeInput, State
from graphfold.batching.children import Children
from graphfold.dag import Column
from graphfold.layers.encoders.column_encoder import ColumnEncoder
from graphfold.layers.molecules.recurrent import RecurrentConvolution

#: The slope of leaky ReLU below zero.
SLOPE = 0.01


class AttentiveConvolution(RecurrentConvolution):
    """The base of both cells: relu(GRU(elu(context), old state)).

    Args:
        hidden_size: width of `h`, the field of a node.
        dropout: probability of dropping an entry of the context, drawn anew in every round.
        jumping: "sum" or "max" of the states of all rounds as the field `jump`; None for none.
    """

    def __init__(self, hidden_size: int, dropout: float, jumping: str | None) -> None:
        super().__init__(hidden_size, dropout, jumping)
        self.linear = nn.Linear(hidden_size, hidden_size)
        self.of_target = nn.Linear(hidden_size, 1, bias=False)
        self.of_source = nn.Linear(hidden_size, 1, bias=False)

    def initial(self, x: NodeInput) -> State:
        """The state of an atom that no message has reached yet: leaky_relu of the features."""
        states = super().initial(x)
        return {name: functional.leaky_relu(state, SLOPE) for name, state in states.items()}

    def attend(self, score: Tensor, rows: Tensor, x: NodeInput, children: Children) -> State:
        """The state after a context of `rows` [num_child_edges, hidden_size] weighted by scores."""
        weight = children.softmax(functional.leaky_relu(score, SLOPE))
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
    over h_u, not over n_uv, so that bonds decide who is heard and not what is said; attention is
    not dropped out, only the context is; jumping as an option.

    Args:
        hidden_size: width of `h`, the field of a node.
        edge_columns: the feature columns of the relation's edges.
        dropout: probability of dropping an entry of the context, drawn anew in every round.
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
        joint = functional.leaky_relu(self.neighbour(rows) + children.edge["bond"], SLOPE)
        target = self.of_target(children.previous("h"))
        return self.attend(self.of_source(joint) + children.expand(target), rows, x, children)


class AttentiveFPCell(AttentiveConvolution):
    """A later round of AttentiveFP, for `Rounds` after that of `AttentiveFPFirstCell`.

    Xiong et al. (2020), https://doi.org/10.1021/acs.jmedchem.9b00959, equations 6-8, in the form of
    PyTorch Geometric's `AttentiveFP`:

        c_v = elu(W Σ_{u ∈ N(v)} softmax_u(leaky_relu(a · W h_v + b · W h_u)) h_u + bias)
        h_v' = relu(GRU(c_v, h_v))

    Differences from the paper: attention is not dropped out, only the context is; jumping as an
    option.

    Args:
        hidden_size: width of `h`, the field of a node.
        dropout: probability of dropping an entry of the context, drawn anew in every round.
        jumping: "sum" or "max" of the states of all rounds as the field `jump`; None for none.

    Shape:
        x: [num_nodes_of_type, hidden_size] if it is the state before the first round
        children: `h` of the neighbours, [num_child_edges, hidden_size]
        returns: {"h": [group_size, hidden_size]}, and `jump` like it if asked for

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
