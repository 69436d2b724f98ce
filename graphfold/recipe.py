"""The recipe of a training, from top to bottom: data, model, loop, checkpoints, scores, report.

A run goes through these functions in their order:

    train          overrides -> config -> a run folder with all its files
    start_run      data are read, split and encoded
    decide         the config is completed by the data: classes, widths, readout and head
    begin_member   a model with its first weights, and the loop that trains it
    fit_members    one model after another (an ensemble has several), each with a loop
    fit_network    the loop, in one process or several: epochs, best.ckpt and last.ckpt
    finish         the best checkpoint is calibrated and scored; predictions and report are written

`resume_run` joins at `fit_members`. A `graphfold.training.Callback` takes part in a training;
docs/training_loop.md has a loop in plain torch.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from textwrap import indent
from typing import Any

from graphfold.dag import TypedDAG
from graphfold.datasets.data_module import DataModule
from graphfold.datasets.readers.graphs import save_graphs
from graphfold.errors import ConfigError, DataError, GraphfoldError, kind_of
from graphfold.files import write_json
from graphfold.inference.evaluation import (
    calibrate_and_score,
    evaluate,
    part_metrics,
    rehearse,
)
from graphfold.inference.part_files import write_predictions, write_split
from graphfold.inference.predictor import Predictor, load
from graphfold.layers import Model
from graphfold.training.config.build_model import decide
from graphfold.training.config.check_parts import check_parts
from graphfold.training.config.compose import compose
from graphfold.training.config.instantiate import instantiate
from graphfold.training.config.overrides import in_hydras_grammar
from graphfold.training.config.planned_run import AUTO_RESUME, PlannedRun, begin_or_continue
from graphfold.training.config.training_config import TrainingConfig
from graphfold.training.config.trust import TRAINED, named_packages, refuse_untrusted
from graphfold.training.console import describe_data, describe_positive, metrics_table, print_new
from graphfold.training.loop.checks import (
    check_measured,
    check_padding,
    check_targets,
    refuse_unread_options,
    warn_of_leak,
)
from graphfold.training.loop.fitting import fit_network
from graphfold.training.loop.loggers import Logger, end_loggers, make_loggers
from graphfold.training.loop.loop import Callback, Loop
from graphfold.training.process.launch import is_first, num_processes
from graphfold.training.process.process import deterministic_algorithms, prepare_process
from graphfold.training.process.ranks import joined
from graphfold.training.run.best_and_last import (
    check_epochs,
    epochs_done,
    is_done,
    join_members,
    load_begun,
    read_histories,
    write_history,
)
from graphfold.training.run.checkpoint import Checkpoint
from graphfold.training.run.initial_weights import begin_model, make_model
from graphfold.training.run.run_folder import RunFolder
from graphfold.training.scoring import Metrics, warn_of_undefined


@dataclass(frozen=True)
class Run:
    """A finished training.

    Args:
        folder: the run folder: configuration, checkpoints, metrics, report.
        metrics: what metrics.json holds: name -> value of the best checkpoint on `val/` and
            `test/`, in the targets' own units; None where a metric is undefined.
        packages: third-party packages that the run named, and which `load` imports.
    """

    folder: Path
    metrics: Metrics
    packages: tuple[str, ...] = ()

    def __str__(self) -> str:
        """A tree: the folder, the metrics, and the best model with its shapes, which is loaded."""
        try:
            model = repr(self.load().trained)
        except GraphfoldError as error:
            model = f"the model cannot be loaded: {error}"
        parts = [str(self.folder), metrics_table(self.metrics), model]
        return indent("\n".join(["Run(", *parts]), "  ")[2:] + "\n)"

    def load(self, **settings: Any) -> Predictor:
        """The best checkpoint, ready to predict: `graphfold.load` of the folder."""
        return load(self.folder, self.packages, **settings)

    def evaluate(
        self, path: str | Path | None = None, split: str | None = None, **settings: Any
    ) -> Metrics:
        """The metrics of the best checkpoint on other data, or on parts of the run's own.

        Args:
            path: a file, all of whose records are scored, under test/.
            split: train, val or test of the run's own data; None for val and test.
            **settings: keys of the config group `data` that differ from the run's.
        """
        other = None if path is None else Path(path)
        return evaluate(self.folder, other, split, settings, self.packages)


def train(
    config: Mapping[str, Any] | Sequence[str] = (),
    folder: str | Path | None = None,
    *,
    data: TypedDAG | Mapping[str, TypedDAG] | None = None,
    config_dir: str | Path | None = None,
    trust: Collection[str] = (),
    callbacks: Sequence[Callback] = (),
) -> Run:
    """Trains a model into a run folder, and scores its best checkpoint on val and test.

    It changes nothing of the process: threads and the garbage collector stay as they are, where
    the command chooses them.

    Args:
        config: overrides of the default config, key -> value, such as `{"data": "smiles",
            "data.path": "solubility.csv"}`, or the words of the command line, such as
            `["data=smiles", "data.path=solubility.csv"]`. Nothing trains the default experiment.
            Or a whole config, as config.yaml of a run folder holds it.
        folder: the run folder; None for that of `hydra.run.dir`, which a whole config lacks.
        data: graphs in memory to train on, or train, val and test -> those of each part. They are
            stored in the run folder, as if by `save_graphs` and `data=graphs`.
        config_dir: a further folder of config files.
        trust: packages that a run which is continued (`resume`) may name.
        callbacks: called after those of the config.

    Raises:
        GraphfoldError: before any epoch, if the config or the data cannot be used.
        KeyboardInterrupt: on Ctrl-C; `{"resume": folder}` continues the run, and the same call with
            `resume=auto` begins a run or continues it.
    """
    if isinstance(config, str):
        raise ConfigError(f"train takes a list of overrides, not a string. Write [{config!r}].")
    if isinstance(config, Mapping) and isinstance(config.get("model"), Mapping):
        if folder is None:
            raise ConfigError("a whole config does not say where the run goes. Give a folder.")
        if data is not None:
            raise ConfigError("a whole config names its data. Leave out data, or give overrides.")
        planned = PlannedRun(TrainingConfig.of(config), Path(folder))
    else:
        words = list(config)
        if isinstance(config, Mapping):
            words = [f"{key}={in_hydras_grammar(value)}" for key, value in config.items()]
        if data is not None:
            words = [*_store_graphs(data, folder), *words]
        planned = compose(words, None if config_dir is None else Path(config_dir))
    if folder is not None and planned.config.resume not in (None, AUTO_RESUME):
        raise ConfigError("a run is continued in its own folder. Leave out folder or resume.")
    planned = begin_or_continue(planned, None if folder is None else Path(folder))
    whole = planned.config
    if whole.resume is not None:
        files, trust = RunFolder(Path(whole.resume)), (*trust, *planned.packages)
        metrics = resume_run(files, trust, planned.changes, callbacks)
        return Run(files.path, metrics, trust)
    files = RunFolder(Path(folder or planned.folder))
    metrics = start_run(whole, files, callbacks=callbacks)
    return Run(files.path, metrics, tuple(named_packages(whole.mapping)))


def _store_graphs(data: TypedDAG | Mapping[str, TypedDAG], folder: str | Path | None) -> list[str]:
    """Writes graphs into a run folder; returns the overrides that train on them."""
    if folder is None:
        raise ConfigError("graphs in memory are stored in the run folder. Give a folder.")
    parts = data if isinstance(data, Mapping) else {"graphs": data}
    for dag in parts.values():
        if not isinstance(dag, TypedDAG):
            raise ConfigError(
                f"data is {kind_of(dag)}, but a TypedDAG is needed. Build the graphs."
            )
    place = Path(folder) / "graphs"
    place.mkdir(parents=True, exist_ok=True)
    paths = {part: str(place / f"{part}.npz") for part in parts}
    for part, dag in parts.items():
        save_graphs(dag, paths[part])
    path = paths if isinstance(data, Mapping) else paths["graphs"]
    return ["data=graphs", f"data.path={in_hydras_grammar(path)}"]


def train_command(
    run: PlannedRun,
    trusted: Collection[str] = (),
    printed: set[str] | None = None,
    data: DataModule | None = None,
) -> int:
    """`graphfold train` once: a new run, or an old one continued.

    Args:
        run: the config, and the folder.
        trusted: packages that a continued run may name.
        printed: lines that earlier runs of a sweep printed; they are not repeated. Extended in
            place.
        data: of a new run, see `start_run`.
    """
    resume = run.config.resume
    folder = RunFolder(run.folder if resume is None else Path(resume))
    try:
        if resume is None:
            notices = [prepare_process(run.config.threads)]
            start_run(run.config, folder, notices, printed, data=data)
        else:
            print(prepare_process(run.config.threads), flush=True)
            resume_run(folder, trusted, run.changes)
    except KeyboardInterrupt:
        if not folder.config.is_file():
            raise  # before training began
        packages = named_packages(folder.read_config().mapping, TRAINED)
        command = " ".join([f"resume={folder.path}", *(f"--trust {name}" for name in packages)])
        if is_first():
            print(f"interrupted. Continue with: graphfold train {command}", file=sys.stderr)
        return 1
    return 0


def start_run(
    config: TrainingConfig,
    folder: RunFolder,
    notices: Sequence[str] = (),
    printed: set[str] | None = None,
    callbacks: Sequence[Callback] = (),
    trusted: Collection[str] | None = None,
    data: DataModule | None = None,
) -> Metrics:
    """Trains a model from the first epoch, scores its best checkpoint, writes the run folder.

    Args:
        config: config of the run.
        folder: where everything is written.
        notices: lines to print once the input has been accepted.
        printed: as for `train_command`.
        callbacks: called after those of the config.
        trusted: None for a new run; the packages that a run without last.ckpt, which begins anew in
            its folder, may name.
        data: what `check_parts` returned for the config, if it was checked already.

    Returns:
        What metrics.json holds; nothing in the further processes of one training.

    Raises:
        GraphfoldError: before any epoch, if config or data cannot be used, or another training
            runs in the folder.
    """
    num_processes(config.trainer.devices)  # refuses what nobody has started, before data are read
    data = check_parts(config) if data is None else data
    data.prepare()
    if not len(data.split.train):
        raise DataError("the training part has no record. Give more data, or other data.fractions.")
    print_new([*notices, *describe_data(data).splitlines()], printed)
    warn_of_leak(data)
    decided = decide(config, data)
    first = begin_member(decided, data, 0, callbacks)  # its faults are told before work
    refuse_unread_options(decided, first, len(data.split.val))
    check_padding(first.model, data)
    check_targets(first.model, data)
    of_graphs = first.model.head.level == "graph"
    check_measured(first.model, data.chunks("train", encoded=True, facts=of_graphs))
    rehearse(decided, first.model, data)
    begins_anew = trusted is not None
    with nullcontext() if begins_anew else folder.lock():
        if is_first():
            folder.create(config, begins_anew)
        print(f"training in {folder.path}", flush=True)
        loggers = fit_members(decided, folder, data, callbacks, first=first)
        packages = named_packages(config.mapping) if trusted is None else trusted
        return finish(config, folder, data, packages, loggers)


def resume_run(
    folder: RunFolder,
    trusted: Collection[str] = (),
    changes: Mapping[str, Any] | None = None,
    callbacks: Sequence[Callback] = (),
) -> Metrics:
    """Continues an interrupted run in its own folder with its own config.

    A run without last.ckpt starts anew; a finished one is only scored again, unless it is given
    more epochs.

    Args:
        folder: the folder of the run.
        trusted: packages that it may name; see `graphfold.training.config.trust`.
        changes: dotted key -> new value; of the keys `RESUMABLE`.
        callbacks: called after those of the config.

    Raises:
        GraphfoldError: if it is no run folder, its config names code that is not trusted, its data
            changed, or another training runs in it.
    """
    changes = changes or {}
    stored = folder.read_config()
    config = stored.changed(changes)
    refuse_untrusted(config.mapping, trusted, TRAINED)
    data = check_parts(config)
    with folder.lock():
        members = folder.members(config.ensemble)
        if is_first():
            for files in (folder, *members):
                files.remove_leftovers()
        if not members[0].last.is_file():
            print(f"{folder.path} has no checkpoints/last.ckpt yet, so it starts anew.", flush=True)
            return start_run(config, folder, callbacks=callbacks, trusted=trusted, data=data)
        begun = load_begun(members)
        for last in begun:
            check_epochs(config, stored, epochs_done(last))
        data.prepare({"split": begun[0].split, "spec": begun[0].spec})
        max_epochs = config.trainer.max_epochs
        trained_for = begun[0].config["trainer"]["max_epochs"]
        more = changes.get("trainer.max_epochs", trained_for) != trained_for
        if len(begun) == len(members) and all(is_done(last, max_epochs, more) for last in begun):
            print(f"{folder.path} is finished: its best checkpoint is scored again.", flush=True)
            return finish(config, folder, data, trusted)
        if is_first():
            folder.write_config(config)
        loggers = fit_members(decide(config, data), folder, data, callbacks, more_epochs=more)
        return finish(config, folder, data, trusted, loggers)


def fit_members(
    config: TrainingConfig,
    folder: RunFolder,
    data: DataModule,
    callbacks: Sequence[Callback] = (),
    more_epochs: bool = False,
    first: Loop | None = None,
) -> Sequence[Logger]:
    """Trains the model of a run, or the members of an ensemble one after another and joins them.

    Each has its own initial weights, order of records, and best epoch. One that has a last.ckpt
    goes on from it; one that is done stays as it is.

    Args:
        config: config of the run, completed by `decide`.
        folder: where the run is.
        data: data of the run, prepared.
        callbacks: called after those of the config.
        more_epochs: whether members that had stopped are to go on.
        first: the loop of the first member of a run that begins.

    Returns:
        The loggers of the run, which wait for its scores; none if nothing was left to train.
    """
    members, loggers = folder.members(config.ensemble), list[Logger]()
    with joined(config.trainer):
        for number, files in enumerate(members):
            name = f"member {number + 1} of {len(members)}" if members[1:] else str(folder.path)
            # What the folder of a new run held before may still be there in a further process.
            resumes = first is None and files.last.is_file()
            last = Checkpoint.load(files.last) if resumes else None
            if last is not None:
                if is_done(last, config.trainer.max_epochs, more_epochs):
                    continue
                print(f"{name} goes on after epoch {epochs_done(last)}.", flush=True)
            elif members[1:]:
                print(name, flush=True)
            loop = first if number == 0 else None
            loop = loop or begin_member(config, data, number, callbacks, not resumes)
            fit_network(config, loop, data, files, number, last)
            loggers = loop.loggers
            if members[1:]:
                end_loggers(loggers)
    if members[1:] and is_first():
        join_members(folder, members)
        return make_loggers(config.logger, config.mapping, folder.path)
    return loggers


def begin_member(
    config: TrainingConfig,
    data: DataModule,
    number: int,
    callbacks: Sequence[Callback] = (),
    is_new: bool = True,
) -> Loop:
    """The loop of a member, with its first weights if it is new, see `begin_model`."""
    model = begin_model(config, data, number) if is_new else make_model(config, data, number, False)
    return make_loop(config, model, data, callbacks)


def make_loop(
    config: TrainingConfig, model: Model, data: DataModule, callbacks: Sequence[Callback] = ()
) -> Loop:
    """The loop that trains a model by its config.

    Raises:
        ConfigError: if `monitor` is no metric of the model, or `freeze` names parts that it does
            not have.
    """
    nodes = (config.callbacks or {}).items()
    chosen = [instantiate(node, f"callbacks.{name}") for name, node in nodes]
    loop = Loop(
        model,
        instantiate(config.optimizer, "optimizer"),
        instantiate(config.lr_scheduler, "lr_scheduler"),
        config.trainer,
        reduction=config.loss["reduction"],
        metrics=config.metrics,
        frozen=config.freeze or (),
        callbacks=[*chosen, *callbacks],
    )
    has_roots = bool((data.num_rows("output")[data.split.val] == 1).all())
    loop.monitor = loop.head_metrics.choose_monitor(config.monitor, has_roots)
    return loop


def finish(
    config: TrainingConfig,
    folder: RunFolder,
    data: DataModule,
    trusted: Collection[str],
    loggers: Sequence[Logger] = (),
) -> Metrics:
    """Calibrates and scores the best checkpoint; writes metrics, predictions, split and report.

    One process does: of several the first, the others return nothing.

    Args:
        config: of the run.
        folder: of the run.
        data: of the run, prepared.
        trusted: third-party packages that may be imported.
        loggers: get the scores of the test part, and are finalized.
    """
    if not is_first():
        return {}
    try:
        metrics = _finish(config, folder, data, trusted, loggers)
    except BaseException:
        end_loggers(loggers, "failed")
        raise
    end_loggers(loggers)
    return metrics


def _finish(
    config: TrainingConfig,
    folder: RunFolder,
    data: DataModule,
    trusted: Collection[str],
    loggers: Sequence[Logger],
) -> Metrics:
    from graphfold.reports.report import write_report  # matplotlib takes a third of the start

    with deterministic_algorithms(config.deterministic):
        trained, rows, note = calibrate_and_score(folder.best, data, trusted)
    if note is not None:
        print(note, flush=True)
    metrics: Metrics = {}
    for part, part_rows in rows.items():
        metrics |= part_metrics(trained, data, part, part_rows)
    warn_of_undefined(metrics)
    write_json(folder.metrics, metrics)
    write_split(folder.split, data)
    write_predictions(folder.predictions, data, trained, rows)
    history = read_histories(folder.members(trained.checkpoint.num_members))
    tested = {k: v for k, v in metrics.items() if k.startswith("test/") and v is not None}
    for logger in loggers if tested else ():
        logger.log_metrics(tested, int(history[-1]["step"] or 0))
    write_history(folder.history, history)  # kill -9 may have come between last.ckpt and this
    write_report(folder, trained, data, rows, metrics, history)
    positive = describe_positive(trained.head)
    print("\n".join([metrics_table(metrics), *([positive] if positive else [])]))
    print(f"report: {folder.report}", flush=True)
    return metrics
