"""FingerprintCell: neural graph fingerprints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from graphfold.batching.cell import NodeInput, State
from graphfold.batching.children import Children
from graphfold.dag import Column
from graphfold.layers.encoders.column_encoder import ColumnEncoder
from graphfold.layers.molecules.message_passing import AfterConvolution, Convolution, has_bias


class FingerprintCell(Convolution):
    """One round of the neural graph fingerprint, for `Rounds`.

    Algorithm 2 of Duvenaud et al. (2015), https://arxiv.org/abs/1509.09292, with d the number of
    neighbours and e_uv the encoded columns of the bond:

        h_v' = activation(H_d (h_v + Σ_{u ∈ N(v)} (h_u + e_uv)) + b_d)
        fingerprint_v' = fingerprint_v + softmax(W h_v')

    The fingerprint of a molecule is the sum over its atoms: `SumReadout(field="fingerprint")`.
    Before the first round h is the features. The paper has other weights in every round: a list of
    cells.

    Differences from the paper: bonds are encoded linearly before they are added, the same as
    joining their features to the neighbour's; there are biases; batch normalisation (as in the
    authors' program) and dropout are options.

    Args:
        hidden_size: width of `h`.
        fingerprint_size: width of `fingerprint`.
        edge_columns: the feature columns of the relation's edges; none if they are not read.
        max_degree: nodes with this many neighbours or more share a weight; 0 shares one among all.
        activation: "relu", "tanh", "sigmoid" or "none".
        dropout: probability of dropping an entry of the new `h`, with a new mask in every round.
        norm: "batch" or "layer" normalisation before the activation; None for none.

    Shape:
        x: [num_nodes_of_type, hidden_size], the state before the first round
        children: `h` of the neighbours, [num_child_edges, hidden_size], and the edge columns
        returns: {"h": [group_size, hidden_size],
            "fingerprint": [group_size, fingerprint_size]}

    Raises:
        ShapeError: if rounds start from features that are not `hidden_size` wide.
        ConfigError: if an edge column cannot be encoded, `dropout` is not a probability, or there
            is no such activation.
    """

    reads = ("h",)

    def __init__(
        self,
        hidden_size: int,
        fingerprint_size: int,
        edge_columns: Sequence[Column] = (),
        max_degree: int = 5,
        activation: str = "relu",
        dropout: float = 0.0,
        norm: str | None = None,
    ) -> None:
        super().__init__({"h": hidden_size, "fingerprint": fingerprint_size}, dropout)
        self.edge_encoder = ColumnEncoder(edge_columns, hidden_size) if edge_columns else None
        # Biases that differ with the degree are no bias of the whole column.
        self.by_degree = DegreeLinear(hidden_size, max_degree, has_bias(norm) or max_degree > 0)
        self.after_convolution = AfterConvolution(hidden_size, activation, norm)
        self.contribution = nn.Linear(hidden_size, fingerprint_size)

    def before_edges(self, edge: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """The encoded columns, once for each kind of bond."""
        return {} if self.edge_encoder is None else {"bond": self.edge_encoder(edge)}

    def forward(self, x: NodeInput, children: Children) -> State:
        """The state after one more round."""
        total = children.previous("h") + children.sum("h")
        if self.edge_encoder is not None:
            total = total + children.sum(children.edge["bond"])
        h = self.drop(self.after_convolution(self.by_degree(total, children.count), x), x)
        new = torch.softmax(self.contribution(h), dim=1)
        return {"h": h, "fingerprint": children.previous("fingerprint") + new}


class DegreeLinear(nn.Module):
    """A linear layer for each number of neighbours.

    Args:
        size: width of input and output.
        max_degree: the largest number of neighbours; nodes with more use its layer.
        bias: whether the layers have biases.
    """

    def __init__(self, size: int, max_degree: int, bias: bool = True) -> None:
        super().__init__()
        self.max_degree = max_degree
        bound = size**-0.5  # as in nn.Linear
        self.weight = nn.Parameter(torch.empty(max_degree + 1, size, size).uniform_(-bound, bound))
        self.bias: nn.Parameter | None = None
        if bias:
            self.bias = nn.Parameter(torch.empty(max_degree + 1, size).uniform_(-bound, bound))

    def forward(self, h: Tensor, degree: Tensor) -> Tensor:
        """[num_rows, size] from `h` [num_rows, size] and `degree` [num_rows]."""
        degree = degree.clamp(max=self.max_degree)
        is_degree = torch.stack([degree == n for n in range(self.max_degree + 1)], dim=1)
        bias = None if self.bias is None else self.bias.flatten()
        every = functional.linear(h, self.weight.flatten(0, 1), bias)
        by_degree = every.view(every.shape[0], *self.weight.shape[:2])
        return (by_degree * is_degree.to(h.dtype).unsqueeze(2)).sum(1)
