"""graphfold tune: a search by Optuna whose trials are runs."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from training.tiny_runs import QUICK, read_json, run, write_molecules

from graphfold import search
from graphfold.errors import DataError
from graphfold.training.config.training_config import TrainingConfig
from graphfold.training.run.run_folder import RunFolder

optuna = pytest.importorskip("optuna", reason="Optuna is not installed")


def words(folder: Path, *more: str) -> list[str]:
    table = write_molecules(folder / "m.csv")
    data = ["data=smiles", f"data.path={table}", "data.target_columns=[c]", "logger=none"]
    return [*data, *QUICK, f"data.cache_dir={folder}/cache", f"hydra.run.dir={folder}/t", *more]


def study_of(folder: Path) -> optuna.Study:
    file = optuna.storages.journal.JournalFileBackend(str(folder / "t" / "study.log"))
    return optuna.load_study(study_name=None, storage=optuna.storages.JournalStorage(file))


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[TrainingConfig], float]], None]:
    """Puts a function of the config in the place of training."""

    def use(result: Callable[[TrainingConfig], float]) -> None:
        def start_run(
            config: TrainingConfig, folder: RunFolder, callbacks: object
        ) -> dict[str, float]:
            return {"val/rmse": result(config)}

        monkeypatch.setattr(search, "start_run", start_run)

    return use


def test_a_search_ends_with_the_words_that_train_its_best(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("tune", *words(tmp_path, "optimizer.lr=0.01,0.02", "tune.trials=2")) == 0
    text = capsys.readouterr().out
    assert "epoch 1/1" not in text
    assert "epoch 1/1" in (tmp_path / "t" / "trials" / "0" / "log.txt").read_text()
    best = study_of(tmp_path).best_trial
    own = tmp_path / "t" / "trials" / str(best.number)
    assert f"best: val/rmse {best.value:.6g}, {own}" in text
    (line,) = [line for line in text.splitlines() if line.startswith("train it: ")]
    command = shlex.split(line.removeprefix("train it: graphfold "))
    assert f"optimizer.lr={best.params['optimizer.lr']}" in command
    assert run(*command, f"hydra.run.dir={tmp_path}/again") == 0
    assert read_json(tmp_path / "again" / "metrics.json") == read_json(own / "metrics.json")


def test_a_search_goes_on_and_leaves_failed_trials_behind(
    tmp_path: Path,
    quick: Callable[[Callable[[TrainingConfig], float]], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    def result(config: TrainingConfig) -> float:
        calls.append(config.mapping["optimizer"]["lr"])
        if len(calls) == 1:
            raise DataError("no luck.")
        if len(calls) == 3:
            raise KeyboardInterrupt
        return calls[-1]

    calls: list[float] = []
    quick(result)
    command = words(tmp_path, "optimizer.lr=interval(0.1,0.9)", "tune.trials=5")
    assert run("tune", *command) == 1
    assert "goes on with the same words and hydra.run.dir=" in capsys.readouterr().err
    assert run("tune", *command) == 0
    states = [trial.state.name for trial in study_of(tmp_path).trials]
    assert states == ["FAIL", "COMPLETE", "FAIL", "COMPLETE", "COMPLETE"]
    assert len({*calls}) == 5
    assert run("tune", *command) == 0
    assert len(calls) == 5
    assert run("tune", *command, "model.depth=1,2") == 2
    assert "holds a search over optimizer.lr=interval(0.1,0.9)" in capsys.readouterr().err


def test_no_trial_at_all_is_a_failure(
    tmp_path: Path,
    quick: Callable[[Callable[[TrainingConfig], float]], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    def never(config: TrainingConfig) -> float:
        raise DataError("no.")

    quick(never)
    assert run("tune", *words(tmp_path, "optimizer.lr=1,2", "tune.trials=2")) == 1
    assert "no trial came to its end" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("model.hiden_size=1,2", "Did you mean 'model.hidden_size'?"),
        ("model=gcn,dmpn", "no model 'dmpn'. Did you mean 'dmpnn'"),
        ("optimizer.lr=0.1,fast", "optimizer.lr is 'fast'"),
        ("tune=molecule", "no tune 'molecule'. Did you mean 'molecules'"),
        ("tune.space=['seed=1']", "tune.space: ['seed=1'] has no values"),
        ("resume=x", "goes on when it is started again with the same words"),
        ("tune.storage=nowhere", "nowhere: Optuna cannot use it"),
    ],
)
def test_wrong_words_are_told_before_any_training(
    more: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("tune", *words(tmp_path, more)) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "t" / "trials").exists()
