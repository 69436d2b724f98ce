"""The choice of a policy by the calls of cells that it needs for the graphs at hand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from graphfold.batching.scheduling.passes import Pass, Rounds
from graphfold.batching.scheduling.schedule import Schedule

#: The policies that are tried; of equally many calls, and without a trial, the first is taken.
CANDIDATES = ("depth", "critical_path")


def count_calls(
    passes: Sequence[Pass], plan: Callable[[str], Iterable[Schedule]]
) -> dict[str, float]:
    """Policy -> calls of cells per batch, fewest first.

    Args:
        passes: the passes of the model. Rounds of message passing need the same calls under every
            policy: for them alone nothing is planned, and the result is empty.
        plan: plans some batches under a policy.
    """
    if all(isinstance(item, Rounds) for item in passes):
        return {}
    calls = {name: _mean_calls(passes, list(plan(name))) for name in CANDIDATES}
    return dict(sorted(calls.items(), key=lambda item: item[1]))


def _mean_calls(passes: Sequence[Pass], schedules: Sequence[Schedule]) -> float:
    calls = sum(
        len(planned.groups) * (item.rounds if isinstance(item, Rounds) else 1)
        for schedule in schedules
        for item, planned in zip(passes, schedule.passes, strict=True)
    )
    return calls / max(len(schedules), 1)
