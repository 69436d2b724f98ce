"""Row gradients: left by those that read a field's rows, fetched when the rows' turn comes."""

from __future__ import annotations

from bisect import bisect_left
from itertools import pairwise

import torch
from torch import Tensor

from graphfold.batching.engine.group_readers import GroupReaders
from graphfold.batching.kernels.segment import gather_sum
from graphfold.batching.scheduling.schedule import Group, PassSchedule


class RowGradients:
    """The gradient with respect to one field of all rows, while the groups run in reverse.

    Adding every reader's gradient to the rows that it read would need zeros to add to, and on a
    GPU the order of such sums is not fixed. So readers leave their gradients where they are, in the
    order of edges, and a group pulls what its rows need: a view where the rows are read in one
    piece, one gather in a tree, a sum over readers elsewhere.

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
        self._pieces: list[tuple[Group, Tensor]] = []  # not yet in `_edges`
        self._edges: Tensor | None = None  # [num_edges + 1, width], row 0 is zero
        self._sums: Tensor | None = None  # [num_rows, width]

    def put(self, group: Group, grad: Tensor) -> None:
        """Leaves the gradient [num_child_edges, width] of the children that a group read."""
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
        if self._sums is not None and group.num_read:
            part = gather_sum(self._sums, self._readers.rows(group), self._readers.ptr(group))
            total = part if total is None else total + part
        if self._incoming is not None:
            total = self._incoming.add_to(total, group)
        return total

    def pull_all(self) -> Tensor | None:
        """[num_rows + 1, width] the gradient of all rows from within the pass, the absent too."""
        plan = self._plan
        total = None
        if self._pieces or self._edges is not None:
            total = gather_sum(self._written(), self._readers.all_edges, plan.reader_ptr)
        if self._sums is not None:
            part = gather_sum(self._sums, plan.reader, plan.reader_ptr)
            total = part if total is None else total + part
        return total

    def absent(self) -> Tensor | None:
        """[width] the gradient of row 0."""
        count, total = self._readers.num_absent, None
        if self._pieces or self._edges is not None:
            total = self._written().index_select(0, self._readers.all_edges[:count]).sum(0)
        if self._sums is not None:
            part = self._sums.index_select(0, self._plan.reader[:count]).sum(0)
            total = part if total is None else total + part
        if self._incoming is not None:
            part = self._incoming.absent()
            total = part if total is None else total + part
        return total

    def _pull_edges(self, group: Group) -> Tensor | None:
        if group.first_edge >= 0:
            return self._pull_piece(group)
        if not self._pieces and self._edges is None:
            return None
        written, plan = self._written(), self._plan
        if plan.reader_of_row is not None:
            return written.index_select(0, plan.reader_of_row[group.start : group.stop])
        return gather_sum(written, self._readers.edges(group), self._readers.ptr(group))

    def _pull_piece(self, group: Group) -> Tensor | None:
        """The gradient of a group whose first rows are read by consecutive edges, as they lie."""
        begin, end = group.first_edge, group.first_edge + group.num_read
        grad = None
        if self._edges is not None:
            grad = self._edges[begin + 1 : end + 1]
        for source, piece in reversed(self._pieces):
            if source.edge_start <= begin and end <= source.edge_stop:
                grad = piece[begin - source.edge_start : end - source.edge_start]
                break
            if source.edge_start < end and begin < source.edge_stop:
                grad = self._written()[begin + 1 : end + 1]
                break
        missing = group.size - group.num_read
        if grad is None or not missing:
            return grad
        return torch.cat([grad, grad.new_zeros(missing, grad.shape[1])])

    def _written(self) -> Tensor:
        """[num_edges + 1, width] all gradients so far in the order of edges."""
        if self._edges is None:
            shape = len(self._plan.child_row) + 1, self._state.shape[1]
            self._edges = (
                self._state.new_empty(shape) if self._complete else self._state.new_zeros(shape)
            )
            self._edges[0] = 0
        for group, grad in self._pieces:
            self._edges[group.edge_start + 1 : group.edge_stop + 1] = grad
        self._pieces.clear()
        return self._edges


class _Incoming:
    """The gradient of a field that comes from outside of the pass."""

    def __init__(self, grad: Tensor, plan: PassSchedule) -> None:
        # Sorting rows by group asks for numbers on this side of the device.
        if grad.is_sparse and (grad.device.type != "cpu" or 4 * grad._nnz() > len(grad)):
            grad = grad.to_dense()
        self._grad = grad
        if not grad.is_sparse:
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

    def add_to(self, total: Tensor | None, group: Group) -> Tensor | None:
        """[group_size, width] the gradient of a group's rows, added to `total` if there is one."""
        if not self._grad.is_sparse:
            part = self._grad[group.rows]
            return part if total is None else total + part
        begin, end = self._bounds[group.start]
        if begin == end:
            return total
        if total is None:
            total = self._values.new_zeros(group.size, self._values.shape[1])
        return total.index_add(0, self._rows[begin:end] - group.start, self._values[begin:end])

    def absent(self) -> Tensor:
        """[width] that of row 0."""
        if not self._grad.is_sparse:
            return self._grad[0]
        begin, end = self._bounds[0]
        return self._values[begin:end].sum(0)
