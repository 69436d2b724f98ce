"""Poolings: one vector per graph from all its nodes, or from its output nodes."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor, nn

from graphfold.batching.kernels import segment
from graphfold.batching.native.linear import NativeLinear
from graphfold.batching.states import States
from graphfold.dag import TypedDAG
from graphfold.errors import ConfigError, did_you_mean
from graphfold.layers.readouts.readout import Readout

OVER = ("nodes", "outputs")


class Pooling(Readout):
    """Reduces the nodes of each graph to one vector; zeros where there is nothing to reduce.

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
        """Adds what is learned; nothing by default."""

    @abstractmethod
    def reduce(self, rows: Tensor, ptr: Tensor) -> Tensor:
        """[num_graphs, input_size] from the rows of graph i, ptr[i] .. ptr[i+1]."""

    def pool(self, states: States, nodes: Tensor, ptr: Tensor) -> Tensor:
        """[num_graphs, input_size] from nodes ptr[i] .. ptr[i+1] of some that have the field."""
        return self.reduce(states.at(self.field, nodes), ptr)

    def forward(self, states: States, dag: TypedDAG) -> Tensor:
        """One row per graph."""
        if self.over == "outputs":
            return self.reduce(self.read(states, dag, dag.output_index), dag.output_ptr)
        if states.is_everywhere(self.field, dag.schema):
            nodes, graph = torch.arange(dag.num_nodes, device=dag.batch.device), dag.batch
        else:
            nodes = torch.nonzero(states.has(self.field, dag.op_type)).view(-1)
            graph = dag.batch.index_select(0, nodes)
        # In order, so nothing has to be counted.
        ptr = torch.searchsorted(graph, torch.arange(dag.num_graphs + 1, device=graph.device))
        return self.pool(states, nodes, ptr)


class SumReadout(Pooling):
    """Sums over the nodes of each graph."""

    def reduce(self, rows: Tensor, ptr: Tensor) -> Tensor:
        return segment.segment_sum(rows, ptr)

    def pool(self, states: States, nodes: Tensor, ptr: Tensor) -> Tensor:
        return states.sum(self.field, nodes, ptr)


class ScaledSumReadout(SumReadout):
    """Sums over the nodes of each graph, all divided by one number; "norm" in chemprop.

    As with a sum, what is predicted may grow with the graph. As with a mean, the layers behind
    begin with numbers of the size of a state.

    Args:
        input_size: width of the field.
        field: the field to read.
        over: "nodes" or "outputs", see `Pooling`.
        divide_by: about the number of nodes of a graph; small molecules have 20 atoms.

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

    def pool(self, states: States, nodes: Tensor, ptr: Tensor) -> Tensor:
        return super().pool(states, nodes, ptr) / self.divide_by


class MeanReadout(Pooling):
    """Means over the nodes of each graph."""

    def reduce(self, rows: Tensor, ptr: Tensor) -> Tensor:
        return segment.segment_mean(rows, ptr)

    def pool(self, states: States, nodes: Tensor, ptr: Tensor) -> Tensor:
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
    """Sums over the nodes of each graph, of which a learned gate lets through a share.

    Equation 7 of Li et al. (2016), https://arxiv.org/abs/1511.05493:

        graph = Σ_v σ(W h_v + b) ⊙ tanh(V h_v + c)

    Differences from the paper: the features of a node are not read beside its state, and there is
    no tanh of the sum, which would bound what a head can tell apart. The arguments are those of
    `Pooling`.
    """

    def add_weights(self, input_size: int) -> None:
        self.gate = nn.Linear(input_size, input_size)
        self.value = nn.Linear(input_size, input_size)

    def reduce(self, rows: Tensor, ptr: Tensor) -> Tensor:
        with NativeLinear():
            gated = torch.sigmoid(self.gate(rows)) * torch.tanh(self.value(rows))
        return segment.segment_sum(gated, ptr)
