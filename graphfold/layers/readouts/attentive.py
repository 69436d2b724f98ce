"""AttentiveReadout: the readout of AttentiveFP."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from graphfold.batching.kernels import segment
from graphfold.batching.kernels.gather import parents
from graphfold.layers.dropout import Dropout
from graphfold.layers.readouts.pooling import Pooling
from graphfold.layers.readouts.set2set import is_full, require_steps

#: The slope of leaky ReLU below zero.
SLOPE = 0.01


class AttentiveReadout(Pooling):
    """Attends to the nodes of each graph by the state of a gated recurrent unit, several times.

    Xiong et al. (2020), https://doi.org/10.1021/acs.jmedchem.9b00959, the molecule as a node that
    is joined with all atoms, in the form of PyTorch Geometric's `AttentiveFP`:

        g_0 = relu(Σ_v h_v)
        c_t = elu(Σ_v softmax_v(leaky_relu(a · W g_t-1 + b · W h_v)) W h_v + bias)
        g_t = relu(GRU(c_t, g_t-1))

    Difference from the paper: attention is not dropped out, only the context c is.

    Args:
        input_size: width of the field.
        field: the field to read.
        over: "nodes", every node that has the field, or "outputs", the output nodes.
        steps: how often the unit runs.
        dropout: probability of dropping an entry of a context.

    Shape:
        returns: [num_graphs, input_size]; zeros for a graph without such nodes

    Raises:
        ConfigError: if there is not a step, or `dropout` is not a probability.
    """

    def __init__(
        self,
        input_size: int,
        field: str = "h",
        over: str = "nodes",
        steps: int = 2,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(input_size, field, over)
        require_steps(self, steps)
        self.steps = steps
        self.linear = nn.Linear(input_size, input_size, bias=False)
        self.of_graph = nn.Linear(input_size, 1, bias=False)
        self.of_node = nn.Linear(input_size, 1, bias=False)
        self.bias = nn.Parameter(torch.zeros(input_size))
        self.gru = nn.GRUCell(input_size, input_size)
        self.dropout = Dropout(dropout)

    def reduce(self, rows: Tensor, ptr: Tensor) -> Tensor:
        parent = parents(ptr, len(rows))
        state = torch.relu(segment.segment_sum(rows, ptr, parent))
        values = self.linear(rows)
        of_node = self.of_node(values)
        for _ in range(self.steps):
            of_graph = self.of_graph(self.linear(state))
            score = functional.leaky_relu(of_node + segment.expand(of_graph, ptr, parent), SLOPE)
            weight = segment.segment_softmax(score, ptr, parent)
            total = segment.segment_sum(weight * values, ptr, parent)
            context = self.dropout(functional.elu(total + self.bias))
            state = torch.relu(self.gru(context, state))
        return state * is_full(state, ptr)
