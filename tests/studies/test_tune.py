"""graphfold tune: trials, failures, interruption, and the best config."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from optuna import Trial, TrialPruned
from training.tiny_runs import read_json, run, write_molecules

from graphfold.errors import DataError
from graphfold.studies import tune_study as study
from graphfold.training.config.training_config import TrainingConfig


def words(folder: Path, *more: str) -> list[str]:
    table = write_molecules(folder / "m.csv")
    data = ["data=smiles", f"data.path={table}", "data.target_columns=[c]", "data.groups=molecule"]
    small = ["trainer.max_epochs=1", "model.hidden_size=4", "optimizer=sgd", "logger=none"]
    return [*data, *small, f"data.cache_dir={folder}/cache", f"hydra.run.dir={folder}/t", *more]


def trials(folder: Path) -> list[dict[str, str]]:
    return list(csv.DictReader((folder / "t" / "trials.csv").read_text().splitlines()))


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[..., float]], None]:
    """Puts a function of number and config in the place of training."""

    def use(result: Callable[[int, Mapping[str, Any]], float]) -> None:
        def run_trial(trial: Trial, config: Mapping[str, Any], folder: Path) -> float:
            trial.report(1.0, 1)
            return result(trial.number, config)

        monkeypatch.setattr(study, "run_trial", run_trial)

    return use


def test_a_search_ends_with_a_config_that_trains(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    search = ["optimizer.lr=0.01,0.02", "tune.trials=2", "tune.warmup_epochs=0"]
    assert run("tune", *words(tmp_path, *search)) == 0
    text = capsys.readouterr().out
    assert text.count("val/rmse") >= 3
    assert "epoch 1/1" not in text
    assert "epoch 1/1" in (tmp_path / "t" / "trials" / "0" / "log.txt").read_text()
    rows = trials(tmp_path)
    assert [row["state"] for row in rows] == ["finished"] * 2
    best = min(rows, key=lambda row: float(row["val/rmse"]))
    content = yaml.safe_load((tmp_path / "t/configs/experiment/best.yaml").read_text())
    assert content["optimizer"]["lr"] == float(best["optimizer.lr"])
    assert "${seed}" not in str(content)
    assert (tmp_path / "t" / "trials.svg").read_text().lstrip().startswith("<?xml")
    command = text.splitlines()[-1].removeprefix("train it: graphfold ").split()
    assert run(*command, f"hydra.run.dir={tmp_path}/best") == 0
    own = read_json(tmp_path / "best" / "metrics.json")
    assert own == read_json(tmp_path / "t" / "trials" / best["trial"] / "metrics.json")
    for name in ("predictions.csv", "split.csv"):
        assert (tmp_path / "t" / "trials" / best["trial"] / name).is_file()


def test_the_plot_has_a_panel_for_trials_and_each_dimension(tmp_path: Path, quick: Any) -> None:
    quick(lambda number, config: float(number))
    search = ["optimizer.lr=0.01,0.02", "model.hidden_size=4,8", "data.batch_size=2,4"]
    assert run("tune", *words(tmp_path, *search, "tune.trials=3", "tune.warmup_epochs=0")) == 0
    picture = (tmp_path / "t" / "trials.svg").read_text()
    assert len(re.findall(r'id="axes_\d+"', picture)) == 4


def test_failed_and_stopped_trials_are_recorded(
    tmp_path: Path, quick: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    def result(number: int, config: TrainingConfig) -> float:
        if number == 0:
            raise DataError("no luck. Try again.")
        if number == 1:
            raise TrialPruned("epoch 1")
        if number == 2:
            raise RuntimeError("a tensor\nis amiss")
        return float(config.mapping["optimizer"]["lr"])

    quick(result)
    search = ["optimizer.lr=interval(0.1,0.9)", "tune.trials=5"]
    assert run("tune", *words(tmp_path, *search)) == 0
    rows = trials(tmp_path)
    states = ["failed", "stopped", "failed", "finished", "finished"]
    assert [row["state"] for row in rows] == states
    assert rows[0]["reason"] == "no luck. Try again."
    assert rows[2]["reason"] == "RuntimeError: a tensor"
    text = capsys.readouterr().out
    assert "failed: no luck" in text
    assert "stopped after epoch 1" in text
    assert "5 trials: 2 finished, 1 stopped, 2 failed" in text


@pytest.mark.slow
def test_an_interrupted_search_goes_on(
    tmp_path: Path, quick: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(number: int, config: TrainingConfig) -> float:
        if number == 2:
            raise KeyboardInterrupt
        return float(config.mapping["optimizer"]["lr"])

    quick(interrupted)
    monkeypatch.chdir(tmp_path)
    search = words(tmp_path, "optimizer.lr=interval(0.1,0.9)", "tune.trials=4")
    search[1] = "data.path=m.csv"
    assert run("tune", *search) == 1
    assert f"Continue with: graphfold tune resume={tmp_path}/t" in capsys.readouterr().err
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    quick(lambda number, config: float(config.mapping["optimizer"]["lr"]))
    assert run("tune", f"resume={tmp_path}/t") == 0
    rows = trials(tmp_path)
    assert [row["state"] for row in rows] == ["finished"] * 2 + ["interrupted"] + ["finished"] * 2
    assert rows[3]["optimizer.lr"] == rows[2]["optimizer.lr"]
    assert len({row["optimizer.lr"] for row in rows}) == 4
    assert run("tune", f"resume={tmp_path}/t", "tune.trials=5") == 0
    assert len(trials(tmp_path)) == 6
    capsys.readouterr()
    assert run("tune", f"resume={tmp_path}/t", "seed=3") == 2
    assert "resume takes no 'seed'" in capsys.readouterr().err
    assert run("tune", *search) == 2
    assert "t holds a search. Continue it with resume=" in capsys.readouterr().err


def test_no_trial_at_all_is_a_failure(
    tmp_path: Path, quick: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    def never(number: int, config: TrainingConfig) -> float:
        raise DataError("no.")

    quick(never)
    assert run("tune", *words(tmp_path, "optimizer.lr=1,2", "tune.trials=2")) == 1
    assert "no trial came to its end: see" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            "model.hiden_size=1,2",
            "no key 'model.hiden_size' in the config. Did you mean 'model.hid",
        ),
        ("model=gcn,dmpn", "no model 'dmpn'. Did you mean 'dmpnn'"),
        ("optimizer.lr=0.1,fast", "optimizer.lr is 'fast'"),
        ("tune=molecule", "no tune 'molecule'. Did you mean 'molecules'"),
        ("tune.trials=0", "tune.trials is 0, but it must be a whole number from 1 on"),
        ("tune.space.optimizer.lr={low: 1, hgh: 2}", "optimizer.lr has no 'hgh'"),
        ("resume=nowhere", "nowhere: not the folder of a search"),
    ],
)
def test_wrong_words_are_told_before_any_training(
    more: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("tune", *words(tmp_path, more)) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "t").exists()
