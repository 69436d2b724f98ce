"""Options of training: train.yaml, optimizer, schedule, trainer, callbacks, logger.

Runs are of an epoch or two over 24 records, and shared. Many rows look at a run of a single step of
plain gradient descent, whose change of weights tells what the step was.
"""

from __future__ import annotations

import logging
import math
import os
import sys
from collections.abc import Mapping
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from effects.lab import Lab, Run, same_bits
from effects.spies import SPY, Spy
from effects.table import Rows
from torch import Tensor
from training.tiny_runs import MOLECULES

import graphfold
from graphfold.errors import ConfigError
from graphfold.training.config.compose import compose
from graphfold.training.loop.loggers import make_loggers

ROWS = row = Rows()

same = torch.testing.assert_close

#: A step of plain gradient descent over all records of the training part.
STEP = ("optimizer=sgd", "optimizer.momentum=0", "optimizer.lr=0.1", "data.batch_size=100")

#: Enough records to calibrate with.
HALVES = "data.fractions=[0.4,0.4,0.2]"


def beginning(lab: Lab, base: str = "molecules", *overrides: str) -> dict[str, Tensor]:
    """The weights that a run begins with."""
    return {k: v.clone() for k, v in lab.loop(base, *overrides).model.state_dict().items()}


def moved(lab: Lab, *overrides: str) -> dict[str, Tensor]:
    """The change of each weight in a single step."""
    before, after = beginning(lab), lab.run("molecules", *STEP, *overrides).weights()
    return {name: after[name] - before[name] for name in dict(after) if name in before}


def norm(change: Mapping[str, Tensor]) -> float:
    return math.sqrt(sum(float(value.double().square().sum()) for value in change.values()))


# Seeds and bits


@row.changes("seed", "other weights, order and split; the same seed gives the same bits")
def _(lab):
    first, again = lab.run("trees"), lab.run_anew("trees")
    assert same_bits(first.weights(), again.weights())
    assert first.metrics == again.metrics
    other = lab.run("trees", "seed=2")
    assert not same_bits(first.weights(), other.weights())
    assert first.checkpoint().split != other.checkpoint().split
    assert not same_bits(beginning(lab, "trees"), beginning(lab, "trees", "seed=2"))


@row.nothing("deterministic", "on a CPU all algorithms are, so no bit changes; torch is told")
def _(lab):
    plain = lab.run("molecules", *SPY)
    assert Spy.facts["deterministic"] is False
    told = lab.run_anew("molecules", *SPY, "deterministic=true")
    facts = Spy.facts
    torch.use_deterministic_algorithms(False)
    assert facts["deterministic"] is True
    assert same_bits(plain.weights(), told.weights())


@row.nothing("threads", "torch has so many, and the numbers are the same to 1e-5")
def _(lab):
    one = lab.run_anew("molecules", *SPY)
    assert Spy.facts["threads"] == 1
    two = lab.run_anew("molecules", *SPY, "threads=2")
    assert Spy.facts["threads"] == 2
    for name, value in one.weights().items():
        same(value, two.weights()[name], rtol=1e-4, atol=1e-5)


# Names and folders


@row.changes(["name", "hydra.run.dir", "hydra.sweep.dir"], "where a run, or a sweep, is written")
def _(lab, tmp_path):
    composed = compose([*lab.base("molecules"), "name=mine"])
    assert composed.folder.parts[:2] == ("runs", "mine")
    folder = lab.run("molecules").folder
    assert (folder / "checkpoints" / "best.ckpt").is_file()
    words = [*lab.base("molecules"), "seed=1,2", f"hydra.sweep.dir={tmp_path}/sweep"]
    code, _, errors = lab.command("train", "-m", *words)
    assert code == 0, errors
    assert len([*(tmp_path / "sweep").glob("*/metrics.json")]) == 2


@row.changes("hydra.output_subdir", "a folder of Hydra's own files within the run folder")
def _(lab):
    assert not (lab.run("molecules").folder / ".hydra").exists()
    run = lab.run("molecules", "hydra.output_subdir=.hydra")
    assert "- data=smiles\n" in (run.folder / ".hydra/overrides.yaml").read_text()
    assert run.metrics == lab.run("molecules").metrics


@row.changes(
    ["hydra.job_logging.root.level", "hydra.job_logging.handlers.console.stream"],
    "messages of logging of a lower level are shown; they go to another stream",
)
def _(lab, tmp_path):
    def printed(*words: str) -> tuple[bool, bool]:
        def log(*_: Any, **__: Any) -> None:
            logging.getLogger("mine").info("logged by mine")

        with mock.patch("graphfold.recipe.start_run", side_effect=log):
            folder = f"hydra.run.dir={tmp_path}/{len(os.listdir(tmp_path))}"
            code, out, errors = lab.command("train", *lab.base("molecules"), folder, *words)
        assert code == 0, errors
        return "logged by mine" in out, "logged by mine" in errors

    level = "hydra.job_logging.root.level=INFO"
    stream = "hydra.job_logging.handlers.console.stream='ext://sys.stdout'"
    assert printed() == (False, False)
    assert printed(level) == (False, True)
    assert printed(level, stream) == (True, False)


@row.refused("needs", "a run without a key that it is not meant to be without")
def _(lab):
    with pytest.raises(ConfigError, match="data.vectors"):
        lab.config("trees", "needs=[data.vectors]")
    assert lab.config("trees", "needs=[data.path]").needs == ["data.path"]


# What is scored, and what chooses


@row.changes("metrics", "these are computed, and no others beside the loss")
def _(lab):
    run = lab.run("molecules", "metrics=[mae,r2]")
    names = {name.split("/")[1] for name in run.metrics if name.startswith("val/")}
    assert names == {"mae", "r2", "loss", "coverage"}
    assert run.metrics["val/mae"] == pytest.approx(lab.run("molecules").metrics["val/mae"])


@row.changes("monitor", "the metric by which best.ckpt is chosen")
def _(lab):
    chosen = {}
    # Plain weights and sums, so that epochs differ enough for the two to disagree.
    words = ("metrics=[mae,spearman]", "trainer.max_epochs=5", "optimizer.lr=0.03")
    words += ("callbacks=default", "model.readout._target_=graphfold.layers.SumReadout")
    for monitor, best in (("val/mae", min), ("val/spearman", max)):
        run = lab.run("molecules", f"monitor={monitor}", *words)
        values = [epoch[monitor] for epoch in run.epochs()]
        assert run.metrics[monitor] == pytest.approx(best(values), abs=1e-6)
        chosen[monitor] = values.index(best(values))
        assert run.config["monitor"] == monitor
    assert len(run.epochs()) == 5
    assert chosen["val/mae"] != chosen["val/spearman"]


@row.changes("loss.reduction", "per_graph: a sum over nodes for each graph; per_node: their mean")
def _(lab):
    losses = {}
    for reduction in ("per_graph", "per_node"):
        run = lab.run("trees", f"loss.reduction={reduction}", "optimizer.lr=0")
        losses[reduction] = run.epochs()[0]["train/loss"]
    data = lab.data("trees")
    num_nodes = data.encoded("train").num_nodes
    assert losses["per_graph"] * 24 == pytest.approx(losses["per_node"] * num_nodes, rel=1e-5)


# Uncertainty


@row.changes("ensemble", "the mean of so many members, and their deviation in TARGET_std")
def _(lab):
    run = lab.run("molecules", "ensemble=2")
    items = list(MOLECULES)
    whole = run.predict(items)
    members = sorted(run.folder.glob("**/members/*/**/best.ckpt")) or sorted(
        path for path in run.folder.rglob("best.ckpt") if path.parent.parent != run.folder
    )
    assert len(members) == 2
    own = [[p["prediction"] for p in graphfold.load(path).predict(items)] for path in members]
    assert own[0] != own[1]
    mean = np.mean(own, axis=0)
    assert [p["prediction"] for p in whole] == pytest.approx(mean, abs=1e-4)
    assert all(p["std"] > 0 for p in whole)
    assert "std" not in lab.run("molecules").predict(items)[0]


@row.changes("calibration.method", "none: no intervals; conformal: intervals; else probabilities")
def _(lab):
    bare, conformal = (
        lab.run("molecules", HALVES, f"calibration.method={method}").predict(["CCO"])[0]
        for method in ("none", "conformal")
    )
    assert {*conformal} - {*bare} == {"lower", "upper"}
    assert conformal["lower"] < conformal["prediction"] < conformal["upper"]
    assert conformal["prediction"] == bare["prediction"]
    bare, after = (
        np.array([p["probabilities"]["yes"] for p in run.predict(list(MOLECULES))])
        for run in (
            lab.run("classes", HALVES, "optimizer.lr=0.1", f"calibration.method={method}")
            for method in ("none", "temperature")
        )
    )
    before, scaled = (np.log(p / (1 - p)) for p in (bare, after))
    temperature = (before @ before) / (scaled @ before)
    assert abs(temperature - 1) > 0.01
    assert scaled * temperature == pytest.approx(before, rel=0.01)


@row.changes("calibration.level", "the probability that an interval holds the true value")
def _(lab):
    conformal = ("molecules", HALVES, "calibration.method=conformal")
    (usual,) = lab.run(*conformal).predict(["CCO"])  # of 0.9
    (half,) = lab.run(*conformal, "calibration.level=0.5").predict(["CCO"])
    assert half["upper"] - half["lower"] < usual["upper"] - usual["lower"]


# Where a run begins, and what learns


@row.nothing("resume", "a run that is continued ends as an unbroken one, bit for bit")
def _(lab):
    unbroken = lab.run("trees", "trainer.max_epochs=2")
    broken = lab.run_anew("trees")
    words = [f"resume={broken.folder}", "trainer.max_epochs=2"]
    code, _, errors = lab.command("train", *words)
    assert code == 0, errors
    continued = Run(broken.folder, "")
    assert same_bits(unbroken.weights("last"), continued.weights("last"))
    assert unbroken.metrics == continued.metrics


@row.changes("init_from", "a new run begins with the weights of that one")
def _(lab):
    source = lab.run("molecules")
    words = (f"init_from={source.folder}", "seed=5", "data.seed=1", "optimizer.lr=0")
    assert same_bits(lab.run("molecules", *words).weights(), source.weights())


@row.nothing("freeze", "the parts that are named keep their bits; the others learn")
def _(lab):
    change = moved(lab, "freeze=[encoder]")
    frozen = {name: value for name, value in change.items() if name.startswith("encoder")}
    assert frozen
    assert not any(value.any() for value in frozen.values())
    assert any(value.any() for name, value in change.items() if name.startswith("head"))


# Optimizers and schedules


@row.changes(
    [
        *("optimizer/adagrad.lr", "optimizer/adam.lr", "optimizer/adamw.lr", "optimizer/sgd.lr"),
        *("optimizer/adagrad.weight_decay", "optimizer/adam.weight_decay"),
        *("optimizer/adamw.weight_decay", "optimizer/sgd.weight_decay", "optimizer/sgd.momentum"),
    ],
    "torch's optimizer of that name is made with it, and steps as it does by hand",
)
def _(lab, option):
    name, key = option.removeprefix("optimizer/").split(".")
    kinds = {"adagrad": "Adagrad", "adam": "Adam", "adamw": "AdamW", "sgd": "SGD"}
    optimizer = lab.loop("molecules", f"optimizer={name}", f"optimizer.{key}=0.3").optimizer
    assert type(optimizer).__name__ == kinds[name]
    assert {group[key] for group in optimizer.param_groups} == {0.3}


@row.changes(
    "experiment/sst_glove.optimizer.initial_accumulator_value", "what Adagrad's sums begin with"
)
def _(lab):
    words = ("optimizer=adagrad", "+optimizer.initial_accumulator_value=0.25")
    optimizer = lab.loop("trees", *words).optimizer
    assert {float(s["sum"].unique()) for s in optimizer.state.values()} == {0.25}


#: Of the plateau: no epoch improves a metric by so much.
NEVER_BETTER = ("+lr_scheduler.threshold=1e6", "+lr_scheduler.threshold_mode=abs")


@row.changes(
    [
        *("lr_scheduler/constant.factor", "lr_scheduler/cosine.T_max", "lr_scheduler/step.gamma"),
        *("lr_scheduler/step.step_size", "lr_scheduler/plateau.factor"),
        "lr_scheduler/plateau.patience",
    ],
    "the rate of each epoch of a run, as metrics.csv has it",
)
def _(lab, option):
    name = option.removeprefix("lr_scheduler/").partition(".")[0]
    words, factors = {
        "constant": (["lr_scheduler.factor=0.5"], [0.5, 0.5, 0.5]),
        "cosine": ([], [1, 0.75, 0.25]),
        "step": (["lr_scheduler.step_size=2", "lr_scheduler.gamma=0.1"], [1, 1, 0.1]),
        "plateau": (
            ["lr_scheduler.patience=0", "lr_scheduler.factor=0.1", *NEVER_BETTER],
            [1, 1, 0.1],
        ),
    }[name]
    rate = 1e-3
    words += ["optimizer=sgd", f"optimizer.lr={rate}", "trainer.max_epochs=3"]
    run = lab.run("molecules", *words, f"lr_scheduler={name}")
    assert [epoch["lr"] / rate for epoch in run.epochs()] == pytest.approx(factors, rel=1e-4)


# The trainer


@row.changes("trainer/default.max_epochs", "the number of epochs; 0 trains nothing")
def _(lab):
    assert len(lab.run("trees", "trainer.max_epochs=2").epochs()) == 2
    assert len(lab.run("trees").epochs()) == 1


@row.changes("trainer/default.accelerator", "where it is trained")
def _(lab):
    lab.run_anew("molecules", *SPY, "trainer.accelerator=cpu")
    assert Spy.facts["device"] == "cpu"
    code, _, errors = lab.command(
        "train",
        *lab.base("molecules"),
        "trainer.accelerator=abacus",
        f"hydra.run.dir={lab.folder}/no",
    )
    assert (code, "abacus" in errors) == (2, True)


@row.changes("trainer/default.precision", "in bf16 the numbers are rounded, and differ a little")
def _(lab):
    full, half = (
        lab.run("molecules", *STEP, *SPY, f"trainer.precision={p}")
        for p in ("32-true", "bf16-mixed")
    )
    assert Spy.facts["precision"] == "bf16-mixed"
    first, second = full.epochs()[0]["train/loss"], half.epochs()[0]["train/loss"]
    assert first != second
    assert first == pytest.approx(second, rel=0.05)


@row.nothing(
    "trainer/default.accumulate_grad_batches", "two batches of 12 are a step like one of 24"
)
def _(lab):
    words = ("optimizer=sgd", "optimizer.momentum=0", "optimizer.lr=0.1")
    whole = lab.run("molecules", *STEP).weights()
    parts = lab.run(
        "molecules", *words, "data.batch_size=12", "trainer.accumulate_grad_batches=2"
    ).weights()
    for name, value in whole.items():
        same(parts[name], value, rtol=1e-4, atol=1e-5)


@row.changes("trainer/default.gradient_clip_val", "the largest norm of the gradient of a step")
def _(lab):
    assert norm(moved(lab)) > 0.1 * 0.05
    assert norm(moved(lab, "trainer.gradient_clip_val=0.05")) == pytest.approx(0.1 * 0.05, rel=1e-3)


@row.changes("trainer/default.limit_train_batches", "so many batches, or a share, are an epoch")
def _(lab):
    words = ("data.batch_size=4", "trainer.max_epochs=1")
    (whole,) = lab.run("molecules", *words).epochs()
    for limit, steps in (("2", 2), ("0.5", int(whole["step"] / 2))):
        (epoch,) = lab.run("molecules", *words, f"trainer.limit_train_batches={limit}").epochs()
        assert epoch["step"] == steps


@row.changes("trainer/default.limit_val_batches", "an epoch is judged by so many batches")
def _(lab):
    words = ("data.batch_size=2", "trainer.max_epochs=1")
    (whole,) = lab.run("molecules", *words).epochs()
    (part,) = lab.run("molecules", *words, "trainer.limit_val_batches=1").epochs()
    assert part["train/loss"] == whole["train/loss"]
    assert part["val/loss"] != whole["val/loss"]


@row.nothing(
    "trainer/default.devices", "two processes step like one with twice the batch", slow=True
)
def _(lab):
    words = ("optimizer=sgd", "optimizer.momentum=0", "optimizer.lr=0.1", "trainer.accelerator=cpu")
    one = lab.run("trees", *words, "data.batch_size=24").weights()
    two = lab.run("trees", *words, "data.batch_size=12", "trainer.devices=2").weights()
    for name, value in one.items():
        same(two[name], value, rtol=1e-4, atol=1e-5)


# Callbacks and loggers


@row.changes("callbacks/average.average.decay", "how slowly the mean follows the weights")
def _(lab):
    words = ("data.batch_size=4", "optimizer.lr=0.05")
    plain = lab.run("molecules", *words, "callbacks=default").weights()
    for decay in (0.01, 0.9):
        found = lab.run(
            "molecules", *words, "callbacks=average", f"callbacks.average.decay={decay}"
        ).weights()
        gap = norm({name: found[name] - value for name, value in plain.items()})
        assert gap > 0
        if decay == 0.01:
            close = gap
    assert close < gap / 3


def stopped_after(lab: Lab, *overrides: str) -> int:
    return len(lab.run("molecules", "trainer.max_epochs=6", *overrides).epochs())


@row.changes("callbacks/default.early_stopping", "null: training goes on to the last epoch")
def _(lab):
    assert stopped_after(lab, "callbacks=default", "optimizer.lr=0") == 6


@row.changes(
    "callbacks/early_stopping.early_stopping.patience", "epochs without improvement, then it stops"
)
def _(lab):
    words = ("callbacks=[average,early_stopping]", "callbacks.early_stopping.patience=1")
    assert stopped_after(lab, *words, "optimizer.lr=0") == 2


@row.changes(
    "callbacks/early_stopping.early_stopping.min_delta", "a smaller improvement counts for none"
)
def _(lab):
    words = (
        "callbacks=early_stopping",
        "callbacks.early_stopping.patience=1",
        "model.readout._target_=graphfold.layers.SumReadout",  # improves at once
    )
    assert stopped_after(lab, *words, "callbacks.early_stopping.min_delta=1000") == 2
    assert stopped_after(lab, *words) > 2


@row.changes(
    ["logger/mlflow.mlflow.experiment", "logger/wandb.wandb.project"],
    "where MLflow and Weights & Biases list the run",
)
def _(lab, monkeypatch):
    mlflow, wandb = mock.MagicMock(), mock.MagicMock()
    monkeypatch.setitem(sys.modules, "mlflow", mlflow)
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    monkeypatch.setenv("WANDB_PROJECT", "films")
    for words, experiment, project in (
        ((), "smiles_gcn", "films"),
        (("logger.mlflow.experiment=mine", "logger.wandb.project=own"), "mine", "own"),
    ):
        config = lab.config("molecules", "logger=[mlflow,wandb]", *words)
        make_loggers(config.logger, {"seed": 1}, lab.folder)
        mlflow.set_experiment.assert_called_with(experiment)
        wandb.init.assert_called_with(project=project, dir=str(lab.folder))
