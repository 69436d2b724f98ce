"""Tree-LSTMs as one writes them without batching: a loop over the nodes."""

from __future__ import annotations

import torch
from torch import Tensor

from graphfold.dag import TypedDAG
from graphfold.layers import LeafLSTMCell, NaryTreeLSTMCell


class TreeLSTMLoop:
    """Computes the states of a Tree-LSTM one node after another, on the weights of two cells.

    Args:
        inner: the cell of the type with children, by its op type.
        leaf: the cell of the type without children, by its op type; None if there is none.
    """

    def __init__(
        self, inner: tuple[int, NaryTreeLSTMCell], leaf: tuple[int, LeafLSTMCell] | None = None
    ) -> None:
        self.inner_type, self.inner = inner
        self.leaf = leaf

    def __call__(self, dag: TypedDAG, x: dict[int, Tensor]) -> Tensor:
        """[num_nodes, hidden_size] the field `h` of every node, in node order.

        Args:
            dag: the graphs.
            x: op type -> [num_nodes_of_type, input_size] features, in node order.
        """
        ptr, inputs = dag.input_ptr.tolist(), dag.input_index.tolist()
        types = dag.op_type.tolist()
        features = {op_type: torch.split(rows, 1) for op_type, rows in x.items()}
        number = _numbers_in_type(types)
        h: list[Tensor] = [torch.empty(0)] * len(types)
        c = list(h)
        absent = next(iter(x.values())).new_zeros(1, self.inner.fields["h"])
        for node in torch.argsort(dag.depth, stable=True).tolist():
            own = features[types[node]][number[node]]
            children = inputs[ptr[node] : ptr[node + 1]]
            if types[node] == self.inner_type:
                below_h = [absent if child < 0 else h[child] for child in children]
                below_c = [absent if child < 0 else c[child] for child in children]
                h[node], c[node] = self._inner(own, below_h, below_c)
            else:
                h[node], c[node] = self._leaf(own)
        return torch.cat(h)

    def _inner(
        self, x: Tensor, below_h: list[Tensor], below_c: list[Tensor]
    ) -> tuple[Tensor, Tensor]:
        cell = self.inner
        gates = cell.from_h(torch.cat(below_h, dim=1))
        if cell.from_x is not None:
            gates = gates + cell.from_x(x)
        *forget, i, o, u = gates.chunk(3 + len(below_h), dim=1)
        c = torch.sigmoid(i) * torch.tanh(u)
        for f, below in zip(forget, below_c, strict=True):
            c = c + torch.sigmoid(f) * below
        return torch.sigmoid(o) * torch.tanh(c), c

    def _leaf(self, x: Tensor) -> tuple[Tensor, Tensor]:
        assert self.leaf is not None
        i, o, u = self.leaf[1].from_x(x).chunk(3, dim=1)
        c = torch.sigmoid(i) * torch.tanh(u)
        return torch.sigmoid(o) * torch.tanh(c), c


def _numbers_in_type(types: list[int]) -> list[int]:
    """The position of each node among the nodes of its type."""
    seen: dict[int, int] = {}
    numbers = []
    for op_type in types:
        numbers.append(seen.get(op_type, 0))
        seen[op_type] = numbers[-1] + 1
    return numbers
