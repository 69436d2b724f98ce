"""GroupStates: the fields of a pass in one tensor per group, and what other groups read of them."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from graphfold.batching.engine.pass_inputs import EngineMode, PassInputs
from graphfold.batching.engine.rounds import RoundsInputs
from graphfold.batching.kernels.gather import gather_rows, select_rows, sum_gathered
from graphfold.batching.kernels.segment import segment_sum, use_plain
from graphfold.batching.scheduling.pass_schedule import Group, PassSchedule

#: First row of a group -> the group's part of something.
Parts = Mapping[int, Tensor]


class GroupStates(ABC):
    """The fields as the groups of a pass compute them.

    What is read of children is always a copy: if a cell changes it in place, it changes nobody's
    state. The gradient of a slice, or of gathered rows, is as large as what they come from; so what
    several groups read of one tensor is gathered once and split.

    Args:
        plan: of the pass.
        absent: field -> [1, width] what an absent child reads; all fields that the pass keeps.
    """

    def __init__(self, plan: PassSchedule, absent: Mapping[str, Tensor]) -> None:
        self.follow(plan)
        self._by_relation: dict[str, GroupStates] = {}
        # Row 0, what absent children read, stands there like a group that came first.
        self._fields = {name: {0: row} for name, row in absent.items()}
        self._mode = EngineMode()  # of all that is kept for later reads

    def follow(self, plan: PassSchedule) -> None:
        """Has children read along the edges of a plan."""
        self.plan, self._routes = plan, plan.routes
        self._pieces: dict[tuple[str, int], Parts] = {}

    def of_relation(self, relation: str) -> GroupStates:
        """The same states, read along the edges of one of several relations."""
        if relation not in self._by_relation:
            self._by_relation[relation] = copy.copy(self)
            self._by_relation[relation].follow(self.plan.by_relation[relation])
        return self._by_relation[relation]

    @abstractmethod
    def before(self, field: str, group: Group) -> Tensor | None:
        """[group_size, width] what the nodes of a group had before they run; None for nothing."""

    def add(self, group: Group, new: Mapping[str, Tensor]) -> None:
        """Notes what a group has computed; its other fields are as before, or zeros."""
        for name, rows in self._fields.items():
            own, absent = new.get(name, self.before(name, group)), rows[0]
            if own is None:
                own = absent.new_zeros(1, absent.shape[1]).expand(group.size, -1)
            rows[group.start] = own.to(absent.dtype)

    def previous(self, field: str, group: Group) -> Tensor:
        """[group_size, width] a field of the group's own nodes before they run."""
        rows = self.before(field, group)
        assert rows is not None  # see `Readable.check_previous`
        return rows

    def children(self, field: str, group: Group) -> Tensor:
        """[num_child_edges, width] what the edges of a group read."""
        sources = self._routes.sources.get(group.start, [])
        if len(sources) == 1 and len(self._routes.counts[sources[0]]) == 1:
            return self._gather(field, sources[0])
        pieces = [self._read_by_all(field, source)[group.start] for source in sources]
        if len(pieces) <= 1:
            return pieces[0].clone() if pieces else self._fields[field][0][:0].clone()
        return torch.cat(pieces).index_select(0, self._routes.order[group.start])

    def sum(self, field: str, weight: Tensor | None, group: Group) -> Tensor:
        """[group_size, width] sums over what the edges of a group read, weighted or not."""
        ptr, parent = self.plan.group_ptr(group), self.plan.group_parent(group)
        source = self._only_source(field, group)
        if source is None:
            rows = self.children(field, group)
            rows = rows if weight is None else rows * weight.unsqueeze(1)
            return segment_sum(rows, ptr, parent)
        values, index, by_row, row_ptr = self._read(field, source)
        reader = parent.index_select(0, by_row)
        return sum_gathered(values, index, ptr, reader, row_ptr, weight, by_row)

    def _only_source(self, field: str, group: Group) -> int | None:
        """The group that this one alone reads; None if others do, too, or it is small."""
        sources = self._routes.sources.get(group.start, ()) if field in self._fields else ()
        if len(sources) != 1 or len(self._routes.counts[sources[0]]) != 1:
            return None
        width = self._fields[field][0].shape[1:]
        return None if use_plain(self._routes.index[sources[0]], width) else sources[0]

    def _read_by_all(self, field: str, source: int) -> Parts:
        """First row of a reader -> [num_read, width] what it reads of a source."""
        if (field, source) not in self._pieces:
            counts = self._routes.counts[source]
            with self._mode.on():
                pieces = self._gather(field, source).split_with_sizes(list(counts.values()))
            self._pieces[field, source] = dict(zip(counts, pieces, strict=True))
        return self._pieces[field, source]

    def _gather(self, field: str, source: int) -> Tensor:
        values, index = self._fields[field][source], self._routes.index[source]
        if use_plain(index, values.shape[1:]) or not values.requires_grad:
            return values.index_select(0, index)
        return gather_rows(*self._read(field, source))

    def _read(self, field: str, source: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The rows that are read of a source, in order, as `gather_rows` takes them."""
        values = self._fields[field][source]
        ptr = self.plan.reader_ptr[source : source + values.shape[0] + 1]
        return values, self._routes.index[source], self._routes.by_row[source], ptr - ptr[0]


class LevelStates(GroupStates):
    """The states of a pass up or down: a group reads the groups before it.

    Args:
        inputs: the pass.
    """

    def __init__(self, inputs: PassInputs) -> None:
        self._inputs = inputs
        super().__init__(inputs.plan, dict(self._absent_rows()))
        self._own: dict[str, Parts] = {}
        self._given: dict[str, Parts] = {}

    def join(self) -> dict[str, Tensor]:
        """field -> [num_rows + 1, width], once all groups have run."""
        starts = [0, *(group.start for group in self.plan.in_row_order)]
        return {
            name: torch.cat([rows[start] for start in starts])
            for name, rows in self._fields.items()
        }

    def before(self, field: str, group: Group) -> Tensor | None:
        if field not in self._inputs.given:
            return None
        if field not in self._own:
            with self._mode.on():
                self._own[field] = self.plan.split_rows(self._inputs.given[field])
        return self._own[field][group.start]

    def children(self, field: str, group: Group) -> Tensor:
        if field in self._fields:
            return super().children(field, group)
        if field not in self._given:  # this pass does not write it
            with self._mode.on():
                rows = select_rows(self._inputs.given[field], self.plan.child_index)
                self._given[field] = self.plan.split_edges(rows)
        return self._given[field][group.start].clone()

    def _absent_rows(self) -> Iterator[tuple[str, Tensor]]:
        for name, width in self._inputs.fields.items():
            row = torch.zeros(1, width, dtype=self._inputs.dtype(name), device=self._inputs.device)
            own = self._inputs.absent.get(name)
            yield name, row if own is None else own.view(1, width).to(row.dtype)


class RoundStates(GroupStates):
    """The states of rounds of message passing: a node reads its neighbours in the round before.

    Args:
        inputs: the rounds.
    """

    def __init__(self, inputs: RoundsInputs) -> None:
        super().__init__(inputs.unrolled.plan, {n: inputs.absent[n] for n in inputs.initial})
        self._inputs = inputs

    def last(self) -> dict[tuple[str, int], Tensor]:
        """(field, op type) -> [size, width] what cells have computed in the last round."""
        unrolled = self._inputs.unrolled
        return {
            (name, op_type): self._fields[name][unrolled.rows(unrolled.num_rounds, op_type).start]
            for code, cell in self._inputs.cells.items()
            for op_type in unrolled.round_of(code)[1:]
            for name in cell.fields
        }

    def add(self, group: Group, new: Mapping[str, Tensor]) -> None:
        super().add(group, new)
        number, op_type = self._inputs.unrolled.round_of(group.op_type)
        if number > 1:  # nobody reads the round before the last any more
            for rows in self._fields.values():
                del rows[self._inputs.unrolled.rows(number - 2, op_type).start]

    def before(self, field: str, group: Group) -> Tensor | None:
        number, op_type = self._inputs.unrolled.round_of(group.op_type)
        if number == 0:
            return self._inputs.initial[field].get(op_type)
        first, rows = self._inputs.unrolled.previous(group)
        before = self._fields[field][first]
        return before if rows is None else select_rows(before, rows)
