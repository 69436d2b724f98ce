"""Rows read through an index, and the sums that are the gradient of that.

Each function here is linear, and the gradient of each is another of them, so all of them can be
differentiated any number of times. No sum is made by atomic additions: equal input gives equal bits
on every device.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from graphfold._torch import is_batched, is_transformed, outside_modes
from graphfold.dag import TypedDAG
from graphfold.dag.depth import count_pointers, stable_order
from graphfold.dag.typed_dag import to_device

#: The mode of `torch.embedding_bag` that adds up.
_SUM = 0
#: So many neighbour rows may be held at once where an edge's own gradient needs them.
EDGES_PER_CHUNK = 1 << 16


def gather_sum(values: Tensor, index: Tensor, ptr: Tensor, weight: Tensor | None = None) -> Tensor:
    """[num_segments, width] sums of `values[index]` per segment, without a derivative."""
    # Not by len(), which takes ten times as long: this runs for every field of every group.
    num_segments, width = ptr.shape[0] - 1, values.shape[1]
    if index.shape[0] == 0 or num_segments == 0 or width == 0:
        return values.new_zeros(num_segments, width)
    # Detached, it does not note what only a gradient of its own would need. The function behind
    # that of nn.functional takes half of the time for few rows.
    weight = None if weight is None else weight.detach()
    return torch.embedding_bag(values.detach(), index, ptr, False, _SUM, False, weight, True)[0]


class RowIndex:
    """Rows that are read again and again, by every column of every step over a plan.

    Their readers, which the gradient needs on a GPU, are sorted once, and on the CPU: there it
    takes a tenth of the time, and nobody waits for it.

    Args:
        rows: [num_edges] the row that each edge reads.
        on_cpu: the same on the CPU; None if this one is there.
    """

    def __init__(self, rows: Tensor, on_cpu: RowIndex | None = None) -> None:
        self.rows = rows
        self.on_cpu = on_cpu
        self._readers: tuple[Tensor, Tensor] | None = None
        self._derived: dict[Hashable, RowIndex] = {}

    def map_tensors(self, function: Callable[[Tensor], Tensor]) -> RowIndex:
        """A copy with `function` applied to its rows (a move, a pin)."""
        there = function(self.rows)
        return RowIndex(there, None if there.is_cpu else self.on_cpu or self)

    @staticmethod
    def of(dag: TypedDAG, find: Callable[[TypedDAG], Tensor]) -> RowIndex:
        """Nodes of graphs, known where the graphs are and on the CPU.

        Args:
            dag: the graphs; copies on a device keep what is found.
            find: returns the nodes of graphs; equal functions find the same.
        """
        if dag.on_cpu is None:
            return RowIndex(find(dag))
        if find not in dag.indices:
            dag.indices[find] = RowIndex(outside_modes(find)(dag), RowIndex.of(dag.on_cpu, find))
        return dag.indices[find]  # type: ignore[no-any-return]

    @staticmethod
    def for_device(rows: Tensor, device: torch.device) -> RowIndex:
        """Rows that are found on the CPU, for a device."""
        return RowIndex(rows).map_tensors(lambda rows: to_device(rows, device))

    @property
    def rows_on_cpu(self) -> Tensor | None:
        """[num_edges] the rows on the CPU; None if a GPU alone knows them."""
        if self.rows.is_cpu:
            return self.rows
        return None if self.on_cpu is None else self.on_cpu.rows

    def at(self, edges: RowIndex) -> RowIndex:
        """The rows that some of the edges read."""
        if edges.on_cpu is None:
            return RowIndex(self.rows.index_select(0, edges.rows))
        return self.derive(edges, lambda own, read: own.index_select(0, read), edges)

    def derive(
        self, key: Hashable, function: Callable[..., Tensor], other: RowIndex | None = None
    ) -> RowIndex:
        """The rows that a function makes of these; copies on a device keep them by the key.

        Args:
            key: names the function.
            function: called with the rows, and with those of `other`, both of one device.
            other: further rows.
        """
        others = [] if other is None else [other.rows]
        if self.on_cpu is None:
            return RowIndex(function(self.rows, *others))
        if key not in self._derived:
            own = self.on_cpu.derive(key, function, other and other.on_cpu)
            self._derived[key] = RowIndex(outside_modes(function)(self.rows, *others), own)
        return self._derived[key]

    def readers(self, num_rows: int) -> tuple[Tensor, Tensor]:
        """See `sort_readers`; always of as many rows."""
        if self._readers is None:
            self._readers = self._find_readers(num_rows)
        return self._readers

    @outside_modes
    def _find_readers(self, num_rows: int) -> tuple[Tensor, Tensor]:
        if self.on_cpu is None:
            return sort_readers(self.rows, num_rows)
        edge, ptr = to_device(self.on_cpu.readers(num_rows), self.rows.device)
        return edge, ptr


@dataclass(frozen=True)
class OfTypes:
    """Finds the nodes of some types, for `RowIndex.of`."""

    types: frozenset[int]

    def __call__(self, dag: TypedDAG) -> Tensor:
        """[num_nodes_of_types] the nodes, in node order."""
        return dag.nodes_of_types(self.types)[0]


def as_index(rows: Tensor | RowIndex) -> RowIndex:
    """Rows as a `RowIndex`."""
    return rows if isinstance(rows, RowIndex) else RowIndex(rows)


def select_rows(values: Tensor, index: Tensor | RowIndex) -> Tensor:
    """[num_edges, ...] `values[index]`."""
    index = as_index(index)
    if values.is_cpu or not values.requires_grad:
        return values.index_select(0, index.rows)  # one after another on a CPU, so always alike
    return gather_rows(values, index.rows, *index.readers(len(values)))


def sum_rows(values: Tensor, index: RowIndex, ptr: Tensor) -> Tensor:
    """[num_segments, width] sums of `values[index]` per segment, which are never held.

    ptr [num_segments + 1].
    """
    rows = index.rows
    if is_transformed():
        return _plain_sum(values, rows, ptr, None)
    if not (torch.is_grad_enabled() and values.requires_grad):
        return gather_sum(values, rows, ptr)
    edge, reader_ptr = index.readers(len(values))
    reader = parents(ptr, len(rows)).index_select(0, edge)
    return sum_gathered(values, rows, ptr, reader, reader_ptr, None, edge)


def sort_readers(index: Tensor, num_rows: int) -> tuple[Tensor, Tensor]:
    """The edges sorted by the row that they read, and where each row's edges begin.

    Shape:
        index: [num_edges] the row that each edge reads
        returns: [num_edges], [num_rows + 1]
    """
    if index.is_cpu:  # in a third of the time
        numbers = index.numpy()
        order, ptr = stable_order(numbers), count_pointers(numbers, num_rows)
        return torch.from_numpy(order), torch.from_numpy(ptr)
    edge = torch.argsort(index, stable=True)
    rows = torch.arange(num_rows + 1, device=index.device)
    return edge, torch.searchsorted(index.index_select(0, edge), rows)


def gather_rows(values: Tensor, index: Tensor, reader_edge: Tensor, reader_ptr: Tensor) -> Tensor:
    """[num_edges, width] `values[index]`.

    Args:
        values: [num_rows, width]
        index: [num_edges] the row that each edge reads.
        reader_edge: [num_edges] the edges sorted by the row that they read.
        reader_ptr: [num_rows + 1] where the edges of each row begin among them.
    """
    return sum_gathered(values, index, None, reader_edge, reader_ptr, None, reader_edge)


def scatter_rows(rows: Tensor, index: Tensor, reader_edge: Tensor, reader_ptr: Tensor) -> Tensor:
    """[num_rows, width] the transpose of `gather_rows`: the sum of the edges that read each row."""
    return sum_gathered(rows, reader_edge, reader_ptr, index, None, None, reader_edge)


def sum_gathered(
    values: Tensor,
    index: Tensor,
    ptr: Tensor | None,
    reader: Tensor,
    reader_ptr: Tensor | None,
    weight: Tensor | None,
    reader_edge: Tensor,
) -> Tensor:
    """Sums `values[index]`, each times its weight, over the segments of `ptr`.

    Shape:
        values: [num_rows, width]
        index: [num_edges] the row that each edge reads, sorted by segment
        ptr: [num_segments + 1], or None if each edge is a segment
        reader: [num_edges] the segment that reads, sorted by the row that is read
        reader_ptr: [num_rows + 1] where the readers of each row begin, or None if each has one
        weight: [num_edges] sorted by segment, or None for ones
        reader_edge: [num_edges] the edge of each reader, sorted by the row that is read
        returns: [num_segments, width]
    """
    if is_transformed() or is_batched(values):
        return _plain_sum(values, index, ptr, weight)
    total: Tensor = _GatherSum.apply(  # type: ignore[no-untyped-call]
        values, index, ptr, reader, reader_ptr, weight, reader_edge
    )
    return total


def _plain_sum(values: Tensor, index: Tensor, ptr: Tensor | None, weight: Tensor | None) -> Tensor:
    """`sum_gathered` by operations that transforms of torch follow; the gathered rows are held."""
    rows = values.index_select(0, index)
    if weight is not None:
        rows = rows * weight.unsqueeze(1)
    if ptr is None:
        return rows
    total = rows.new_zeros(ptr.shape[0] - 1, rows.shape[1])
    return total.index_add(0, parents(ptr, index.shape[0]), rows)


class _GatherSum(torch.autograd.Function):
    """`sum_gathered`, without ever holding the gathered rows.

    Forward and backward are the same operation: the gradient of a row is the sum of the gradients
    of the segments that read it.
    """

    @staticmethod
    def forward(
        ctx: Any,
        values: Tensor,
        index: Tensor,
        ptr: Tensor | None,
        reader: Tensor,
        reader_ptr: Tensor | None,
        weight: Tensor | None,
        reader_edge: Tensor,
    ) -> Tensor:
        kept = values if ctx.needs_input_grad[5] else None
        ctx.save_for_backward(index, ptr, reader, reader_ptr, weight, reader_edge, kept)
        if ptr is None:
            return values.index_select(0, index)
        return gather_sum(values, index, ptr, weight)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        index, ptr, reader, reader_ptr, weight, reader_edge, kept = ctx.saved_tensors
        back = None if weight is None else weight.index_select(0, reader_edge)
        if back is not None and torch.is_grad_enabled():  # a second backward looks for the way back
            reader_edge = _inverse(reader_edge)
        grad_values = sum_gathered(grad, reader, reader_ptr, index, ptr, back, reader_edge)
        grad_weight = None if kept is None else _edge_products(kept, index, grad, ptr)
        return grad_values, None, None, None, None, grad_weight, None


def _inverse(order: Tensor) -> Tensor:
    """The order that undoes `order`."""
    inverse = torch.empty_like(order)
    inverse[order] = torch.arange(len(order), device=order.device)
    return inverse


def _edge_products(values: Tensor, index: Tensor, grad: Tensor, ptr: Tensor) -> Tensor:
    """[num_edges] values[index] · grad[segment], some edges at a time to bound the memory."""
    parent = parents(ptr, len(index))
    chunks = zip(
        torch.split(index, EDGES_PER_CHUNK), torch.split(parent, EDGES_PER_CHUNK), strict=True
    )
    return torch.cat([(values[i] * grad[p]).sum(1) for i, p in chunks])


def parents(ptr: Tensor, num_rows: int) -> Tensor:
    """[num_rows] the segment of each row, without waiting for a GPU."""
    count = ptr[1:] - ptr[:-1]
    segment = torch.arange(len(count), device=ptr.device)
    return torch.repeat_interleave(segment, count, output_size=num_rows)
