"""Fused operations of torch, written as the operations that they fuse.

On a GPU `torch.nn.GRUCell` and `LSTMCell` call one fused operation each, on a CPU several small
ones. A trace holds the small ones on every device, so all backends run these cells.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor


def gru_cell(
    input_gates: Tensor,
    hidden_gates: Tensor,
    h: Tensor,
    input_bias: Tensor | None = None,
    hidden_bias: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """A GRU after its two products, equations as in `torch.nn.GRUCell`.

    Shape:
        input_gates, hidden_gates: [num_rows, 3 * hidden_size], the parts r, z and n
        h: [num_rows, hidden_size]
        returns: [num_rows, hidden_size], and what torch's own backward would read
    """
    from_x = _biased(input_gates, input_bias).chunk(3, dim=1)
    from_h = _biased(hidden_gates, hidden_bias).chunk(3, dim=1)
    r, z = (torch.sigmoid(from_x[part] + from_h[part]) for part in (0, 1))
    n = torch.tanh(from_x[2] + r * from_h[2])
    return n + z * (h - n), n


def lstm_cell(
    input_gates: Tensor,
    hidden_gates: Tensor,
    c: Tensor,
    input_bias: Tensor | None = None,
    hidden_bias: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """An LSTM after its two products, equations as in `torch.nn.LSTMCell`.

    Shape:
        input_gates, hidden_gates: [num_rows, 4 * hidden_size], the parts i, f, g and o
        c: [num_rows, hidden_size]
        returns: h and c, [num_rows, hidden_size], and what torch's own backward would read
    """
    gates = _biased(input_gates, input_bias) + _biased(hidden_gates, hidden_bias)
    i, f, g, o = gates.chunk(4, dim=1)
    new = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(new), new, gates


def _biased(gates: Tensor, bias: Tensor | None) -> Tensor:
    return gates if bias is None else gates + bias


#: Name of an operation -> the function that computes the same.
DECOMPOSITIONS: Mapping[str, Callable[..., tuple[Tensor, ...]]] = {
    "_thnn_fused_gru_cell": gru_cell,
    "_thnn_fused_lstm_cell": lstm_cell,
}
