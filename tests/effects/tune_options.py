"""Options of the search for good settings, with a formula in the place of the trainings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import optuna
from effects.lab import Lab
from effects.table import Rows

from graphfold.training.loop.loop import Loop

ROWS = row = Rows()


def searched(lab: Lab, folder: Path, *words: str) -> list[optuna.trial.FrozenTrial]:
    """The trials of a search; trial n has the error n in six epochs: each is worse than before."""

    def start_run(config: Any, run: Any, callbacks: Sequence[Any]) -> dict[str, float]:
        (pruner,) = callbacks
        for epoch in range(6):
            loop = mock.Mock(Loop, monitor="val/rmse", epoch=epoch)
            loop.metrics = {"val/rmse": float(pruner.trial.number)}
            pruner.on_epoch_saved(loop)
        return {"val/rmse": float(pruner.trial.number)}

    own = [*lab.base("molecules"), f"hydra.run.dir={folder}", "tune.trials=6"]
    with mock.patch("graphfold.search.start_run", start_run):
        code, _, errors = lab.command("tune", *own, *words)
    assert code == 0, errors
    if any(word.startswith("tune.storage") for word in words):
        return []
    file = optuna.storages.journal.JournalFileBackend(str(folder / "study.log"))
    return optuna.load_study(study_name=None, storage=optuna.storages.JournalStorage(file)).trials


FEW = "optimizer.lr=0.1,0.2,0.3"


@row.changes("tune/default.trials", "how many trainings are tried, with these values")
def _(lab, tmp_path):
    trials = searched(lab, tmp_path, FEW, "tune.trials=3")
    assert len(trials) == 3
    assert {trial.params["optimizer.lr"] for trial in trials} <= {"0.1", "0.2", "0.3"}


@row.changes(["tune/default.space", "tune/molecules.space"], "what is tried, without sweeps")
def _(lab, tmp_path, option):
    name = option.partition("/")[2].partition(".")[0]
    keys = {"model.hidden_size", "optimizer.lr"}
    more = {"model.dropout", "model.depth", "data.batch_size"} if name == "molecules" else set()
    (trial,) = searched(lab, tmp_path, f"tune={name}", "tune.trials=1")
    assert {*trial.params} == keys | more
    assert 1e-4 <= trial.params["optimizer.lr"] <= 1e-2


@row.changes(
    ["tune/default.storage", "tune/default.study"], "where the trials are, and by which name"
)
def _(lab, tmp_path):
    base = f"sqlite:///{tmp_path}/base.db"
    words = (FEW, "tune.trials=1", "tune.study=mine", f"tune.storage={base}")
    assert searched(lab, tmp_path / "run", *words) == []
    assert optuna.get_all_study_names(base) == ["mine"]
    assert not (tmp_path / "run" / "study.log").exists()


@row.changes("tune/default.sampler", "how values are drawn; with a seed they are repeated")
def _(lab, tmp_path):
    words = ["optimizer.lr=interval(0.1,0.9)", "tune.sampler.seed=3", "tune.trials=1"]
    one, again = (searched(lab, tmp_path / name, *words) for name in "ab")
    assert [trial.params for trial in one] == [trial.params for trial in again]


@row.changes("tune/default.pruner", "which trainings are stopped, and when")
def _(lab, tmp_path):
    words = [FEW, "tune.trials=3", "tune.pruner.n_startup_trials=2", "tune.pruner.n_warmup_steps=3"]
    stopped = [trial.last_step for trial in searched(lab, tmp_path / "a", *words)]
    assert stopped == [6, 6, 3]
    words = [FEW, "tune.trials=3", "tune.pruner=null"]
    assert [trial.last_step for trial in searched(lab, tmp_path / "b", *words)] == [6] * 3
