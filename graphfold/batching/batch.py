"""Batch: graphs and their plan, together on one device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from graphfold.batching.scheduling.schedule import Schedule
from graphfold.dag import TypedDAG


@dataclass(frozen=True, eq=False)
class Batch:
    """The input of a model: graphs and their plan.

    Args:
        dag: the graphs.
        schedule: their plan, built from the model's passes.
    """

    dag: TypedDAG
    schedule: Schedule

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
