"""Similarity: how two vectors relate, as one vector."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Similarity(nn.Module):
    """Distance and angle between the two vectors of a pair, through a hidden layer.

    Equation 15 of Tai et al. (2015), https://arxiv.org/abs/1503.00075:

        h_x = h_L ⊙ h_R    h_+ = |h_L - h_R|    h_s = σ(W_x h_x + W_+ h_+ + b)

    Args:
        input_size: width of each vector.
        hidden_size: width of h_s; 50 in the paper.

    Shape:
        pair: [num_rows, 2, input_size]
        returns: [num_rows, hidden_size]
    """

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.linear = nn.Linear(2 * input_size, hidden_size)  # W_x and W_+ side by side

    def forward(self, pair: Tensor) -> Tensor:
        left, right = pair.unbind(1)
        both = torch.cat([left * right, (left - right).abs()], dim=1)
        return torch.sigmoid(self.linear(both))
