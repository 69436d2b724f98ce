"""Learning rates of parts: a factor of 0 freezes, others scale the step, schedules keep them."""

from __future__ import annotations

import csv
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import SGD, Adagrad
from torch.optim.lr_scheduler import CosineAnnealingLR, OneCycleLR
from training.tiny_runs import run, train, write_molecules

from graphfold.errors import ConfigError
from graphfold.training.config.stages import factor_faults
from graphfold.training.loop.learning_rates import learning_rate, read_factors, refuse_lost_factors
from graphfold.training.loop.optimizer import build_optimizer
from graphfold.training.run.checkpoint import Checkpoint


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


@pytest.mark.parametrize("factors", [3, [1], {"encoder": "high"}, {"encoder": -1}])
def test_wrong_factors_are_a_fault(factors: object) -> None:
    (fault,) = factor_faults({"lr_factors": factors})
    assert "lr_factors is" in fault
    assert not list(factor_faults({"lr_factors": {"encoder": 0.1, "head": 2}}))


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
