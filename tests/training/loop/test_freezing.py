"""Frozen parts and stages: what learns when, resuming between stages, and wrong names."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
import torch
from torch import nn
from training.tiny_runs import read_json, run, train, write_molecules

from graphfold import recipe as training
from graphfold.errors import ConfigError
from graphfold.training.config.stages import Stage, stage_faults
from graphfold.training.loop.freezing import StagedModel
from graphfold.training.run.checkpoint import Checkpoint

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
    ("config", "said"),
    [
        ({"freeze": 3}, "freeze is 3, but it must be a list of names"),
        ({"stages": [{"epoch": 3}]}, "stages[0] has no key 'epoch'. Did you mean 'epochs'?"),
        ({"stages": [{"epochs": 0}]}, "stages[0].epochs is 0, but it must be a whole number"),
        ({"stages": [{"epochs": 1, "lr": "x"}]}, "stages[0].lr is 'x', but it must be a number"),
        ({"stages": [{"epochs": 1, "freeze": "a"}]}, "stages[0].freeze is 'a', but it must be"),
        ({"stages": [3]}, "stages[0] is 3, but it must be a mapping"),
        ({"stages": []}, "stages is [], but it must be a list"),
        ({"stages": [{"epochs": 1}], "freeze": ["a"]}, "freeze and stages are both given"),
    ],
)
def test_faults_of_the_config(config: dict[str, object], said: str) -> None:
    assert said in " ".join(stage_faults(config))


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
