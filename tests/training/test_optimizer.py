"""Optimizers are fused where that is faster, and only there."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch.optim import SGD, Adagrad, Adam, AdamW, Optimizer, RMSprop

from graphfold.training.optimizer import build_optimizer

FUSED: list[Callable[..., Optimizer]] = [
    partial(Adagrad, lr=0.05, weight_decay=0.01),
    partial(Adam, lr=0.01),
    partial(AdamW, lr=0.01),
    partial(SGD, lr=0.1, momentum=0.9),
    Adam,
]


class Foreign(Adagrad):
    """An optimizer of another package, whose `fused` may mean anything."""


Foreign.__module__ = "elsewhere"


def parameters() -> list[torch.nn.Parameter]:
    draw = torch.Generator().manual_seed(0)
    return [torch.nn.Parameter(torch.randn(7, 3, generator=draw)) for _ in range(2)]


def option(optimizer: Optimizer, name: str) -> Any:
    return optimizer.param_groups[0].get(name)


@pytest.mark.parametrize("make", FUSED)
def test_on_a_cpu_torch_optimizers_are_fused_and_do_the_same(make: Callable[..., Any]) -> None:
    ours, theirs = parameters(), parameters()
    for optimizer, values in ((build_optimizer(make, ours), ours), (make(theirs), theirs)):
        assert bool(option(optimizer, "fused")) is (values is ours)
        for _ in range(3):
            for value in values:
                value.grad = value.detach().sin()
            optimizer.step()
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize(
    "make",
    [
        partial(Adagrad, fused=False),
        partial(Adagrad, foreach=True),
        RMSprop,  # has no such implementation
        Foreign,
    ],
)
def test_what_the_config_or_the_class_says_stays(make: Callable[..., Any]) -> None:
    assert not option(build_optimizer(make, parameters()), "fused")


def test_on_another_device_the_default_stays() -> None:
    values = [torch.nn.Parameter(torch.zeros(2, device="meta"))]
    assert not option(build_optimizer(Adagrad, values), "fused")
