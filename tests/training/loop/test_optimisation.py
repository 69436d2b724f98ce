"""Fused optimizers, learning rates of parts, frozen parts and stages; resuming between stages."""

from __future__ import annotations

import csv
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.optim import SGD, Adagrad, Adam, AdamW, Optimizer, RMSprop
from torch.optim.lr_scheduler import CosineAnnealingLR, OneCycleLR
from training.tiny_runs import read_json, run, train, write_molecules

from graphfold import recipe as training
from graphfold.errors import ConfigError
from graphfold.training.config.training_config import Stage
from graphfold.training.loop.optimisation import (
    StagedModel,
    build_optimizer,
    learning_rate,
    read_factors,
    refuse_lost_factors,
    skips_absent_rows,
)
from graphfold.training.run.checkpoint import Checkpoint

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


def model() -> nn.Module:
    return nn.ModuleDict({"a": nn.ModuleDict({"x": nn.Linear(1, 1), "y": nn.Linear(1, 1)})})


def test_the_longest_name_counts() -> None:
    net = model()
    found = read_factors(net, {"a.x.bias": 3, "a": 0.5, "a.x": 2})
    factors = {name: found[p] for name, p in net.named_parameters()}
    assert factors == {"a.x.weight": 2, "a.x.bias": 3, "a.y.weight": 0.5, "a.y.bias": 0.5}


def test_an_unknown_part_is_named() -> None:
    with pytest.raises(ConfigError, match=r"lr_factors names 'a.z', .* Did you mean 'a.[xy]'"):
        read_factors(model(), {"a.z": 1})


@pytest.mark.parametrize("is_sparse", [False, True])
def test_a_factor_scales_the_step(is_sparse: bool) -> None:
    weights = [nn.Parameter(torch.ones(3)) for _ in range(2)]
    sparse = weights[1:] if is_sparse else []
    optimizer = build_optimizer(partial(SGD, lr=0.5), weights, sparse, {weights[1]: 0.1})
    for weight in weights:
        weight.grad = torch.ones(3)
    optimizer.step()
    assert [w[0].item() for w in weights] == pytest.approx([0.5, 0.95])


def test_the_rate_of_a_stage_or_a_default_is_what_is_scaled() -> None:
    assert learning_rate(partial(partial(SGD, lr=0.5), lr=0.25)) == 0.25
    assert learning_rate(Adagrad) == 0.01
    with pytest.raises(ConfigError, match="needs an optimizer with a learning rate"):
        learning_rate(lambda parameters: SGD(parameters, lr=1))


@pytest.mark.parametrize(
    ("schedule", "is_kept"),
    [
        (partial(CosineAnnealingLR, T_max=3), True),
        (partial(OneCycleLR, max_lr=1, total_steps=9), False),
    ],
)
def test_a_schedule_that_drops_factors_is_refused(schedule: Any, is_kept: bool) -> None:
    weights = [nn.Parameter(torch.ones(3)) for _ in range(2)]
    optimizer = build_optimizer(partial(SGD, lr=0.5), weights, (), {weights[1]: 0.1})
    before = [group["lr"] for group in optimizer.param_groups]
    schedule(optimizer)
    if is_kept:
        refuse_lost_factors(optimizer, before)
        return
    with pytest.raises(ConfigError, match="gives all weights the same one"):
        refuse_lost_factors(optimizer, before)


def test_a_run_with_factors_resumes_as_if_unbroken(tmp_path: Path) -> None:
    table = write_molecules(tmp_path / "m.csv")
    own = ["data=smiles", f"data.path={table}", "data.target_columns=['a b']", "model=gcn"]
    own += ["model.hidden_size=8", "lr_factors={encoder: 0, head: 0.5}", "model.fuse=false"]
    whole = train(tmp_path / "whole", *own, "trainer.max_epochs=2")
    broken = train(tmp_path / "broken", *own, "trainer.max_epochs=1")
    start = Checkpoint.load(broken / "checkpoints" / "last.ckpt").state_dict
    assert run("train", f"resume={broken}", "trainer.max_epochs=2") == 0
    first = Checkpoint.load(whole / "checkpoints" / "last.ckpt").state_dict
    second = Checkpoint.load(broken / "checkpoints" / "last.ckpt").state_dict
    for name, weight in first.items():
        assert torch.equal(weight, second[name]), name
        if name.startswith("encoder."):
            assert torch.equal(weight, start[name]), name
    assert any(not torch.equal(first[name], start[name]) for name in first)


@pytest.mark.parametrize("factors", ["{}", "{encoder: 0, head: 0.25}", "{encoder: 3}"])
def test_metrics_csv_has_the_rate_of_its_epoch_without_factors(
    factors: str, tmp_path: Path
) -> None:
    table = write_molecules(tmp_path / "m.csv")
    own = ["data=smiles", f"data.path={table}", "data.target_columns=['a b']", "model=gcn"]
    own += ["model.hidden_size=8", "model.fuse=false", "calibration.method=none"]
    stages = "stages=[{epochs: 3}, {epochs: 2, lr: 0.002}]"
    schedule = ["optimizer=sgd", "optimizer.lr=0.004", "lr_scheduler=step", "trainer.max_epochs=5"]
    schedule += ["lr_scheduler.step_size=1", "lr_scheduler.gamma=0.5"]
    folder = train(tmp_path / "run", *own, *schedule, stages, f"lr_factors={factors}")
    rows = csv.DictReader((folder / "metrics.csv").read_text().splitlines())
    assert [float(row["lr"]) for row in rows] == pytest.approx([0.004, 0.002, 0.001, 0.002, 0.001])


STAGES = "stages=[{freeze: [encoder, network], epochs: 2}, {epochs: 2, lr: 1e-4}]"


def molecules(folder: Path, *more: str) -> list[str]:
    table = write_molecules(folder / "m.csv")
    data = ["data=smiles", "model=dmpnn", f"data.path={table}", "data.target_columns=['a b']"]
    # The tiny molecules of a batch may have no bond at all; more of them together have.
    return [*data, "model.hidden_size=8", "data.batch_size=15", "model.fuse=false", *more]


def state(folder: Path, name: str = "last") -> dict[str, torch.Tensor]:
    return Checkpoint.load(folder / "checkpoints" / f"{name}.ckpt").state_dict


def rows(folder: Path) -> list[dict[str, str]]:
    return list(csv.DictReader((folder / "metrics.csv").read_text().splitlines()))


def changed(before: dict[str, torch.Tensor], after: dict[str, torch.Tensor]) -> set[str]:
    """The parts that have changed weights."""
    names = {n for n, value in after.items() if not torch.equal(value, before[n])}
    return {name.partition(".")[0] for name in names}


def test_frozen_parts_stay_as_they_are(tmp_path: Path) -> None:
    first = train(tmp_path / "first", *molecules(tmp_path, "trainer.max_epochs=1"))
    more = [f"init_from={first}/checkpoints/last.ckpt", "trainer.max_epochs=2"]
    second = train(tmp_path / "second", *molecules(tmp_path, *more, "freeze=[encoder,network]"))
    assert changed(state(first), state(second)) == {"head"}


def test_frozen_cells_are_compiled(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["freeze=[network.cells]", "trainer.max_epochs=1", "data.batch_size=40"]
    train(tmp_path / "run", *molecules(tmp_path, *words, "model.fuse=null"))
    assert "cells: bond, atom compiled" in capsys.readouterr().out


def test_stages_run_one_after_another(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = train(tmp_path / "run", *molecules(tmp_path, STAGES, "lr_scheduler=cosine"))
    said = capsys.readouterr().out
    first = said.index("stage 1/2: 2 epochs, encoder, network frozen")
    assert first < said.index("epoch 1/4") < said.index("stage 2/2: 2 epochs, lr 0.0001")
    # Each stage has a cosine of its own, half way down in the second of two epochs.
    assert [float(row["lr"]) for row in rows(folder)] == pytest.approx([1e-3, 5e-4, 1e-4, 5e-5])
    alone = molecules(tmp_path, "trainer.max_epochs=2", "lr_scheduler=cosine")
    frozen = train(tmp_path / "frozen", *alone, "freeze=[encoder,network]")
    for row, other in zip(rows(frozen), rows(folder)[:2], strict=True):
        assert row == other
    assert changed(state(frozen), state(folder)) == {"encoder", "network", "head"}


@pytest.mark.parametrize(
    "step", [4, *(pytest.param(step, marks=pytest.mark.slow) for step in (2, 6))]
)
def test_a_run_of_stages_is_resumed(
    step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Broken in the first stage, at the beginning of the second, and within it."""
    overrides = molecules(tmp_path, STAGES, "model.dropout=0.3", "lr_scheduler=cosine")
    whole = train(tmp_path / "whole", *overrides)
    original, count = training.Loop.training_step, 0

    def training_step(loop: training.Loop, batch: object, index: int) -> None:
        nonlocal count
        if count == step:  # each epoch has two steps
            raise KeyboardInterrupt
        count += 1
        original(loop, batch, index)  # type: ignore[arg-type]

    monkeypatch.setattr(training.Loop, "training_step", training_step)
    broken = tmp_path / "broken"
    settings = [f"data.cache_dir={tmp_path}/cache", "logger=none", f"hydra.run.dir={broken}"]
    assert run("train", *overrides, *settings) == 1
    monkeypatch.undo()
    assert len(rows(broken)) == step // 2
    assert run("train", f"resume={broken}") == 0
    assert read_json(broken / "metrics.json") == read_json(whole / "metrics.json")
    assert rows(broken) == rows(whole)
    for name, value in state(whole).items():
        assert torch.equal(value, state(broken)[name]), name


def test_more_epochs_go_to_the_last_stage(tmp_path: Path) -> None:
    folder = train(tmp_path / "run", *molecules(tmp_path, STAGES))
    assert run("train", f"resume={folder}", "trainer.max_epochs=5") == 0
    assert [float(row["lr"]) for row in rows(folder)[2:]] == [1e-4, 1e-4, 1e-4]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["freeze=[encodr]"], "'encodr', but no weights of the model are called so. Did you mean"),
        (["stages=[{epochs: 1}, {epochs: 1, freeze: [encoder,network,head]}]"], "leaves no weight"),
        (["stages=[{epochs: 1}]", "trainer.max_epochs=2"], "the stages have 1 epochs together"),
        (["stages=[{epochs: 1}]", "freeze=[head]"], "freeze and stages are both given"),
    ],
)
def test_wrong_stages_are_told_before_any_epoch(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = [f"data.cache_dir={tmp_path}/cache", f"hydra.run.dir={tmp_path}/run"]
    assert run("train", *molecules(tmp_path), *words, *settings) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_frozen_modules_keep_their_statistics_and_drop_nothing() -> None:
    model = nn.ModuleDict(
        {"norm": nn.BatchNorm1d(2), "drop": nn.Dropout(), "head": nn.Linear(2, 1)}
    )
    staged = StagedModel(model, [Stage(1, ("norm",)), Stage(1)])
    staged.hold()
    assert [module.training for module in model.values()] == [False, True, True]
    assert [p.requires_grad for p in model.parameters()] == [False, False, True, True]
    assert staged.enter(1)
    staged.hold()
    assert all(module.training for module in model.values())
    assert all(p.requires_grad for p in model.parameters())
    with pytest.raises(ConfigError, match="freeze names 'drop', but no weights"):
        StagedModel(model, [Stage(1, ("drop",))])
