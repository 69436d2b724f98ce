"""Fused optimizers, sparse gradients, frozen parts."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.optim import SGD, Adagrad, Adam, AdamW, Optimizer, RMSprop
from training.tiny_runs import train, write_molecules

from graphfold.errors import ConfigError
from graphfold.training.loop.optimisation import (
    build_optimizer,
    freeze,
    in_training_mode,
    skips_absent_rows,
)

FUSED: list[Callable[..., Optimizer]] = [
    partial(Adagrad, lr=0.05, weight_decay=0.01),
    partial(Adam, lr=0.01),
    partial(AdamW, lr=0.01),
    partial(SGD, lr=0.1, momentum=0.9),
    Adam,
]


class Foreign(Adagrad):
    """An optimizer of another package; its `fused` may mean something else."""


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
def test_settings_of_the_config_or_the_class_stay(make: Callable[..., Any]) -> None:
    assert not option(build_optimizer(make, parameters()), "fused")


def test_on_another_device_the_default_stays() -> None:
    values = [torch.nn.Parameter(torch.zeros(2, device="meta"))]
    assert not option(build_optimizer(Adagrad, values), "fused")


@pytest.mark.parametrize("make", [partial(Adagrad, lr=0.1, lr_decay=0.01), partial(SGD, lr=0.1)])
def test_sparse_gradients_give_the_same_steps(make: Callable[..., Optimizer]) -> None:
    assert skips_absent_rows(make)
    dense, sparse = parameters(), parameters()
    made = build_optimizer(make, dense), build_optimizer(make, sparse, sparse[:1])
    for step in range(3):
        rows = torch.tensor([step, 2, step])
        for values, optimizer in zip((dense, sparse), made, strict=True):
            read = functional.embedding(rows, values[0], sparse=values is sparse)
            (read.sum(0) * values[1]).sin().sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    for got, want in zip(sparse, dense, strict=True):
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize(
    "make",
    [
        Adam,
        partial(Adagrad, weight_decay=0.1),
        partial(SGD, momentum=0.9),
        partial(SGD, fused=True),
    ],
)
def test_optimizers_that_change_rows_without_a_gradient(make: Callable[..., Optimizer]) -> None:
    assert not skips_absent_rows(make)


def molecules(folder: Path, *more: str) -> list[str]:
    table = write_molecules(folder / "m.csv")
    data = ["data=smiles", "model=dmpnn", f"data.path={table}", "data.target_columns=['a b']"]
    # The tiny molecules of a batch may have no bond at all; more of them together have.
    return [*data, "model.hidden_size=8", "data.batch_size=15", "model.run=eager", *more]


def test_frozen_cells_are_compiled(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["freeze=[network.cells]", "trainer.max_epochs=1", "data.batch_size=40"]
    train(tmp_path / "run", *molecules(tmp_path, *words, "model.run=auto"))
    assert "cells: bond, atom compiled" in capsys.readouterr().out


def test_frozen_modules_keep_their_statistics_and_drop_nothing() -> None:
    model = nn.ModuleDict(
        {"norm": nn.BatchNorm1d(2), "drop": nn.Dropout(), "head": nn.Linear(2, 1)}
    )
    freeze(model, ["norm"])
    in_training_mode(model, ["norm"])
    assert [module.training for module in model.values()] == [False, True, True]
    assert [p.requires_grad for p in model.parameters()] == [False, False, True, True]


@pytest.mark.parametrize(
    ("parts", "fault"),
    [
        (["haed"], r"freeze names 'haed', but no weights .* Did you mean 'head'"),
        (["norm", "head"], "leaves no weight to train"),
    ],
)
def test_parts_that_cannot_be_frozen_are_refused(parts: list[str], fault: str) -> None:
    model = nn.ModuleDict({"norm": nn.BatchNorm1d(2), "head": nn.Linear(2, 1)})
    with pytest.raises(ConfigError, match=fault):
        freeze(model, parts)
