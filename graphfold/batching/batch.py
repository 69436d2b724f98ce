"""Batch: graphs and their plan, together on one device; and what plans it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from graphfold._torch import outside_modes
from graphfold.batching.scheduling.deduplicate import EqualNodes
from graphfold.batching.scheduling.filling import Filling
from graphfold.batching.scheduling.passes import Pass
from graphfold.batching.scheduling.schedule import Schedule, build_schedule
from graphfold.dag import TypedDAG
from graphfold.errors import KindError, ShapeError, kind_of


class Batch:
    """The input of a model: graphs and their plan.

    It is no dataclass, so that loops such as Lightning's, which look for tensors in dataclasses,
    hand it on as it is; models convert its columns themselves.

    Args:
        dag: the graphs.
        schedule: their plan, built from the model's passes.
        versions: the `versions` of the graphs for which the schedule is known to be theirs.

    Raises:
        ShapeError: if the schedule was built for other graphs; it is not looked at on a GPU.
    """

    def __init__(
        self, dag: TypedDAG, schedule: Schedule, versions: list[int] | None = None
    ) -> None:
        self.dag, self.schedule = dag, schedule
        self.versions = versions
        self.require_schedule()

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "versions": None}  # tensors of copies count from zero

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.dag!r})"

    def require_schedule(self) -> None:
        """Raises ShapeError unless the schedule was built for these graphs.

        Once that is so, it looks again where torch has counted a change in place since.
        """
        dag = self.computed.dag
        if not dag.op_type.is_cpu or (self.versions and self.versions == dag.versions):
            return
        if dag.structure != self.schedule.structure:
            raise ShapeError(
                f"the schedule was built for other graphs than these {dag.num_graphs} with "
                f"{dag.num_nodes} nodes. Build it from the graphs of the batch: "
                "build_schedule(dag, passes)."
            )
        self.versions = dag.versions

    @property
    def num_graphs(self) -> int:
        return self.dag.num_graphs

    @property
    def computed(self) -> Batch:
        """The graphs that the model runs, with their plan."""
        return self

    def map_tensors(self, function: Callable[[Tensor], Tensor]) -> Batch:
        """A copy with `function` applied to every tensor."""
        return Batch(self.dag.map_tensors(function), self.schedule.map_tensors(function))

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Batch:
        """A copy on `device`; the batch itself if it is there."""
        if self.dag.op_type.device == torch.device(device):
            return self
        return self.map_tensors(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> Batch:
        """A copy in page-locked memory, for quick transfers to a GPU."""
        return self.map_tensors(lambda tensor: tensor.pin_memory())


class LoweredBatch(Batch):
    """A batch of a model that makes graphs of its own, one for each graph of the data.

    `dag` holds the graphs of the data, which heads and metrics read; `schedule` is the plan of
    `lowered`.

    Args:
        dag: the graphs of the data.
        schedule: the plan of `lowered`.
        lowered: the graphs that the model computes.
        versions: those of `lowered`, see `Batch`.
    """

    def __init__(
        self,
        dag: TypedDAG,
        schedule: Schedule,
        lowered: TypedDAG,
        versions: list[int] | None = None,
    ) -> None:
        self._computed = Batch(lowered, schedule, versions)  # which requires the schedule
        self.dag, self.schedule, self.lowered = dag, schedule, lowered
        self.versions = None

    @property
    def computed(self) -> Batch:
        """The graphs that the model runs, with their plan."""
        return self._computed

    def map_tensors(self, function: Callable[[Tensor], Tensor]) -> LoweredBatch:
        """A copy with `function` applied to every tensor."""
        return LoweredBatch(
            self.dag.map_tensors(function),
            self.schedule.map_tensors(function),
            self.lowered.map_tensors(function),
        )


def require_batch(value: object, remedy: str) -> None:
    """Raises KindError, with the remedy, unless an object is a batch."""
    if not isinstance(value, Batch):
        raise KindError(f"a model takes a Batch, but this is {kind_of(value)}. {remedy}.")


def plan_once(dag: TypedDAG, passes: tuple[Pass, ...]) -> Batch:
    """Graphs with the plan of some passes, on their device; the graphs keep it for later calls."""
    # Not the batch itself: graphs that hold what holds them would wait for Python's collector.
    schedule, versions = dag.plans.get(passes, (None, None))
    batch = Batch(dag, schedule or _plan(dag, passes), versions)
    dag.plans[passes] = batch.schedule, batch.versions
    return batch


@outside_modes  # a later training uses it, too
def _plan(dag: TypedDAG, passes: Sequence[Pass]) -> Schedule:
    schedule = build_schedule(dag if dag.on_cpu is None else dag.on_cpu, passes)
    return schedule.to(dag.op_type.device)


def plan_batch(
    dag: TypedDAG,
    lowered: TypedDAG | None,
    passes: Sequence[Pass],
    policy: str = "depth",
    share: bool = False,
    equal: EqualNodes | None = None,
    filling: Filling | None = None,
) -> Batch:
    """A planned batch.

    Args:
        dag: the graphs of the data.
        lowered: those that the model computes in their place; None if it computes `dag` itself.
        passes: the passes of the model.
        policy: how to plan them.
        share: whether equal nodes are computed once.
        equal: which nodes of what is computed are equal, if it is known; see `build_schedule`.
        filling: the levels of padding; see `build_schedule`.
    """
    computed = dag if lowered is None else lowered
    versions = computed.versions
    schedule = build_schedule(computed, passes, policy, share, equal, filling)
    if lowered is None:
        return Batch(dag, schedule, versions)
    return LoweredBatch(dag, schedule, lowered, versions)
