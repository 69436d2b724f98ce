"""Options of the search for good settings, with a formula in the place of the trainings."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import optuna
from effects.lab import Lab
from effects.table import Rows
from optuna import Trial, TrialPruned

from graphfold.training.config.compose import compose
from graphfold.training.tune.space import read_space

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


def search(lab: Lab, *overrides: str) -> list[dict[str, str]]:
    """The rows of trials.csv, with the epoch after which each was stopped; searched once."""
    return lab.once(overrides, lambda: _search(lab, *overrides))


def _search(lab: Lab, *overrides: str) -> list[dict[str, str]]:
    folder = lab.folder / f"tune{len([*lab.folder.glob('tune*')])}"
    words = [*lab.base("molecules"), f"hydra.run.dir={folder}", *overrides]
    place = "graphfold.training.tune.study"
    with mock.patch(f"{place}.run_trial", trial_of), mock.patch(f"{place}.Study._config"):
        code, printed, errors = lab.command("tune", *words)
    assert code == 0, errors
    found = list(csv.DictReader((folder / "trials.csv").read_text().splitlines()))
    stops = [line for line in printed.splitlines() if "stopped after" in line]
    return [{**r, "stop": _stop(stops, number)} for number, r in enumerate(found)]


def _stop(lines: Sequence[str], number: int) -> str:
    """The epoch after which a trial was stopped; empty if it was not."""
    own = [line for line in lines if line.startswith(f"[{number + 1}/")]
    return own[0].partition("epoch ")[2].split()[0] if own else ""


#: What is searched in place of the space of the config.
FEW = "optimizer.lr=0.1,0.2,0.3"


@row.changes("tune/default.trials", "how many trainings are tried")
def _(lab):
    for count, more in ((6, "tune.startup_trials=2"), (4, "tune.startup_trials=3")):
        found = search(lab, FEW, f"tune.trials={count}", "tune.warmup_epochs=0", more)
        assert len(found) == count
        assert {r["optimizer.lr"] for r in found} <= {"0.1", "0.2", "0.3"}


@row.changes(
    ["tune/default.space", "tune/molecules.space"], "the keys that differ, and their values"
)
def _(lab, option):
    name = option.partition("/")[2].partition(".")[0]
    words = ["data=smiles", "data.path=x", "data.target_columns=[y]", f"tune={name}"]
    given = compose(words, primary="tune").config["tune"]["space"]
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


#: Searches whose third and fourth trials may be stopped.
STOPPING = (FEW, "tune.trials=6", "tune.warmup_epochs=0", "tune.startup_trials=2")


@row.changes("tune/default.prune", "whether trainings that fall behind are stopped")
def _(lab):
    assert any(r["stop"] for r in search(lab, *STOPPING))
    assert not any(r["stop"] for r in search(lab, *STOPPING, "tune.prune=false"))


@row.changes("tune/default.startup_trials", "so many are random, and none of them is stopped")
def _(lab):
    few = (FEW, "tune.trials=4", "tune.warmup_epochs=0", "tune.startup_trials=3")
    for startup, words in ((2, STOPPING), (3, few)):
        stops = [bool(r["stop"]) for r in search(lab, *words)]
        assert stops.index(True) == startup


@row.changes("tune/default.warmup_epochs", "the epochs before which none is stopped")
def _(lab):
    words = (FEW, "tune.trials=4", "tune.startup_trials=2", "tune.warmup_epochs=4")
    assert {r["stop"] for r in search(lab, *words)} - {""} == {"4"}
    assert {r["stop"] for r in search(lab, *STOPPING)} - {""} == {"1"}
