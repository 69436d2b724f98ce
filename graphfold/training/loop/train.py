"""Training from start to end: data, model, fit, final scores, report."""

from __future__ import annotations

import random
import sys
from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch

from graphfold.dag import select
from graphfold.datasets.loading.data_module import DataModule
from graphfold.errors import DataError
from graphfold.files import write_json
from graphfold.layers.baselines.fitted_model import FittedModel
from graphfold.layers.heads.eval_rows import EvalRows
from graphfold.training.config.check_parts import check_parts, check_trainer
from graphfold.training.config.compose import Composed
from graphfold.training.config.instantiate import instantiate
from graphfold.training.config.model import build_model, complete_model_config
from graphfold.training.config.trust import TRAINED, named_packages, refuse_untrusted
from graphfold.training.loop.cell_check import warn_of_batch_dependence
from graphfold.training.loop.fit import fit
from graphfold.training.loop.fit_once import fit_once
from graphfold.training.loop.learner import Learner
from graphfold.training.process.process import prepare_process
from graphfold.training.report.report import write_report
from graphfold.training.report.tables import describe_data, metrics_table
from graphfold.training.run.best_and_last import write_history
from graphfold.training.run.checkpoint import Checkpoint
from graphfold.training.run.initial_weights import take_weights
from graphfold.training.run.resuming import (
    change_config,
    check_epochs,
    epochs_done,
    has_finished,
    read_history,
)
from graphfold.training.run.run_folder import RunFolder
from graphfold.training.run.trained import TrainedModel
from graphfold.training.scoring.evaluate import score_part
from graphfold.training.scoring.graph_hash import hash_graphs
from graphfold.training.scoring.metrics import Metrics, warn_of_undefined


def train_command(
    composed: Composed, trusted: Collection[str] = (), said: set[str] | None = None
) -> int:
    """`graphfold train` once: a new run, or an old one continued.

    Args:
        composed: the config, and the folder.
        trusted: packages that a continued run may name.
        said: what runs before this one have printed, and it need not; more is added.
    """
    resume = composed.config["resume"]
    folder = RunFolder(composed.folder if resume is None else Path(resume))
    try:
        if resume is None:
            train(composed.config, folder, [prepare_process(composed.config)], said)
        else:
            print(prepare_process(folder.read_config()), flush=True)
            resume_run(folder, trusted, composed.changes)
    except KeyboardInterrupt:
        if not folder.config.is_file():
            raise  # before training began
        packages = named_packages(folder.read_config(), TRAINED)
        command = " ".join([f"resume={folder.path}", *(f"--trust {name}" for name in packages)])
        print(f"interrupted. Continue with: graphfold train {command}", file=sys.stderr)
        return 1
    return 0


def train(
    config: Mapping[str, Any],
    folder: RunFolder,
    notices: Sequence[str] = (),
    said: set[str] | None = None,
) -> Metrics:
    """Trains a model, scores its best checkpoint on val and test, writes the run folder.

    Args:
        config: a whole config, as `compose` gives it.
        folder: where everything is written.
        notices: lines to print once the input has been accepted.
        said: as for `train_command`.

    Returns:
        What metrics.json holds.

    Raises:
        GraphfoldError: before any epoch, if config or data cannot be used, or another training
            runs in the folder.
        KeyboardInterrupt: on Ctrl-C; the run can be resumed.
    """
    check_parts(config)
    check_trainer(config)
    return _start(config, folder, named_packages(config), notices, said)


def _start(
    config: Mapping[str, Any],
    folder: RunFolder,
    trusted: Collection[str],
    notices: Sequence[str] = (),
    said: set[str] | None = None,
    anew: bool = False,
) -> Metrics:
    """Trains from the first epoch; `anew` if `folder` holds this very run."""
    data = DataModule(**config["data"])
    data.prepare()
    if not len(data.split.train):
        raise DataError("the training part has no record. Give more data, or other data.fractions.")
    _print_new([*notices, *describe_data(data).splitlines()], said)
    learner, complete = make_learner(config, data)
    if config.get("init_from") is not None:
        print(take_weights(learner.model, data.spec, Path(config["init_from"])), flush=True)
    warn_of_batch_dependence(learner.model, data.encoded("train"))
    with nullcontext() if anew else folder.lock():
        folder.create(config, anew)
        print(f"training in {folder.path}", flush=True)
        _fit(complete, folder, learner, data, resume=False)
        return finish(folder, data, trusted)


def resume_run(
    folder: RunFolder, trusted: Collection[str] = (), changes: Mapping[str, Any] | None = None
) -> Metrics:
    """Continues an interrupted run in its own folder with its own config.

    A run without last.ckpt starts anew; a finished one is only scored again, unless it is given
    more epochs.

    Args:
        folder: the folder of the run.
        trusted: packages that it may name; see `graphfold.training.config.trust`.
        changes: dotted key -> new value; of the keys `RESUMABLE`.

    Raises:
        GraphfoldError: if it is no run folder, its config names code that is not trusted, its data
            changed, or another training runs in it.
        KeyboardInterrupt: on Ctrl-C; the run can be resumed.
    """
    changes = changes or {}
    stored = folder.read_config()
    config = change_config(stored, changes)
    refuse_untrusted(config, trusted, TRAINED)
    check_parts(config)
    check_trainer(config)
    with folder.lock():
        folder.remove_leftovers()
        if not folder.last.is_file():
            print(f"{folder.path} has no checkpoints/last.ckpt yet, so it starts anew.", flush=True)
            return _start(config, folder, trusted, anew=True)
        last = Checkpoint.load(folder.last)
        done = epochs_done(last)
        is_finished = has_finished(last) and "trainer.max_epochs" not in changes
        check_epochs(config, stored, done)
        data = DataModule(**config["data"])
        data.prepare({"split": last.split, "spec": last.spec})
        if is_finished or done >= config["trainer"]["max_epochs"]:
            print(f"{folder.path} is finished: its best checkpoint is scored again.", flush=True)
            return finish(folder, data, trusted)
        print(f"{folder.path} goes on after epoch {done}.", flush=True)
        learner, complete = make_learner(config, data)
        folder.write_config(config)
        _fit(complete, folder, learner, data, resume=True)
        return finish(folder, data, trusted)


def _fit(
    config: dict[str, Any], folder: RunFolder, learner: Learner, data: DataModule, resume: bool
) -> None:
    """Fits the model, epoch by epoch or at once."""
    common = _common_checkpoint(config, data)
    if isinstance(learner.model, FittedModel):
        fit_once(config, folder, learner, learner.model, data, common)
    else:
        fit(config, folder, learner, data, common, resume)


def finish(folder: RunFolder, data: DataModule, trusted: Collection[str]) -> Metrics:
    """Scores the best checkpoint, writes metrics.json and report.html, prints the table."""
    trained = TrainedModel.load(folder.best, trusted)
    metrics: Metrics = {}
    rows: dict[str, EvalRows] = {}
    for part in ("val", "test"):
        if len(data.split.part(part)):
            scores, rows[part] = score_part(trained, data, part)
            metrics |= scores
    warn_of_undefined(metrics)
    write_json(folder.metrics, metrics)
    history = read_history(Checkpoint.load(folder.last))
    write_history(folder.history, history)  # kill -9 may have come between last.ckpt and this
    write_report(folder, trained, data, rows, metrics, history)
    print(metrics_table(metrics))
    print(f"report: {folder.report}", flush=True)
    return metrics


def make_learner(config: Mapping[str, Any], data: DataModule) -> tuple[Learner, dict[str, Any]]:
    """A fresh model with what trains it, and the config with all that the data decided.

    Raises:
        ConfigError: if the model does not fit the data, or `monitor` is no metric of it.
    """
    seed_generators(config["seed"])
    model_config = complete_model_config(
        config["model"],
        data.spec.schema,
        data.encoded("train"),
        data.source.spec().options.get("task"),
    )
    model = build_model(model_config, data.spec.schema, data.spec.scalers)
    learner = Learner(
        model,
        instantiate(config["optimizer"], "optimizer"),
        instantiate(config["lr_scheduler"], "lr_scheduler"),
        reduction=config["loss"]["reduction"],
        metrics=config.get("metrics"),
        accumulate=config["trainer"]["accumulate_grad_batches"],
        clip=config["trainer"]["gradient_clip_val"],
    )
    has_roots = bool((data.encoded("val").output_ptr.diff() == 1).all())
    learner.monitor = learner.head_metrics.choose_monitor(config["monitor"], has_roots)
    settings = {**config["data"], **data.inferred_options}
    complete = {"data": settings, "model": model_config, "monitor": learner.monitor}
    return learner, {**config, **complete}


def seed_generators(seed: int) -> None:
    """Seeds Python's, NumPy's and torch's generators."""
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002
    torch.manual_seed(seed)


def _common_checkpoint(config: dict[str, Any], data: DataModule) -> Checkpoint:
    state = data.state_dict()
    return Checkpoint(
        config=config,
        spec=state["spec"],
        split=state["split"],
        packages=named_packages(config),
        state_dict={},
        training_records=hash_graphs(select(data.raw, data.split.train)),
    )


def _print_new(lines: Sequence[str], said: set[str] | None) -> None:
    """Prints the lines that were not said before."""
    known = set() if said is None else said
    for line in lines:
        if line not in known:
            print(line, flush=True)
    known.update(lines)
