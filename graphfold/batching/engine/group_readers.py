"""Who reads the rows of a group: where their gradients come from."""

from __future__ import annotations

from functools import cached_property

from torch import Tensor

from graphfold.batching.scheduling.schedule import Group, PassSchedule


class GroupReaders:
    """The edges that read the rows of each group, found once for all fields of a pass.

    Args:
        plan: the plan of the pass.
    """

    def __init__(self, plan: PassSchedule) -> None:
        self._plan = plan
        self._ptr: dict[int, Tensor] = {}
        #: How many edges read row 0, what stands for absent children; they come first.
        self.num_absent = len(plan.reader_edge) - sum(group.num_read for group in plan.groups)
        self._first: dict[int, int] = {}  # where a group's edges begin, by its first row
        first = self.num_absent
        for group in plan.groups:
            self._first[group.start] = first
            first += group.num_read

    def edges(self, group: Group) -> Tensor:
        """[num_read] the edges, from 1 on, sorted by the row that they read."""
        first = self._first[group.start]
        return self.all_edges[first : first + group.num_read]

    def rows(self, group: Group) -> Tensor:
        """[num_read] the positions of the rows that read, in the same order."""
        first = self._first[group.start]
        return self._plan.reader[first : first + group.num_read]

    def ptr(self, group: Group) -> Tensor:
        """[group_size + 1] where those of each row begin among the group's."""
        if group.start not in self._ptr:
            part = self._plan.reader_ptr[group.start : group.stop + 1]
            self._ptr[group.start] = part - self._first[group.start]
        return self._ptr[group.start]

    @cached_property
    def all_edges(self) -> Tensor:
        """[num_edges] the edges of all rows, from 1 on."""
        return self._plan.reader_edge + 1
