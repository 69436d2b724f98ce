"""GroupStates: the fields of a pass in one tensor per group, and what other groups read of them."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from graphfold.batching.engine.pass_inputs import PassInputs
from graphfold.batching.engine.routes import find_routes
from graphfold.batching.kernels.gather import select_rows
from graphfold.batching.scheduling.schedule import Group

#: First row of a group -> the group's part of something.
Parts = Mapping[int, Tensor]


class GroupStates:
    """The fields as the groups of a pass compute them.

    What a cell reads is always a copy: if it changes that in place, it changes nobody's state. The
    gradient of a slice, or of gathered rows, is as large as what they come from; so what several
    groups read of one tensor is gathered once and split.

    Args:
        inputs: the pass.
    """

    def __init__(self, inputs: PassInputs) -> None:
        self._inputs = inputs
        self._routes = find_routes(inputs.plan)
        # Row 0, what absent children read, stands there like a group that came first.
        self._fields = {name: {0: self._absent_row(name)} for name in inputs.fields}
        self._gathered: dict[tuple[str, int], Parts] = {}
        self._own: dict[str, Parts] = {}
        self._given: dict[str, Parts] = {}

    def add(self, group: Group, new: Mapping[str, Tensor]) -> None:
        """Notes what a group has computed; its other fields are as before the pass, or zeros."""
        inputs = self._inputs
        for name, width in inputs.fields.items():
            dtype = inputs.dtype(name)
            if name in new:
                rows = new[name].to(dtype)
            elif name in inputs.given:
                rows = self._own_rows(name)[group.start]
            else:
                rows = torch.zeros(group.size, width, dtype=dtype, device=inputs.device)
            self._fields[name][group.start] = rows

    def join(self) -> dict[str, Tensor]:
        """field -> [num_rows + 1, width], once all groups have run."""
        return {name: torch.cat(list(rows.values())) for name, rows in self._fields.items()}

    def children(self, field: str, group: Group) -> Tensor:
        """[num_child_edges, width] what the edges of a group read."""
        reader, routes = group.start, self._routes
        if field not in self._fields:
            return self._given_children(field)[reader].clone()
        sources = routes.sources.get(reader, ())
        if len(sources) == 1 and len(routes.counts[sources[0]]) == 1:
            return self._gather(field, sources[0])
        pieces = [self._pieces(field, source)[reader] for source in sources]
        if len(pieces) <= 1:
            return pieces[0].clone() if pieces else self._no_rows(field)
        return torch.cat(pieces).index_select(0, routes.order[reader])

    def previous(self, field: str, group: Group) -> Tensor:
        """[group_size, width] a field of the group's own nodes, as earlier passes left it."""
        return self._own_rows(field)[group.start].clone()

    def _pieces(self, field: str, source: int) -> Parts:
        """First row of a reader -> [num_read, width] what it reads of a source."""
        if (field, source) not in self._gathered:
            counts = self._routes.counts[source]
            pieces = self._gather(field, source).split_with_sizes(list(counts.values()))
            self._gathered[field, source] = dict(zip(counts, pieces, strict=True))
        return self._gathered[field, source]

    def _gather(self, field: str, source: int) -> Tensor:
        return select_rows(self._fields[field][source], self._routes.index[source])

    def _own_rows(self, field: str) -> Parts:
        """The rows of each group of a field of earlier passes."""
        if field not in self._own:
            self._own[field] = self._inputs.plan.split_rows(self._inputs.given[field])
        return self._own[field]

    def _given_children(self, field: str) -> Parts:
        """What each group reads of a field that this pass does not write."""
        if field not in self._given:
            plan = self._inputs.plan
            rows = select_rows(self._inputs.given[field], plan.child_row)
            self._given[field] = plan.split_edges(rows)
        return self._given[field]

    def _absent_row(self, field: str) -> Tensor:
        inputs, width = self._inputs, self._inputs.fields[field]
        if field in inputs.absent:
            return inputs.absent[field].view(1, width).to(inputs.dtype(field))
        return torch.zeros(1, width, dtype=inputs.dtype(field), device=inputs.device)

    def _no_rows(self, field: str) -> Tensor:
        return self._fields[field][0].new_empty(0, self._inputs.fields[field])
