"""Set2SetReadout: a recurrent network that looks at all nodes several times."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from graphfold.batching.kernels import segment
from graphfold.batching.kernels.gather import parents
from graphfold.errors import ConfigError
from graphfold.layers.readouts.pooling import Pooling


class Set2SetReadout(Pooling):
    """Attends to the nodes of each graph by the state of an LSTM, several times.

    Equations 3-7 of Vinyals et al. (2016), https://arxiv.org/abs/1511.06391, for each graph, with
    q*₀ = 0; equal to PyTorch Geometric's `Set2Set`:

        q_t = LSTM(q*_t-1)
        a_v = softmax_v(h_v · q_t)    r_t = Σ_v a_v h_v    q*_t = q_t ‖ r_t

    Args:
        input_size: width of the field.
        field: the field to read.
        over: "nodes", every node that has the field, or "outputs", the output nodes.
        steps: how often the LSTM runs.

    Shape:
        returns: [num_graphs, 2 * input_size]; zeros for a graph without such nodes

    Raises:
        ConfigError: if there is not a step.
    """

    def __init__(
        self, input_size: int, field: str = "h", over: str = "nodes", steps: int = 3
    ) -> None:
        super().__init__(input_size, field, over)
        require_steps(self, steps)
        self.output_size, self.steps = 2 * input_size, steps
        self.lstm = nn.LSTMCell(2 * input_size, input_size)

    def reduce(self, rows: Tensor, ptr: Tensor) -> Tensor:
        parent = parents(ptr, len(rows))
        both = rows.new_zeros(len(ptr) - 1, self.output_size)
        h = c = both[:, : rows.shape[1]]
        for _ in range(self.steps):
            h, c = self.lstm(both, (h, c))
            score = (rows * segment.expand(h, ptr, parent)).sum(1, keepdim=True)
            weight = segment.segment_softmax(score, ptr, parent)
            both = torch.cat([h, segment.segment_sum(weight * rows, ptr, parent)], 1)
        return both * is_full(both, ptr)


def require_steps(readout: nn.Module, steps: int) -> None:
    """Raises ConfigError unless there is at least one step."""
    if steps < 1:
        raise ConfigError(
            f"{type(readout).__name__} has {steps} steps. Set steps to at least 1, or take another "
            "readout."
        )


def is_full(rows: Tensor, ptr: Tensor) -> Tensor:
    """[num_graphs, 1] 1 for graphs with nodes and 0 for others, like `rows`."""
    return (ptr.diff() > 0).to(rows.dtype).unsqueeze(1)
