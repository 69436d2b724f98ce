"""Callbacks and loggers: averaged weights against a loop over the steps, stopping, one's own."""

from __future__ import annotations

import csv
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
import torch
from training.tiny_runs import listops, read_json, run, train

import graphfold
from graphfold.errors import ConfigError
from graphfold.training import (
    AverageWeights,
    Callback,
    EarlyStopping,
    Loop,
)
from graphfold.training.loop.loggers import make_loggers
from graphfold.training.run.checkpoint import Checkpoint


def test_the_mean_is_that_of_a_loop() -> None:
    average = AverageWeights(decay=0.9)
    steps = torch.randn(200, 3)
    mean, count = torch.zeros(3), torch.tensor(0)
    want = steps[0].clone()
    for number, weights in enumerate(steps):
        average.add([mean, count], [weights, torch.tensor(7 + number)], number)
        if number:
            decay = min(0.9, (1 + number) / (10 + number))
            want = decay * want + (1 - decay) * weights
        torch.testing.assert_close(mean, want)
    assert count == 7 + 199


@pytest.mark.parametrize("decay", [0.0, 1.0, -3.0])
def test_a_decay_that_leaves_no_mean(decay: float) -> None:
    with pytest.raises(ConfigError, match="leaves no mean"):
        AverageWeights(decay)


def test_a_run_validates_and_keeps_the_mean(corpora: Path, tmp_path: Path) -> None:
    own = ["experiment=sst_tree_lstm", "model.hidden_size=8", "data.batch_size=4"]
    own += ["monitor=val/loss", f"data.root={corpora}"]
    own += ["callbacks=average", "model.run=eager"]
    mean = train(tmp_path / "mean", *own, "trainer.max_epochs=1")
    with (mean / "metrics.csv").open() as file:
        (row,) = csv.DictReader(file)
    scored = read_json(mean / "metrics.json")["val/loss"]  # from best.ckpt, after training
    assert scored == pytest.approx(float(row["val/loss"]), rel=1e-6)
    assert run("train", f"resume={mean}", "trainer.max_epochs=2") == 0
    whole = train(tmp_path / "whole", *own, "trainer.max_epochs=2")
    assert (mean / "metrics.csv").read_text() == (whole / "metrics.csv").read_text()
    assert read_json(mean / "metrics.json") == read_json(whole / "metrics.json")


@pytest.mark.parametrize("precision", ["64-true", "bf16-true"])
def test_the_mean_of_weights_in_another_precision(
    corpora: Path, tmp_path: Path, precision: str
) -> None:
    """The mean has the precision of the weights, at least single precision."""
    own = ["experiment=sst_tree_lstm", "model.hidden_size=8", "data.batch_size=4"]
    own += [f"data.root={corpora}", f"trainer.precision={precision}"]
    own += ["callbacks=average", "monitor=val/loss", "model.run=eager"]
    once = train(tmp_path / "once", *own, "trainer.max_epochs=1")
    state = torch.load(once / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]
    digits = torch.float64 if precision == "64-true" else torch.float32
    assert {value.dtype for value in state.values() if value.is_floating_point()} == {digits}


def stopped_after(values: Sequence[float | None], mode: str = "min", **options: Any) -> int:
    """The number of epochs before early stopping ends a training with these metrics."""
    metrics = SimpleNamespace(choose_monitor=lambda name, _: name, mode=lambda _: mode)
    loop: Any = SimpleNamespace(monitor="val/x", head_metrics=metrics, should_stop=False)
    stopping = EarlyStopping(**options)
    stopping.on_fit_start(loop)
    for epoch, value in enumerate(values, start=1):
        state = stopping.state_dict()  # of a run that is continued after every epoch
        stopping = EarlyStopping(**options)
        stopping.load_state_dict(state)
        stopping.on_fit_start(loop)
        loop.metrics = {"val/x": value}
        stopping.on_train_epoch_end(loop)
        if loop.should_stop:
            return epoch
    return len(values) + 1


@pytest.mark.parametrize(
    ("values", "options", "epochs"),
    [
        ([3, 2, 1, 1, 1], {"patience": 2}, 5),
        ([3, 2, 2.5, 1.9, 2, 2], {"patience": 2}, 6),
        ([3, 2, 2, 2], {"patience": 1, "mode": "max"}, 2),
        ([3, 2.9, 2.8], {"patience": 2, "min_delta": 0.5}, 3),
        ([None, None, 1], {"patience": 2}, 2),
        ([3, None, 2, None, None], {"patience": 2}, 5),
        ([3, math.inf, math.inf], {"patience": 2}, 3),
        ([3, 2, 1], {"patience": 1}, 4),
    ],
)
def test_early_stopping_counts_epochs(
    values: list[float | None], options: dict[str, Any], epochs: int
) -> None:
    assert stopped_after(values, **options) == epochs


def test_early_stopping_refuses_an_unknown_metric(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["callbacks=early_stopping", "+callbacks.early_stopping.monitor=val/acuracy"]
    words += [f"data.cache_dir={tmp_path}/cache", f"hydra.run.dir={tmp_path}/run"]
    assert run("train", *listops(*words)) == 2
    assert "Did you mean 'val/accuracy'" in capsys.readouterr().err


class Own(Callback):
    """Notes the moments, ends after two epochs, and remembers how often it was called."""

    def __init__(self) -> None:
        self.moments: list[str] = []
        self.calls = 0

    def on_fit_start(self, loop: Loop) -> None:
        self.moments.append(f"begin {loop.epoch}")

    def on_train_batch_end(self, loop: Loop) -> None:
        self.calls += 1

    def on_validation_end(self, loop: Loop) -> None:
        self.moments.append(f"validated {loop.epoch} {loop.metrics['val/accuracy'] is not None}")

    def on_train_epoch_end(self, loop: Loop) -> None:
        loop.should_stop = loop.epoch == 1

    def on_epoch_saved(self, loop: Loop) -> None:
        self.moments.append("saved")

    def on_fit_end(self, loop: Loop) -> None:
        self.moments.append("end")

    def state_dict(self) -> dict[str, Any]:
        return {"calls": self.calls}

    def load_state_dict(self, state: Any) -> None:
        self.calls = state["calls"]


def test_a_callback_is_called_at_every_moment_and_resumed(tmp_path: Path) -> None:
    first, second = Own(), Own()
    words = [*listops("trainer.max_epochs=9"), f"data.cache_dir={tmp_path}/cache", "logger=none"]
    graphfold.train(words, tmp_path / "run", callbacks=[first])
    assert first.moments == [
        *("begin 0", "validated 0 True", "saved", "validated 1 True", "saved", "end")
    ]
    assert first.calls == 10
    assert Checkpoint.load(tmp_path / "run/checkpoints/last.ckpt").progress["is_finished"]
    graphfold.train({"resume": tmp_path / "run", "trainer.max_epochs": 3}, callbacks=[second])
    assert second.moments == ["begin 2", "validated 2 True", "saved", "end"]
    assert second.calls == 15


class Notes:
    """A logger of one's own."""

    def __init__(self, save_dir: str) -> None:
        self.path = Path(save_dir) / "notes.txt"

    def _add(self, text: str) -> None:
        with self.path.open("a") as file:
            file.write(f"{text}\n")

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        self._add(f"{step} {' '.join(sorted(metrics))}")

    def log_hyperparams(self, params: dict[str, Any]) -> None:
        self._add(f"lr {params['optimizer']['lr']}")

    def finalize(self, status: str) -> None:
        self._add(status)


def test_a_logger_gets_metrics_and_rates(tmp_path: Path) -> None:
    words = [
        "+logger.own={_target_: training.loop.test_callbacks.Notes, _partial_: true}",
        "optimizer.lr=0.25",
    ]
    folder = train(tmp_path / "run", *listops(*words))
    lr, epoch, *_, scores, status = (folder / "notes.txt").read_text().splitlines()
    assert scores.startswith("10 test/accuracy test/")
    assert "val/" not in scores
    assert lr == "lr 0.25"
    assert epoch.startswith("5 epoch lr train/loss val/accuracy")
    assert status == "success"


def test_tensorboard_has_the_metrics_of_every_epoch(tmp_path: Path) -> None:
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    folder = tmp_path / "run"
    words = [f"data.cache_dir={tmp_path}/cache", f"hydra.run.dir={folder}"]
    assert run("train", *listops("logger=tensorboard"), *words) == 0
    board = events.EventAccumulator(str(folder / "tensorboard"))
    board.Reload()
    metrics = read_json(folder / "metrics.json")
    (scored,) = board.Scalars("test/accuracy")
    assert (scored.step, scored.value) == (10, pytest.approx(metrics["test/accuracy"]))
    losses = board.Scalars("val/loss")
    assert [event.step for event in losses] == [5, 10]
    with (folder / "metrics.csv").open() as file:
        rows = [float(row["val/loss"]) for row in csv.DictReader(file)]
    assert [event.value for event in losses] == pytest.approx(rows, rel=1e-6)


def test_scores_reach_the_loggers_of_an_ensemble(tmp_path: Path) -> None:
    own = "+logger.own={_target_: training.loop.test_callbacks.Notes, _partial_: true}"
    folder = train(tmp_path / "run", *listops(own, "ensemble=2"))
    notes = [(file.parent, file.read_text().splitlines()) for file in folder.rglob("notes.txt")]
    assert all(lines[-1] == "success" for _, lines in notes)
    scored = [place for place, lines in notes if any("test/accuracy" in line for line in lines)]
    assert scored == [folder]


def test_a_logger_without_its_library_is_refused(tmp_path: Path) -> None:
    node = {"_target_": f"{__name__}.Absent", "_partial_": True}
    message = "logger.mine needs a library that cannot be imported .no such thing.. pip install"
    with pytest.raises(ConfigError, match=message):
        make_loggers({"mine": node}, {}, tmp_path)


class Absent:
    """A logger without its library."""

    def __init__(self, save_dir: str) -> None:
        raise ModuleNotFoundError("no such thing")


@pytest.mark.parametrize("library", ["mlflow", "wandb"])
def test_mlflow_and_wandb_get_metrics_and_config(
    library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = mock.MagicMock()
    monkeypatch.setitem(sys.modules, library, module)
    folder = tmp_path / "run"
    words = [f"logger={library}", f"data.cache_dir={tmp_path}/cache", f"hydra.run.dir={folder}"]
    assert run("train", *listops(), *words) == 0
    if library == "mlflow":
        log, end = module.log_metrics, module.end_run
        (params,) = module.log_params.call_args.args
        assert params["trainer.max_epochs"] == 2
        assert end.call_args.args == ("FINISHED",)
    else:
        log, end = module.init.return_value.log, module.init.return_value.finish
        (config,) = module.init.return_value.config.update.call_args.args
        assert config["trainer"]["max_epochs"] == 2
        assert end.call_args.kwargs == {"exit_code": 0}
    assert [call.kwargs["step"] for call in log.call_args_list] == [5, 10, 10]
    assert "val/accuracy" in log.call_args_list[0].args[0]
