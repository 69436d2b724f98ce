"""Training from start to end: data, model, fit, final scores, report."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback

from graphfold.dag import select
from graphfold.datasets.inspection.graph_hash import hash_graphs
from graphfold.datasets.loading.data_module import DataModule
from graphfold.errors import DataError
from graphfold.files import write_json
from graphfold.inference.calibrate import calibrate
from graphfold.inference.evaluate import score_part
from graphfold.inference.missed_coverage import missed_coverage
from graphfold.inference.part_files import write_predictions, write_split
from graphfold.layers.baselines.fitted_model import FittedModel
from graphfold.layers.heads.eval_rows import EvalRows
from graphfold.reports.report import write_report
from graphfold.training.config.check_parts import check_parts, check_trainer
from graphfold.training.config.compose import Composed
from graphfold.training.config.model import ensemble_size
from graphfold.training.config.trust import TRAINED, named_packages, refuse_untrusted
from graphfold.training.console import describe_data, describe_positive, metrics_table
from graphfold.training.loop.cell_check import warn_of_batch_dependence
from graphfold.training.loop.data_check import check_measured, warn_of_leak
from graphfold.training.loop.fit import fit
from graphfold.training.loop.fit_once import fit_once
from graphfold.training.loop.learner import Learner, make_learner
from graphfold.training.process.process import prepare_process
from graphfold.training.process.ranks import is_first, printing_once
from graphfold.training.run.best_and_last import write_history
from graphfold.training.run.checkpoint import Checkpoint
from graphfold.training.run.chemprop_encoder import take_encoder
from graphfold.training.run.generators import member_seed
from graphfold.training.run.initial_weights import take_weights
from graphfold.training.run.members import join_members, read_histories
from graphfold.training.run.places import split_without_places, without_places
from graphfold.training.run.resuming import (
    change_config,
    check_epochs,
    check_model,
    epochs_done,
    has_finished,
    load_begun,
)
from graphfold.training.run.run_folder import RunFolder
from graphfold.training.run.trained import TrainedModel
from graphfold.training.scoring import Metrics, warn_of_undefined


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
        with printing_once():
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
    callbacks: Sequence[Callback] = (),
) -> Metrics:
    """Trains a model, scores its best checkpoint on val and test, writes the run folder.

    Args:
        config: a whole config, as `compose` gives it.
        folder: where everything is written.
        notices: lines to print once the input has been accepted.
        said: as for `train_command`.
        callbacks: more of Lightning's callbacks, which come last.

    Returns:
        What metrics.json holds; nothing in the further processes of one training.

    Raises:
        GraphfoldError: before any epoch, if config or data cannot be used, or another training
            runs in the folder.
        KeyboardInterrupt: on Ctrl-C; the run can be resumed.
    """
    check_parts(config)
    check_trainer(config)
    return _start(config, folder, named_packages(config), notices, said, callbacks=callbacks)


def _start(
    config: Mapping[str, Any],
    folder: RunFolder,
    trusted: Collection[str],
    notices: Sequence[str] = (),
    said: set[str] | None = None,
    anew: bool = False,
    callbacks: Sequence[Callback] = (),
) -> Metrics:
    """Trains from the first epoch; `anew` if `folder` holds this very run."""
    data = DataModule(**config["data"])
    data.prepare()
    if not len(data.split.train):
        raise DataError("the training part has no record. Give more data, or other data.fractions.")
    _print_new([*notices, *describe_data(data).splitlines()], said)
    warn_of_leak(data)
    first = _make_member(config, data, 0)
    train = data.encoded("train")
    warn_of_batch_dependence(first[0].model, train)
    check_measured(first[0].model, train)
    with nullcontext() if anew else folder.lock():
        if is_first():
            folder.create(config, anew)
        print(f"training in {folder.path}", flush=True)
        _fit_members(config, folder, data, first=first, callbacks=callbacks)
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
        if is_first():
            folder.remove_leftovers()
        members = folder.members(ensemble_size(config))
        if not members[0].last.is_file():
            print(f"{folder.path} has no checkpoints/last.ckpt yet, so it starts anew.", flush=True)
            return _start(config, folder, trusted, anew=True)
        begun = load_begun(folder, members, config)
        for last in begun:
            check_epochs(config, stored, epochs_done(last))
        data = DataModule(**config["data"])
        data.prepare({"split": begun[0].split, "spec": begun[0].spec})
        further = "trainer.max_epochs" in changes
        if len(begun) == len(members) and all(_is_done(last, config, further) for last in begun):
            print(f"{folder.path} is finished: its best checkpoint is scored again.", flush=True)
            return finish(folder, data, trusted)
        if is_first():
            folder.write_config(config)
        # The same metric as before, whatever this version would choose.
        config = {**config, "monitor": begun[0].config.get("monitor")}
        _fit_members(config, folder, data, further)
        return finish(folder, data, trusted)


def _is_done(last: Checkpoint, config: Mapping[str, Any], further: bool) -> bool:
    """True if there is nothing left to train; `further` if more epochs have been asked for."""
    stopped = has_finished(last) and not further
    return stopped or epochs_done(last) >= config["trainer"]["max_epochs"]


def _fit_members(
    config: Mapping[str, Any],
    folder: RunFolder,
    data: DataModule,
    further: bool = False,
    first: tuple[Learner, dict[str, Any]] | None = None,
    callbacks: Sequence[Callback] = (),
) -> None:
    """Trains the model of a run, or the members of an ensemble one after another and joins them.

    Each has its own initial weights, order of records, and best epoch. One that has a last.ckpt
    goes on from it; one that is done stays as it is.

    Args:
        config: the config of the run.
        folder: where the run is.
        data: what it learns from, prepared.
        further: whether members that had stopped are to go on.
        first: the first member of a run that begins.
        callbacks: those that come after all others.
    """
    members = folder.members(ensemble_size(config))
    for number, own in enumerate(members):
        name = f"member {number + 1} of {len(members)}" if len(members) > 1 else str(folder.path)
        # What the folder of a run that begins held before may still be there in a further process.
        resume = first is None and own.last.is_file()
        if resume:
            last = Checkpoint.load(own.last)
            if _is_done(last, config, further):
                continue
            print(f"{name} goes on after epoch {epochs_done(last)}.", flush=True)
            learner, complete = make_learner(config, data, number, begins=False)
            check_model(learner.model, last, own.last)
        else:
            if len(members) > 1:
                print(name, flush=True)
            ready = first if number == 0 else None
            learner, complete = ready or _make_member(config, data, number)
        if is_first():
            own.best.parent.mkdir(parents=True, exist_ok=True)
        common = _common_checkpoint({**complete, "ensemble": 1}, data, number)
        order = member_seed(data.settings.split.seed, number)
        if not isinstance(learner.model, FittedModel):
            fit(complete, own, learner, data, common, resume, order, callbacks)
        elif is_first():
            fit_once(complete, own, learner, learner.model, data, common)
    if len(members) > 1 and is_first():
        join_members(folder, members)


def _make_member(
    config: Mapping[str, Any], data: DataModule, member: int
) -> tuple[Learner, dict[str, Any]]:
    """`make_learner`, with the weights of another run where the config names one."""
    learner, complete = make_learner(config, data, member)
    if config.get("init_from") is not None:
        path = Path(config["init_from"])
        print(take_weights(learner.model, data.spec, path, member), flush=True)
    if config["model"].get("encoder_from") is not None:
        print(take_encoder(learner.model, Path(config["model"]["encoder_from"])), flush=True)
    return learner, complete


def finish(folder: RunFolder, data: DataModule, trusted: Collection[str]) -> Metrics:
    """Calibrates and scores the best checkpoint; writes metrics, predictions, split and report.

    One process does: of several the first, the others return nothing.
    """
    if not is_first():
        return {}
    note = calibrate(folder.best, data, trusted) if len(data.split.val) else None
    if note is not None:
        print(note, flush=True)
    trained = TrainedModel.load(folder.best, trusted)
    metrics: Metrics = {}
    rows: dict[str, EvalRows] = {}
    for part in ("val", "test"):
        if len(data.split.part(part)):
            scores, rows[part] = score_part(trained, data, part)
            metrics |= scores
    warn_of_undefined(metrics)
    write_json(folder.metrics, metrics)
    write_split(folder.split, data)
    write_predictions(folder.predictions, data, trained.model.head, rows)
    history = read_histories(folder.members(trained.checkpoint.num_members))
    write_history(folder.history, history)  # kill -9 may have come between last.ckpt and this
    missed = missed_coverage(trained.model.head, rows)
    write_report(folder, trained, data, rows, metrics, history, missed)
    print("\n".join([metrics_table(metrics), *missed]))
    positive = describe_positive(trained.model.head, data.source.spec().make().class_names)
    if positive is not None:
        print(positive)
    print(f"report: {folder.report}", flush=True)
    return metrics


def _common_checkpoint(config: dict[str, Any], data: DataModule, member: int) -> Checkpoint:
    state = data.state_dict()
    return Checkpoint(
        config=without_places(config),
        spec=state["spec"],
        split=split_without_places(state["split"]),
        packages=named_packages(config),
        state_dict={},
        training_records=hash_graphs(select(data.raw, data.split.train)),
        progress={"member": member},
    )


def _print_new(lines: Sequence[str], said: set[str] | None) -> None:
    """Prints the lines that were not said before."""
    known = set() if said is None else said
    for line in lines:
        if line not in known:
            print(line, flush=True)
    known.update(lines)
