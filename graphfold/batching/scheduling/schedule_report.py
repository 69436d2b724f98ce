"""ScheduleReport: how many calls of cells a schedule takes, and how few could do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from graphfold.batching.scheduling.pass_schedule import PassSchedule
from graphfold.batching.scheduling.passes import Pass, Rounds


@dataclass(frozen=True)
class Launches:
    """The calls of cells in one pass, or in all.

    Args:
        name: the pass.
        launches: how many groups run; each is one call of a cell.
        rows: how many rows the groups compute, that is, nodes that are not shared.
        nodes: how many nodes there are to compute.
        lower_bound: no schedule has fewer launches than this: nodes of one type on one path cannot
            run together, so it is the sum over types of the most such nodes on a path.
    """

    name: str
    launches: int
    rows: int
    nodes: int
    lower_bound: int

    @property
    def rows_per_launch(self) -> float:
        return self.rows / max(self.launches, 1)

    @property
    def ratio(self) -> float:
        """Launches over the lower bound: at least 1, or 0 without nodes."""
        return self.launches / max(self.lower_bound, 1)

    def to_dict(self) -> dict[str, Any]:
        """The figures as JSON has them."""
        return {**asdict(self), "rows_per_launch": self.rows_per_launch, "ratio": self.ratio}


@dataclass(frozen=True)
class ScheduleReport:
    """The report of a schedule: each pass, and the total. `str` gives a table."""

    passes: tuple[Launches, ...]

    @staticmethod
    def of(
        plans: Iterable[tuple[Pass, PassSchedule]], num_nodes: int | None = None
    ) -> ScheduleReport:
        """The report of some passes; rounds of message passing count as often as they run.

        Args:
            plans: the passes with their plans.
            num_nodes: how many nodes the graphs have; None for as many as rows.
        """
        return ScheduleReport(tuple(_launches(item, plan, num_nodes) for item, plan in plans))

    @property
    def total(self) -> Launches:
        """All passes together."""
        return Launches(
            "total",
            launches=sum(item.launches for item in self.passes),
            rows=sum(item.rows for item in self.passes),
            nodes=sum(item.nodes for item in self.passes),
            lower_bound=sum(item.lower_bound for item in self.passes),
        )

    def to_dict(self) -> dict[str, Any]:
        """{"passes": [...], "total": {...}}, ready for JSON."""
        return {
            "passes": [item.to_dict() for item in self.passes],
            "total": self.total.to_dict(),
        }

    def __str__(self) -> str:
        lines = [*self.passes, *([self.total] if len(self.passes) > 1 else [])]
        width = max(len(line.name) for line in lines)
        head = f"{'pass':{width}}  launches  lower bound  ratio  rows/launch    rows   nodes"
        rows = (
            f"{line.name:{width}}  {line.launches:8}  {line.lower_bound:11}  {line.ratio:5.2f}"
            f"  {line.rows_per_launch:11.1f}  {line.rows:6}  {line.nodes:6}"
            for line in lines
        )
        return "\n".join([head, *rows])


def _launches(item: Pass, plan: PassSchedule, num_nodes: int | None) -> Launches:
    name, times = type(item).__name__, 1
    if isinstance(item, Rounds):
        # In a round nodes read what was before, so each type that occurs takes one call.
        name, times, bound = f"Rounds({', '.join(item.relations)})", item.rounds, len(plan.groups)
    else:
        bound = lower_bound(plan)
    return Launches(
        name,
        launches=len(plan.groups) * times,
        rows=plan.num_rows * times,
        nodes=(plan.num_rows if num_nodes is None else num_nodes) * times,
        lower_bound=bound * times,
    )


def lower_bound(plan: PassSchedule) -> int:
    """The sum over types of the longest chain of that type, for a pass over acyclic edges."""
    types = sorted({group.op_type for group in plan.groups})
    column = {op_type: index for index, op_type in enumerate(types)}
    # [num_rows + 1, num_types] the most nodes of each type on a path that ends in the row.
    longest = np.zeros((plan.num_rows + 1, len(types)), dtype=np.int64)
    for group in plan.groups:
        below = longest[plan.group_child_row(group).numpy()]
        ptr = plan.group_ptr(group).numpy()
        has_children = np.flatnonzero(np.diff(ptr))
        own = longest[group.rows]
        if len(has_children):
            own[has_children] = np.maximum.reduceat(below, ptr[has_children])
        own[:, column[group.op_type]] += 1
    return int(longest.max(axis=0).sum())
