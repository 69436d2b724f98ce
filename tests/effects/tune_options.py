"""Options of the search for good settings, with a formula in the place of the trainings."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import io
import time
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import optuna
from effects.lab import Lab
from effects.table import Rows
from optuna import Trial, TrialPruned

from graphfold.studies.tune_folder import Search, TuneFolder
from graphfold.studies.tune_space import read_space
from graphfold.studies.tune_study import Study
from graphfold.training.config.compose import compose

ROWS = row = Rows()

#: How many epochs the trainings that are not done would have.
EPOCHS = 6


def trial_of(trial: Trial, config: Mapping[str, Any], _: Path) -> float:
    """Trial n has the error n in every epoch: each is worse than those before it."""
    value = float(trial.number)
    for epoch in range(1, EPOCHS + 1):
        trial.report(value, epoch)
        trial.set_user_attr("epochs", epoch)
        if trial.should_prune():
            raise TrialPruned(f"epoch {epoch}")
    return value


def search(lab: Lab, **asked: Any) -> list[str]:
    """For each trial of a search the epoch after which it was stopped; empty if it was not."""
    return lab.once(("search", str(asked)), lambda: _search(lab, asked))


def _search(lab: Lab, asked: Mapping[str, Any]) -> list[str]:
    folder = lab.folder / f"search{len([*lab.folder.glob('search*')])}"
    folder.mkdir()
    given = {"trials": 6, "startup_trials": 2, "prune": True, "warmup_epochs": 0, **asked}
    made = Search([], None, FEW, **given, seed=1, monitor="val/rmse", direction="min")
    study, printed = Study(TuneFolder(folder), made, [*read_space(FEW)]), io.StringIO()
    with (
        mock.patch("graphfold.studies.tune_study.run_trial", trial_of),
        mock.patch.object(Study, "_config"),
        contextlib.redirect_stdout(printed),
    ):
        study.run()
    stops = [line for line in printed.getvalue().splitlines() if "stopped after" in line]
    return [_stop(stops, number) for number in range(given["trials"])]


def _stop(lines: Sequence[str], number: int) -> str:
    """The epoch after which a trial was stopped; empty if it was not."""
    own = [line for line in lines if line.startswith(f"[{number + 1}/")]
    return own[0].partition("epoch ")[2].split()[0] if own else ""


#: What is searched in place of the space of the config.
FEW: Mapping[str, Any] = {"optimizer": {"lr": [0.1, 0.2, 0.3]}}


@row.changes("tune/default.trials", "how many trainings are tried, with these values")
def _(lab, tmp_path):
    words = [*lab.base("molecules"), f"hydra.run.dir={tmp_path}", "optimizer.lr=0.1,0.2,0.3"]
    asked = {"trials": 3, "startup_trials": 4, "prune": False, "warmup_epochs": 5}
    words += [f"tune.{key}={str(value).lower()}" for key, value in asked.items()]
    place = "graphfold.studies.tune_study"
    with mock.patch(f"{place}.run_trial", trial_of), mock.patch(f"{place}.Study._config"):
        code, _, errors = lab.command("tune", *words)
    assert code == 0, errors
    found = list(csv.DictReader((tmp_path / "trials.csv").read_text().splitlines()))
    assert len(found) == 3
    assert {r["optimizer.lr"] for r in found} <= {"0.1", "0.2", "0.3"}
    assert asked.items() <= vars(TuneFolder(tmp_path).read_search()).items()


@row.changes(
    ["tune/default.space", "tune/molecules.space"], "the keys that differ, and their values"
)
def _(lab, option):
    name = option.partition("/")[2].partition(".")[0]
    words = ["data=smiles", "data.path=x", "data.target_columns=[y]", f"tune={name}"]
    given = compose(words, primary="tune").config.mapping["tune"]["space"]
    dimensions = {dimension.key: dimension for dimension in read_space(given)}
    always = {"model.hidden_size", "optimizer.lr"}
    more = {"model.dropout", "model.depth", "data.batch_size"} if name == "molecules" else set()
    assert always <= {*dimensions} <= always | more
    study = optuna.create_study()
    for _ in range(8):
        trial = study.ask()
        own = dict(word.split("=") for word in (d.suggest(trial) for d in dimensions.values()))
        assert 64 <= int(own["model.hidden_size"]) <= 600
        assert 1e-4 <= float(own["optimizer.lr"]) <= 1e-2


@row.changes(
    ["tune/default.storage", "tune/default.study"], "where the trials are, and by which name"
)
def _(lab, tmp_path):
    words = [*lab.base("molecules"), "optimizer.lr=0.1,0.2,0.3", "tune.trials=1"]
    base = f"sqlite:///{tmp_path}/base.db"
    place = "graphfold.studies.tune_study"
    with mock.patch(f"{place}.run_trial", trial_of), mock.patch(f"{place}.Study._config"):
        for name in ("first", "second"):
            words += [f"hydra.run.dir={tmp_path}/{name}", f"tune.study={name}"]
            code, _, errors = lab.command("tune", *words, f"tune.storage={base}")
            assert code == 0, errors
    assert sorted(optuna.get_all_study_names(base)) == ["first", "second"]
    assert not (tmp_path / "first" / "study.db").exists()


@row.changes("tune/default.heartbeat", "how long a worker may be silent")
def _(lab, tmp_path):
    given = {"trials": 1, "startup_trials": 1, "prune": False, "warmup_epochs": 0, "seed": 1}
    base = f"sqlite:///{tmp_path}/base.db"
    made = Search([], None, FEW, **given, monitor="val/rmse", direction="min", storage=base)
    for seconds in (1, 60):
        search = dataclasses.replace(made, study=str(seconds), heartbeat=seconds)
        study = Study(TuneFolder(tmp_path), search, [*read_space(FEW)])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            silent = study.study.ask()
            study.study._storage.record_heartbeat(silent._trial_id)
        time.sleep(3.5 if seconds == 1 else 0)
        study._wait()
        states = [trial.state.name for trial in study.study.get_trials()]
        assert states == (["FAIL"] if seconds == 1 else ["RUNNING"])


@row.changes("tune/default.prune", "whether trainings that fall behind are stopped")
def _(lab):
    assert any(search(lab))
    assert not any(search(lab, prune=False))


@row.changes("tune/default.startup_trials", "so many are random, and none of them is stopped")
def _(lab):
    for startup in (2, 4):
        stops = [bool(stop) for stop in search(lab, startup_trials=startup)]
        assert stops.index(True) == startup


@row.changes("tune/default.warmup_epochs", "the epochs before which none is stopped")
def _(lab):
    assert {*search(lab)} - {""} == {"1"}
    assert {*search(lab, warmup_epochs=4)} - {""} == {"4"}
