"""Loops as one writes them by hand.

`LevelLoop` goes over the levels of Tree-FC, forward and backward for this one cell, without an
engine and without autograd. `TreeLSTMLoop` and the functions below go over the nodes.
"""

from __future__ import annotations

from copy import copy
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function

from graphfold.dag import TypedDAG
from graphfold.layers import LeafLSTMCell, NaryTreeLSTMCell


class _Level(NamedTuple):
    """The inner nodes of one depth."""

    rows: slice  # of the state
    inner: slice  # the same among the inner nodes
    children: Tensor  # [2 * num_nodes] the rows that they read


class LevelLoop:
    """Computes the roots of binary trees whose leaves have a given state.

    Args:
        dag: the trees, whose children come before their parents.
    """

    def __init__(self, dag: TypedDAG) -> None:
        order = torch.argsort(dag.depth, stable=True)  # leaves first, in their own order
        row = torch.empty_like(order)
        row[order] = torch.arange(len(order))
        sizes = torch.bincount(dag.depth).tolist()
        self.num_leaves = sizes[0]
        by_node = row[dag.input_index].view(-1, 2)  # of inner nodes, in node order
        of_inner = torch.argsort(row[dag.depth > 0])
        children = by_node[of_inner].flatten()
        self.roots = row[dag.output_index]
        #: Row -> the only edge that reads it; the roots are read by edges behind all others.
        self.reader = torch.empty_like(row)
        self.reader[torch.cat([children, self.roots])] = torch.arange(len(row))
        self.levels = []
        begin = 0
        for size in sizes[1:]:
            inner = slice(begin, begin + size)
            rows = slice(self.num_leaves + begin, self.num_leaves + begin + size)
            self.levels.append(_Level(rows, inner, children[2 * begin : 2 * (begin + size)]))
            begin += size

    def to(self, device: torch.device) -> LevelLoop:
        """The same on a device."""
        moved = copy(self)
        moved.roots, moved.reader = self.roots.to(device), self.reader.to(device)
        moved.levels = [one._replace(children=one.children.to(device)) for one in self.levels]
        return moved

    def __call__(self, leaves: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """[num_graphs, h] the states of the roots.

        Args:
            leaves: [num_leaves, h].
            weight: [h, 2 * h].
            bias: [h].
        """
        roots: Tensor = _Loop.apply(self, leaves, weight, bias)  # type: ignore[no-untyped-call]
        return roots


class _Loop(Function):
    @staticmethod
    def forward(ctx: Any, loop: LevelLoop, leaves: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        state = leaves.new_empty(len(loop.reader), len(bias))
        state[: loop.num_leaves] = leaves
        joined = leaves.new_empty(len(state) - loop.num_leaves, 2 * len(bias))
        for level in loop.levels:
            x = joined[level.inner]
            torch.index_select(state, 0, level.children, out=x.view(-1, len(bias)))
            new = state[level.rows]
            torch.addmm(bias, x, weight.t(), out=new)
            new.clamp_min_(0)
        ctx.loop = loop
        ctx.save_for_backward(state, joined, weight)
        return state.index_select(0, loop.roots)

    @staticmethod
    def backward(ctx: Any, grad_roots: Tensor) -> tuple[Tensor | None, ...]:
        loop: LevelLoop = ctx.loop
        state, joined, weight = ctx.saved_tensors
        of_edges, grads = torch.empty_like(state), state.new_empty(len(joined), state.shape[1])
        of_edges[2 * len(joined) :] = grad_roots
        for level in reversed(loop.levels):
            grad = of_edges.index_select(0, loop.reader[level.rows])
            mine = grads[level.inner]
            torch.mul(grad, state[level.rows] > 0, out=mine)
            edges = of_edges[2 * level.inner.start : 2 * level.inner.stop]
            torch.mm(mine, weight, out=edges.view(len(mine), -1))
        of_leaves = of_edges.index_select(0, loop.reader[: loop.num_leaves])
        return None, of_leaves, grads.t() @ joined, grads.sum(0)


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
