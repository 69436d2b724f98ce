"""Gradients: what the backward of a pass collects."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import TypeVar

import torch
from torch import Tensor

from graphfold.batching.engine.row_gradients import RowGradients

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class Gradients:
    """The gradients that backward collects, laid out as the tensors they belong to."""

    state: dict[str, RowGradients]
    given: dict[str, Tensor]  # field -> [num_rows + 1, width]
    x: dict[tuple[int, str], Tensor] = field(default_factory=dict)
    edge: dict[str, Tensor] = field(default_factory=dict)
    outside: dict[int, Tensor] = field(default_factory=dict)  # parameters, then shared tensors
    checked: set[object] = field(default_factory=set)  # runners that found their inputs unchanged

    def add_outside(self, number: int, grad: Tensor) -> None:
        """Adds to the gradient of a parameter or a shared tensor."""
        if number in self.outside:
            self.outside[number].add_(grad)
        else:  # autograd may hand out one tensor twice, and ours is written to
            self.outside[number] = grad.clone()


def put(found: dict[Key, Tensor], key: Key, whole: Tensor, rows: slice, grad: Tensor) -> None:
    """Puts the gradient of some rows where that of the whole tensor is collected."""
    if grad.shape[0] == whole.shape[0]:
        found[key] = grad
        return
    if key not in found:
        found[key] = torch.zeros_like(whole)
    found[key][rows] = grad
