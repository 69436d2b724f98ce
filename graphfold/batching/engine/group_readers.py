"""Who reads the rows of a group: where their gradients come from."""

from __future__ import annotations

from functools import cached_property
from itertools import accumulate

from torch import Tensor

from graphfold.batching.scheduling.schedule import Group, PassSchedule


class GroupReaders:
    """The edges that read the rows of each group, found once for all fields of a pass.

    Args:
        plan: the plan of the pass.
    """

    def __init__(self, plan: PassSchedule) -> None:
        self._plan = plan
        sizes = [group.num_read for group in plan.groups]
        #: How many edges read row 0, what stands for absent children; they come first.
        self.num_absent = plan.reader_edge.shape[0] - sum(sizes)
        self._sizes = [self.num_absent, *sizes]

    def edges(self, group: Group) -> Tensor:
        """[num_read] the edges, from 1 on, sorted by the row that they read."""
        return self._edges[group.start]

    def rows(self, group: Group) -> Tensor:
        """[num_read] the positions of the rows that read, in the same order."""
        return self._rows[group.start]

    def ptr(self, group: Group) -> Tensor:
        """[group_size + 1] where those of each row begin among the group's."""
        return self._ptr[group.start]

    def edge(self, group: Group) -> Tensor:
        """[group_size] the only edge that reads each row, from 1 on, or 0 if there is none.

        Only of a plan where no row is read by several edges.
        """
        return self._edge[group.start]

    @cached_property
    def all_edges(self) -> Tensor:
        """[num_edges] the edges of all rows, from 1 on."""
        return self._plan.reader_edge + 1

    @cached_property
    def _edges(self) -> dict[int, Tensor]:
        return self._split(self.all_edges)

    @cached_property
    def _rows(self) -> dict[int, Tensor]:
        return self._split(self._plan.reader)

    @cached_property
    def _ptr(self) -> dict[int, Tensor]:
        first = accumulate(self._sizes)
        ptr, groups = self._plan.reader_ptr, self._plan.groups
        return {g.start: ptr[g.start : g.stop + 1] - n for g, n in zip(groups, first, strict=False)}

    @cached_property
    def _edge(self) -> dict[int, Tensor]:
        assert self._plan.reader_of_row is not None
        return self._plan.split_rows(self._plan.reader_of_row)

    def _split(self, read: Tensor) -> dict[int, Tensor]:
        """First row of a group -> its part of what all edges have, sorted by what they read."""
        parts = read.split_with_sizes(self._sizes)
        return {g.start: part for g, part in zip(self._plan.groups, parts[1:], strict=True)}
