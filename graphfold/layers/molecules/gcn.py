"""GCNCell: graph convolution with symmetric normalisation."""

from __future__ import annotations

from torch import Tensor, nn

from graphfold.batching.cell import NodeInput, State
from graphfold.batching.children import Children
from graphfold.layers.molecules.message_passing import AfterConvolution, Convolution


class GCNCell(Convolution):
    """One round of graph convolution, for `Rounds`.

    Equation 2 of Kipf & Welling (2017), https://arxiv.org/abs/1609.02907, for one node, with d̃ the
    number of neighbours plus one:

        h_v' = activation(W Σ_{u ∈ N(v) ∪ {v}} h_u / √(d̃_u d̃_v) + b)

    Before the first round h is the features, unless an earlier pass computed it. Differences from
    the paper: a bias; normalisation and a residual connection, h_v + h_v', as options.

    Args:
        hidden_size: width of `h`, the field of a node.
        activation: "relu", "tanh", "sigmoid" or "none".
        dropout: probability of dropping an entry of the new `h`, drawn anew in every round.
        norm: "batch" or "layer" normalisation before the activation; None for none.
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
        residual: bool = False,
        jumping: str | None = None,
    ) -> None:
        super().__init__({"h": hidden_size}, dropout, residual, jumping)
        self.linear = nn.Linear(hidden_size, hidden_size)
        self.after_convolution = AfterConvolution(hidden_size, activation, norm)

    def forward(self, x: NodeInput, children: Children) -> State:
        """The state after one more round."""
        own = _norm(children.count, self.linear.weight)
        weight = _norm(children.child_count, own) * children.expand(own)
        total = children.sum("h", weight, own.square())
        return self.finish(self.after_convolution(self.linear(total)), x, children)


def _norm(count: Tensor, like: Tensor) -> Tensor:
    """1 / √(neighbours + 1)."""
    return (count + 1).to(like.dtype).rsqrt()
