"""Training from start to end: data, model, fit, final scores, report."""

from __future__ import annotations

import random
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from graphfold.dag import select
from graphfold.datasets.loading.data_module import DataModule
from graphfold.errors import CheckpointError, ConfigError, DataError, did_you_mean
from graphfold.files import write_json
from graphfold.layers import Model
from graphfold.training.config.check_parts import check_parts
from graphfold.training.config.compose import Composed
from graphfold.training.config.earlier_configs import upgraded
from graphfold.training.config.instantiate import instantiate
from graphfold.training.config.model import build_model, complete_model_config
from graphfold.training.loop.fit import fit
from graphfold.training.loop.learner import Learner
from graphfold.training.process.process import prepare_process
from graphfold.training.process.products import products_in_use
from graphfold.training.report.report import write_report
from graphfold.training.report.tables import describe_data, metrics_table
from graphfold.training.run.best_and_last import write_history
from graphfold.training.run.checkpoint import Checkpoint
from graphfold.training.run.run_folder import RunFolder
from graphfold.training.run.trained import TrainedModel, named_packages
from graphfold.training.scoring.evaluate import score_part
from graphfold.training.scoring.graph_hash import hash_graphs
from graphfold.training.scoring.metrics import Metrics, warn_of_undefined
from graphfold.training.scoring.scoring import Rows, metric_names


def train_command(composed: Composed) -> int:
    """`graphfold train` once: a new run, or an old one continued."""
    resume = composed.config["resume"]
    folder = composed.folder if resume is None else Path(resume)
    try:
        if resume is None:
            about_process = prepare_process(composed.config)
            train(composed.config, RunFolder(folder), about_process=about_process)
        else:
            print(prepare_process(RunFolder(folder).read_config()))
            resume_run(RunFolder(folder))
    except KeyboardInterrupt:
        if not RunFolder(folder).config.is_file():
            raise  # before training began
        print(f"interrupted. Continue with: graphfold train resume={folder}", file=sys.stderr)
        return 1
    return 0


def train(
    config: Mapping[str, Any], folder: RunFolder, anew: bool = False, about_process: str = ""
) -> Metrics:
    """Trains a model, scores its best checkpoint on val and test, writes the run folder.

    Args:
        config: a whole config, as `compose` gives it.
        folder: where everything is written.
        anew: whether `folder` holds this very run, without an epoch to go on from.
        about_process: what to say of threads and products, once the input has been accepted.

    Returns:
        What metrics.json holds.

    Raises:
        GraphfoldError: before any epoch, if config or data cannot be used.
        KeyboardInterrupt: on Ctrl-C; the run can be resumed.
    """
    check_parts(config)
    config = {**config, "products": products_in_use()}
    data = DataModule(**config["data"])
    data.prepare()
    if not len(data.split.train):
        raise DataError("the training part has no record. Give more data, or other data.fractions.")
    about = about_process, describe_data(data)
    print("\n".join(filter(None, about)), flush=True)
    learner, complete = make_learner(config, data)
    folder.create(config, anew)
    print(f"training in {folder.path}", flush=True)
    common = _common_checkpoint(complete, data)
    fit(complete, folder, learner, data, common, resume=False)
    return finish(folder, data)


def resume_run(folder: RunFolder) -> Metrics:
    """Continues an interrupted run in its own folder with its own config.

    A run without last.ckpt starts anew; a finished one is only scored again.

    Raises:
        GraphfoldError: if it is no run folder, or its data changed.
        KeyboardInterrupt: on Ctrl-C; the run can be resumed.
    """
    config = upgraded(folder.read_config())
    folder.remove_leftovers()
    if not folder.last.is_file():
        print(f"{folder.path} has no checkpoints/last.ckpt yet, so it starts anew.", flush=True)
        return train(config, folder, anew=True)
    last = Checkpoint.load(folder.last)
    check_parts(config)
    data = DataModule(**config["data"])
    data.prepare({"split": last.split, "spec": last.spec})
    if _is_finished(last):
        print(f"{folder.path} is finished: its best checkpoint is scored again.", flush=True)
        return finish(folder, data)
    print(f"{folder.path} goes on after epoch {last.progress['epoch'] + 1}.", flush=True)
    learner, complete = make_learner(config, data)
    common = _common_checkpoint(complete, data)
    fit(complete, folder, learner, data, common, resume=True)
    return finish(folder, data)


def finish(folder: RunFolder, data: DataModule) -> Metrics:
    """Scores the best checkpoint, writes metrics.json and report.html, prints the table."""
    packages = Checkpoint.load(folder.best).packages  # this very run has used them
    trained = TrainedModel.load(folder.best, packages)
    metrics: Metrics = {}
    rows: dict[str, Rows] = {}
    for part in ("val", "test"):
        if len(data.split.part(part)):
            scores, rows[part] = score_part(trained, data, part)
            metrics |= scores
    warn_of_undefined(metrics)
    write_json(folder.metrics, metrics)
    history = _history(folder)
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
        accumulate=config["trainer"]["accumulate_grad_batches"],
        clip=config["trainer"]["gradient_clip_val"],
    )
    learner.monitor = _monitor(config["monitor"], model, data)
    settings = {**config["data"], **data.inferred_options}
    complete = {"data": settings, "model": model_config, "monitor": learner.monitor}
    return learner, {**config, **complete}


def seed_generators(seed: int) -> None:
    """Seeds Python's, NumPy's and torch's generators."""
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002
    torch.manual_seed(seed)


def _monitor(wanted: str | None, model: Model, data: DataModule) -> str:
    """The metric that chooses the best checkpoint."""
    has_roots = bool((data.encoded("val").output_ptr.diff() == 1).all())
    names = [f"val/{name}" for name in metric_names(model.head, has_roots)]
    if wanted is not None and wanted not in names:
        raise ConfigError(
            f"monitor is '{wanted}', but these targets have no such metric."
            f"{did_you_mean(wanted, names)} There are: {', '.join(names)}."
        )
    return wanted or names[0]


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


def _history(folder: RunFolder) -> list[Metrics]:
    return list(_progress(Checkpoint.load(folder.last))["history"])


def _is_finished(last: Checkpoint) -> bool:
    return bool(_progress(last)["is_finished"])


def _progress(last: Checkpoint) -> dict[str, Any]:
    """What `BestAndLast` keeps in last.ckpt."""
    try:
        return dict(last.progress["callbacks"]["BestAndLast"])
    except (KeyError, TypeError) as error:
        raise CheckpointError("last.ckpt holds no progress. Restore the file.") from error
