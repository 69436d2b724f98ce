"""Row gradients: left by those that read a field's rows, fetched when the rows' turn comes."""

from __future__ import annotations

from bisect import bisect_left
from functools import cached_property
from itertools import pairwise

import torch
from torch import Tensor

from graphfold.batching.engine.group_readers import GroupReaders
from graphfold.batching.kernels.segment import gather_sum
from graphfold.batching.scheduling.schedule import Group, PassSchedule


class RowGradients:
    """The gradient with respect to one field of all rows, while the groups run in reverse.

    Adding every reader's gradient to the rows that it read would need zeros to add to, and on a
    GPU the order of such sums is not fixed. So readers leave their gradients in the order of edges,
    and a group pulls what its rows need: a view where the rows are read in one piece, one gather in
    a tree, a sum over readers elsewhere. If all groups are read in one piece, as in chains, the
    gradients stay where the readers have them: memory that is free again soon.

    Args:
        plan: the plan of the pass.
        readers: who reads the rows of its groups.
        state: [num_rows + 1, width] the field.
        incoming: [num_rows + 1, width] the gradient that comes from outside of the pass, dense or
            sparse, or None.
        complete: whether every group that has children leaves a gradient for them.
    """

    def __init__(
        self,
        plan: PassSchedule,
        readers: GroupReaders,
        state: Tensor,
        incoming: Tensor | None,
        complete: bool,
    ) -> None:
        self._plan = plan
        self._readers = readers
        self._state = state
        self._incoming = None if incoming is None else _Incoming(incoming, plan)
        self._complete = complete
        self._pieces: list[tuple[Group, Tensor]] = []  # of readers, where nothing is gathered
        self._places: dict[int, Tensor] = {}  # first row of a group -> its part of `_edges`
        self._sums: Tensor | None = None  # [num_rows, width]

    def place(self, group: Group) -> Tensor | None:
        """[num_child_edges, width] where to write the gradient of the children that a group read.

        None where it is to be given to `put`.
        """
        return self._find_places()[group.start] if self._plan.is_gathered else None

    def put(self, group: Group, grad: Tensor) -> None:
        """Leaves the gradient [num_child_edges, width] of the children that a group read."""
        if self._plan.is_gathered:
            self._find_places()[group.start].copy_(grad)
        else:
            self._pieces.append((group, grad))

    def put_sum(self, group: Group, grad: Tensor) -> None:
        """Leaves the gradient [group_size, width] of a group's sums over children."""
        if self._sums is None:
            self._sums = self._state.new_zeros(self._plan.num_rows, self._state.shape[1])
        self._sums[group.positions] = grad

    def pull(self, group: Group) -> Tensor | None:
        """[group_size, width] the gradient of a group's rows; None if nothing depends on them.

        All groups that read it have left their gradients.
        """
        total = self._pull_edges(group) if group.num_read else None
        is_own = group.first_edge < 0  # gathered into memory that nobody else has a hold of
        if self._sums is not None and group.num_read:
            part = gather_sum(self._sums, self._readers.rows(group), self._readers.ptr(group))
            total, is_own = part if total is None else part.add_(total), True
        if self._incoming is not None:
            total = self._incoming.add_to(total, group, is_own)
        return total

    def pull_all(self) -> Tensor | None:
        """[num_rows + 1, width] the gradient of all rows from within the pass, the absent too."""
        plan = self._plan
        total = None
        if self._is_read:
            total = gather_sum(self._edges, self._readers.all_edges, plan.reader_ptr)
        if self._sums is not None:
            part = gather_sum(self._sums, plan.reader, plan.reader_ptr)
            total = part if total is None else total + part
        return total

    def absent(self) -> Tensor | None:
        """[width] the gradient of row 0."""
        count, total = self._readers.num_absent, None
        if self._is_read:
            total = self._edges.index_select(0, self._readers.all_edges[:count]).sum(0)
        if self._sums is not None:
            part = self._sums.index_select(0, self._plan.reader[:count]).sum(0)
            total = part if total is None else total + part
        if self._incoming is not None:
            part = self._incoming.absent()
            total = part if total is None else total + part
        return total

    @property
    def _is_read(self) -> bool:
        """Whether a reader has left a gradient."""
        return bool(self._pieces or self._places)

    def _pull_edges(self, group: Group) -> Tensor | None:
        if not self._is_read:
            return None
        if group.first_edge >= 0:
            return self._pull_piece(group)
        if self._plan.reader_of_row is not None:
            return self._edges.index_select(0, self._readers.edge(group))
        return gather_sum(self._edges, self._readers.edges(group), self._readers.ptr(group))

    def _pull_piece(self, group: Group) -> Tensor | None:
        """The gradient of a group whose first rows are read by consecutive edges, as they lie."""
        begin, end = group.first_edge, group.first_edge + group.num_read
        is_gathered = self._plan.is_gathered
        grad = self._edges[begin + 1 : end + 1] if is_gathered else self._join_pieces(begin, end)
        missing = group.size - group.num_read
        if grad is None or not missing:
            return grad
        return torch.cat([grad, grad.new_zeros(missing, grad.shape[1])])

    def _join_pieces(self, begin: int, end: int) -> Tensor | None:
        """[end - begin, width] the gradient of some edges, which mostly lies in one piece."""
        parts, known = [], begin
        for source, piece in reversed(self._pieces):  # as their edges follow each other
            start, stop = max(begin, source.edge_start), min(end, source.edge_stop)
            if source.edge_start >= end:
                break
            if start < stop:
                parts += [piece.new_zeros(start - known, piece.shape[1])] if known < start else []
                parts.append(piece[start - source.edge_start : stop - source.edge_start])
                known = stop
        if not parts:
            return None
        if known < end:
            parts.append(self._state.new_zeros(end - known, self._state.shape[1]))
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _find_places(self) -> dict[int, Tensor]:
        if not self._places:
            self._places = self._plan.split_edges(self._edges[1:])
        return self._places

    @cached_property
    def _edges(self) -> Tensor:
        """[num_edges + 1, width] all gradients in the order of edges; row 0 is zero."""
        shape = self._plan.child_row.shape[0] + 1, self._state.shape[1]
        fill = self._state.new_empty if self._complete else self._state.new_zeros
        edges = fill(shape)
        edges[0] = 0
        for group, grad in self._pieces:
            edges[group.edge_start + 1 : group.edge_stop + 1] = grad
        return edges


class _Incoming:
    """The gradient of a field that comes from outside of the pass."""

    def __init__(self, grad: Tensor, plan: PassSchedule) -> None:
        # Sorting rows by group asks for numbers on this side of the device.
        if grad.is_sparse and (grad.device.type != "cpu" or 4 * grad._nnz() > len(grad)):
            grad = grad.to_dense()
        self._grad = grad
        if not grad.is_sparse:
            self._parts = plan.split_rows(grad)
            return
        self._rows, self._values = grad._indices()[0], grad._values()
        listed = self._rows.tolist()
        in_order = sorted(listed)
        if in_order != listed:
            self._rows, order = torch.sort(self._rows)
            self._values = self._values.index_select(0, order)
        starts = [0, *(group.start for group in plan.groups)]
        bounds = [*(bisect_left(in_order, start) for start in starts), len(in_order)]
        self._bounds = dict(zip(starts, pairwise(bounds), strict=True))

    def add_to(self, total: Tensor | None, group: Group, in_place: bool) -> Tensor | None:
        """[group_size, width] the gradient of a group's rows, added to `total` if there is one."""
        if not self._grad.is_sparse:
            part = self._parts[group.start]
            if total is None:
                return part
            return total.add_(part) if in_place else total + part
        begin, end = self._bounds[group.start]
        if begin == end:
            return total
        if total is None:
            total, in_place = self._values.new_zeros(group.size, self._values.shape[1]), True
        add = total.index_add_ if in_place else total.index_add
        return add(0, self._rows[begin:end] - group.start, self._values[begin:end])

    def absent(self) -> Tensor:
        """[width] that of row 0."""
        if not self._grad.is_sparse:
            return self._grad[0]
        begin, end = self._bounds[0]
        return self._values[begin:end].sum(0)
