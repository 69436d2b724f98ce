"""Poolings: one vector per graph from all its nodes, or from its output nodes.

Sums, means and maxima, and learned poolings: gates, attention, Set2Set, and AttentiveFP's.
"""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor, nn
from torch.nn import functional

from graphfold.batching.kernels import segment
from graphfold.batching.kernels.gather import OfTypes, RowIndex, parents
from graphfold.batching.native.linear import NativeLinear
from graphfold.batching.states import States
from graphfold.dag import TypedDAG
from graphfold.errors import ConfigError, did_you_mean
from graphfold.layers.dropout import Dropout
from graphfold.layers.readouts.readout import Readout, output_nodes

OVER = ("nodes", "outputs")


class Pooling(Readout):
    """Base of readouts that reduce the nodes of each graph to one vector; zeros without nodes.

    Args:
        input_size: width of the field.
        field: the field to read.
        over: "nodes", every node that has the field, or "outputs", the output nodes.

    Shape:
        returns: [num_graphs, input_size]

    Raises:
        ConfigError: if `over` is something else.
    """

    level = "graph"

    def __init__(self, input_size: int, field: str = "h", over: str = "nodes") -> None:
        super().__init__(input_size, field)
        if over not in OVER:
            raise ConfigError(
                f"{type(self).__name__} cannot reduce over '{over}'.{did_you_mean(over, OVER)} "
                f"Use one of {', '.join(OVER)}."
            )
        self.over = over
        self.add_weights(input_size)

    def add_weights(self, input_size: int) -> None:
        """Adds the learned weights; none by default."""

    @abstractmethod
    def reduce(self, rows: Tensor, ptr: Tensor) -> Tensor:
        """[num_graphs, input_size] from the rows of graph i, ptr[i] .. ptr[i+1]."""

    def pool(self, states: States, nodes: RowIndex, ptr: Tensor) -> Tensor:
        """[num_graphs, input_size] from `nodes`; graph i has the nodes ptr[i] .. ptr[i+1]."""
        return self.reduce(states.at(self.field, nodes), ptr)

    def forward(self, states: States, dag: TypedDAG) -> Tensor:
        """One row per graph."""
        if self.over == "outputs":
            return self.reduce(self.read(states, dag, output_nodes), dag.output_ptr)
        types = states.types(self.field)
        nodes = RowIndex.of(dag, OfTypes(types))
        return self.pool(states, nodes, dag.nodes_of_types(types)[1])


class SumReadout(Pooling):
    """Sums over the nodes of each graph."""

    def reduce(self, rows: Tensor, ptr: Tensor) -> Tensor:
        return segment.segment_sum(rows, ptr)

    def pool(self, states: States, nodes: RowIndex, ptr: Tensor) -> Tensor:
        return states.sum(self.field, nodes, ptr)


class ScaledSumReadout(SumReadout):
    """Sums over the nodes of each graph, all divided by one number; "norm" in chemprop.

    As with a sum, predictions may grow with the graph. As with a mean, the next layers read numbers
    of the size of a state.

    Args:
        input_size: width of the field.
        field: the field to read.
        over: "nodes" or "outputs", see `Pooling`.
        divide_by: the typical number of nodes of a graph; small molecules have 20 atoms.

    Raises:
        ConfigError: if `divide_by` is not positive.
    """

    def __init__(
        self, input_size: int, field: str = "h", over: str = "nodes", divide_by: float = 20.0
    ) -> None:
        super().__init__(input_size, field, over)
        if not divide_by > 0:
            raise ConfigError(f"divide_by={divide_by} is not positive. Use a number above 0.")
        self.divide_by = divide_by

    def reduce(self, rows: Tensor, ptr: Tensor) -> Tensor:
        return super().reduce(rows, ptr) / self.divide_by

    def pool(self, states: States, nodes: RowIndex, ptr: Tensor) -> Tensor:
        return super().pool(states, nodes, ptr) / self.divide_by


class MeanReadout(Pooling):
    """Means over the nodes of each graph."""

    def reduce(self, rows: Tensor, ptr: Tensor) -> Tensor:
        return segment.segment_mean(rows, ptr)

    def pool(self, states: States, nodes: RowIndex, ptr: Tensor) -> Tensor:
        return segment.to_mean(states.sum(self.field, nodes, ptr), ptr.diff())


class MaxReadout(Pooling):
    """Elementwise maxima over the nodes of each graph."""

    def reduce(self, rows: Tensor, ptr: Tensor) -> Tensor:
        return segment.segment_max(rows, ptr)


class AttentionReadout(Pooling):
    """Means over the nodes of each graph, weighted by learned attention.

    Equations 5-6 of Lin et al. (2017), https://arxiv.org/abs/1703.03130, with one attention row:

        a = softmax_v(w · tanh(W h_v + b))    graph = Σ_v a_v h_v

    Difference from the paper: the bias b. The arguments are those of `Pooling`.
    """

    def add_weights(self, input_size: int) -> None:
        self.hidden = nn.Linear(input_size, input_size)
        self.score = nn.Linear(input_size, 1, bias=False)

    def reduce(self, rows: Tensor, ptr: Tensor) -> Tensor:
        with NativeLinear():
            score = self.score(torch.tanh(self.hidden(rows)))
        weight = segment.segment_softmax(score, ptr)
        return segment.segment_sum(weight * rows, ptr)


class GatedReadout(Pooling):
    """Sums over the nodes of each graph, weighted by a learned gate.

    Equation 7 of Li et al. (2016), https://arxiv.org/abs/1511.05493:

        graph = Σ_v σ(W h_v + b) ⊙ tanh(V h_v + c)

    Differences from the paper: only the states of nodes are read, not their features; there is no
    tanh of the sum, which would bound the values that a head can distinguish. The arguments are
    those of `Pooling`.
    """

    def add_weights(self, input_size: int) -> None:
        self.gate = nn.Linear(input_size, input_size)
        self.value = nn.Linear(input_size, input_size)

    def reduce(self, rows: Tensor, ptr: Tensor) -> Tensor:
        with NativeLinear():
            gated = torch.sigmoid(self.gate(rows)) * torch.tanh(self.value(rows))
        return segment.segment_sum(gated, ptr)


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
        steps: the number of steps of the LSTM.

    Shape:
        returns: [num_graphs, 2 * input_size]; zeros for a graph without such nodes

    Raises:
        ConfigError: if `steps` is less than 1.
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
    """Raises ConfigError for fewer than one step."""
    if steps < 1:
        raise ConfigError(
            f"{type(readout).__name__} has {steps} steps. Set steps to at least 1, or take another "
            "readout."
        )


def is_full(rows: Tensor, ptr: Tensor) -> Tensor:
    """[num_graphs, 1] 1 for graphs with nodes and 0 for others, like `rows`."""
    return (ptr.diff() > 0).to(rows.dtype).unsqueeze(1)


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
        steps: the number of steps of the unit.
        dropout: probability of dropping an entry of a context.

    Shape:
        returns: [num_graphs, input_size]; zeros for a graph without such nodes

    Raises:
        ConfigError: if `steps` is less than 1, or `dropout` is not a probability.
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
