"""`graphfold compare`: from run folders to one table, one plot and one sentence.

Runs are sorted into models and their repetitions, which differ in nothing but seed or fold.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch

from graphfold.datasets.features.feature_spec import FeatureSpec
from graphfold.datasets.splits.split import Split
from graphfold.errors import CheckpointError, ConfigError, did_you_mean
from graphfold.files import check_output, write_json
from graphfold.layers.heads.eval_rows import EvalRows
from graphfold.metrics import find_metric
from graphfold.metrics.registry import TASKS, builtin_metrics
from graphfold.studies.compare_statistics import (
    Comparison,
    Score,
    compare_means,
    compare_records,
    scipy_stats,
)
from graphfold.studies.compare_verdicts import Verdicts
from graphfold.training.config.stored_config import read_stored_config
from graphfold.training.config.training_config import TrainingConfig, flatten
from graphfold.training.config.trust import refuse_untrusted
from graphfold.training.run.checkpoint import Checkpoint
from graphfold.training.run.run_folder import RunFolder
from graphfold.training.run.trained import TrainedModel
from graphfold.training.scoring import HeadMetrics, Metrics, lower_is_better

#: Keys, or sections, of the config that may differ between the runs of one model.
REPEATED = (
    *("seed", "data.seed", "data.fold", "data.path", "data.root", "data.cache_dir"),
    *("data.num_workers", "threads", "resume", "logger"),
)


@dataclass(frozen=True, eq=False)
class Result:
    """The facts of one finished run that a comparison needs."""

    folder: Path
    config: TrainingConfig
    metrics: Metrics  # of metrics.json
    monitor: str  # the metric under val/ that chose its best epoch
    targets: tuple[str, ...]  # what it predicts
    split: Split

    @property
    def data(self) -> tuple[tuple[str, int], ...]:
        """The content and the number of usable records of each file."""
        return tuple((file.content, file.num_records) for file in self.split.files)

    @cached_property
    def split_key(self) -> str:
        """A text that is equal for equal splits of equal data."""
        parts = [self.split.part(name).tolist() for name in self.split.sizes()]
        return sha256(json.dumps([self.data, parts]).encode()).hexdigest()


@dataclass(frozen=True, eq=False)
class Model:
    """The runs of one model, a run for each repetition, in an order that all models share."""

    label: str
    runs: tuple[Result, ...]


def read_results(paths: Sequence[Path]) -> list[Result]:
    """Reads the results of run folders, and of all runs in folders of sweeps.

    Raises:
        CheckpointError: if a folder holds no run, or a run is not finished.
        ConfigError: if a run is named twice.
    """
    folders = [folder for path in paths for folder in _run_folders(path)]
    seen: set[Path] = set()
    for folder in folders:
        if folder.resolve() in seen:
            raise ConfigError(f"{folder} is named twice. Name each run once.")
        seen.add(folder.resolve())
    return [_read(folder) for folder in folders]


def models_of(results: Sequence[Result]) -> list[Model]:
    """The models behind some results; runs whose configs differ in seed or fold alone are of one.

    Repetitions are paired by their split, those of one split in the order of their seeds.

    Raises:
        ConfigError: if there is one model, or the results cannot be compared: other data, other
            targets, another split.
    """
    _check_same_task(results)
    groups: dict[str, list[Result]] = {}
    for result in results:
        groups.setdefault(json.dumps(_identity(result), sort_keys=True), []).append(result)
    if len(groups) < 2:
        raise ConfigError(
            f"the {len(results)} runs are of one model: their configs differ in seed and fold "
            "alone. Name the runs of another model, too."
        )
    labels = _labels([group[0] for group in groups.values()])
    paired = [_by_repetition(group) for group in groups.values()]
    _check_paired(labels, paired)
    return [
        Model(label, tuple(runs[key] for key in paired[0]))
        for label, runs in zip(labels, paired, strict=True)
    ]


def _run_folders(path: Path) -> list[Path]:
    if not path.is_dir():
        raise CheckpointError(f"{path}: no such folder. Name run folders or folders of sweeps.")
    if RunFolder(path).config.is_file():
        return [path]
    found = [folder for folder in path.iterdir() if RunFolder(folder).config.is_file()]
    if not found:
        raise CheckpointError(
            f"{path}: neither a run folder, which has a config.yaml, nor the folder of a sweep, "
            "which holds run folders. Correct the path."
        )
    return sorted(found, key=lambda folder: (len(folder.name), folder.name))


def _read(folder: Path) -> Result:
    files = RunFolder(folder)
    config = files.read_config()
    if not files.metrics.is_file():
        raise CheckpointError(
            f"{folder}: has no metrics.json, for its training did not finish. Finish it with "
            f"graphfold train resume={folder}, or leave it out."
        )
    try:
        metrics = json.loads(files.metrics.read_text(encoding="utf-8"))
        checkpoint = Checkpoint.load(files.best)
        schema = FeatureSpec.from_dict(checkpoint.spec).schema
        split = Split.from_dict(checkpoint.split)
        monitor = str(read_stored_config(checkpoint.config, files.best).monitor)
    except (OSError, ValueError, KeyError, TypeError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(f"{folder}: cannot be read ({error}). Restore the folder.") from error
    columns = (*schema.graph_targets, *schema.node_targets, *schema.inputs.targets)
    targets = tuple(column.name for column in columns)
    return Result(folder, config, metrics, monitor, targets, split)


def _check_same_task(results: Sequence[Result]) -> None:
    """Refuses results that differ in more than the model."""
    first = results[0]
    for other in results[1:]:
        both = f"{first.folder} and {other.folder} cannot be compared: "
        if other.targets != first.targets:
            there, here = ", ".join(first.targets), ", ".join(other.targets)
            raise ConfigError(f"{both}one predicts {there}, the other {here}. Choose other runs.")
        if other.data != first.data:
            raise ConfigError(
                f"{both}their data differ ({_describe_data(first)}; {_describe_data(other)}). "
                "Train both on the same files, read with the same options."
            )
        if other.split.method != first.split.method:
            raise ConfigError(
                f"{both}data.split is {first.split.method} in one, {other.split.method} in the "
                "other. Train both with the same split."
            )


def _describe_data(result: Result) -> str:
    return ", ".join(
        f"{Path(f.path).name} with {f.num_records} records, sha256 {f.content[:8]}"
        for f in result.split.files
    )


def _identity(result: Result) -> dict[str, Any]:
    """The config without what may differ between repetitions."""
    return {key: value for key, value in flatten(result.config.mapping) if not _is_repeated(key)}


def _is_repeated(key: str) -> bool:
    return any(key == name or key.startswith(f"{name}.") for name in REPEATED)


def _by_repetition(runs: Sequence[Result]) -> dict[tuple[str, int], Result]:
    """(split, number among the runs of that split) -> run."""
    found: dict[tuple[str, int], Result] = {}
    for run in sorted(runs, key=lambda run: (run.config.seed, str(run.folder))):
        number = 0
        while (run.split_key, number) in found:
            number += 1
        found[run.split_key, number] = run
    return found


def _check_paired(labels: Sequence[str], paired: Sequence[Mapping[Any, Result]]) -> None:
    """Refuses models of which one has a run that the other has not."""
    for label, runs in zip(labels, paired, strict=True):
        for other_label, others in zip(labels, paired, strict=True):
            lacking = [run for key, run in others.items() if key not in runs]
            if lacking:
                raise ConfigError(
                    f"{label} has {len(runs)} runs and {other_label} {len(others)}, but {label} "
                    f"has none on the same split as {lacking[0].folder}. Give every model a run on "
                    "each split: the same data.seed, data.fold and data.groups."
                )


def _labels(runs: Sequence[Result]) -> list[str]:
    """The names of models; where two have one name, with the settings that tell them apart."""
    labels = [str(run.config.name) for run in runs]
    configs = [_identity(run) for run in runs]
    for key in _differing(configs):
        if len(set(labels)) == len(labels):
            break
        values = [_shown(config.get(key)) for config in configs]
        finer = [f"{label} {key}={value}" for label, value in zip(labels, values, strict=True)]
        if len(set(finer)) > len(set(labels)):
            labels = [
                longer if labels.count(label) > 1 else label
                for label, longer in zip(labels, finer, strict=True)
            ]
    return labels


def _shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _differing(configs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The keys with several values, those of the uppermost sections first."""
    keys = dict.fromkeys(key for config in configs for key in config)
    for key in sorted(keys, key=lambda key: key.count(".")):
        if len({json.dumps(config.get(key), sort_keys=True) for config in configs}) > 1:
            yield key


#: The endings of files of pictures.
_ENDINGS = (".svg", ".png", ".pdf")


def print_comparison(
    paths: Sequence[Path],
    metric: str | None,
    independent: bool,
    json_path: Path | None,
    plot_path: Path | None,
    trusted: Collection[str],
) -> None:
    """Compares models, see `compare`; prints a table and a sentence, and draws a plot."""
    plot_path = plot_path or (None if json_path is None else json_path.with_suffix(".svg"))
    check_output(json_path)
    check_output(plot_path)
    if plot_path is not None and plot_path.suffix not in _ENDINGS:
        raise ConfigError(f"{plot_path}: a plot ends in {', '.join(_ENDINGS)}. Name such a file.")
    verdicts = compare(paths, metric, independent, trusted)
    if verdicts.repetitions == 1:
        print(
            "one run of each model: that is too little for a test between models, for which "
            "graphfold train --all-folds makes the runs. What can be said is how sure the order of "
            "these runs is on other records like those of test; 'deviation' is over draws of them."
        )
    print(verdicts.table())
    print(verdicts.sentence())
    if json_path is not None:
        write_json(json_path, verdicts.facts())
    if plot_path is not None:
        _draw(verdicts, plot_path)
        print(f"plot: {plot_path}")


def compare(
    paths: Sequence[Path],
    metric: str | None = None,
    independent: bool = False,
    trusted: Collection[str] = (),
) -> Verdicts:
    """Compares the models behind some run folders and folders of sweeps.

    Several runs of each model are repetitions, and the means of the models are tested: over
    different splits with repeated measures, on one split alone as independent samples. Single runs
    are compared over their test records.

    Args:
        paths: run folders, or folders that hold those of a sweep.
        metric: "rmse" or "test/rmse"; None for that which chose the epochs, on test.
        independent: whether runs on the same split are taken for independent, too.
        trusted: third-party packages that single runs may name, and metrics.

    Raises:
        GraphfoldError: if a run cannot be read, or the runs cannot be compared.
    """
    models = models_of(read_results(paths))
    runs = [run for model in models for run in model.runs]
    name = _choose_metric(runs, metric)
    is_less_better = _is_less_better(name, runs[0], trusted)
    repetitions = len(models[0].runs)
    if repetitions == 1:
        found = _over_records([model.runs[0] for model in models], name, trusted)
    else:
        scipy_stats()
        on_one_split = len({run.split_key for run in models[0].runs}) == 1
        values = [[run.metrics[name] for run in model.runs] for model in models]
        found = compare_means(np.array(values, dtype=float).T, not (independent or on_one_split))
    return Verdicts([model.label for model in models], name, is_less_better, repetitions, found)


def _choose_metric(runs: Sequence[Result], wanted: str | None) -> str:
    """The key of metrics.json that all runs have a value for."""
    if wanted is None:
        names = sorted({run.monitor.partition("/")[2] for run in runs})
        if len(names) > 1:
            raise ConfigError(
                f"the epochs of the runs were chosen by different metrics: {', '.join(names)}. "
                "Give --metric NAME."
            )
        wanted = names[0]
    name = wanted if wanted.startswith(("val/", "test/")) else f"test/{wanted}"
    for run in runs:
        if name not in run.metrics:
            raise ConfigError(
                f"{run.folder}: there is no '{name}'.{did_you_mean(name, run.metrics)} There are: "
                f"{', '.join(run.metrics)}."
            )
        if run.metrics[name] is None:
            raise ConfigError(f"{run.folder}: {name} is undefined there. Choose another --metric.")
    return name


def _is_less_better(name: str, run: Result, trusted: Collection[str]) -> bool:
    """The direction of a metric; one of somebody else is imported to know it."""
    short = name.split("/")[1]
    if short == "loss" or any(short in builtin_metrics(task) for task in TASKS):
        return lower_is_better(name, [find_metric(short)] if short != "loss" else [])
    for path in run.config.metrics or ():
        if path.replace(":", ".").rpartition(".")[2] == short:
            refuse_untrusted({"metrics": [path]}, trusted, ())
            return lower_is_better(name, [find_metric(path)])
    raise ConfigError(f"{name} has no best value. Choose another --metric, such as a score.")


def _over_records(runs: Sequence[Result], name: str, trusted: Collection[str]) -> Comparison:
    """The comparison of single runs over the records of their part val or test."""
    part, _, short = name.partition("/")
    found = [_score(run, part, short, trusted) for run in runs]
    return compare_records([rows for rows, _ in found], [score for _, score in found])


def _score(run: Result, part: str, name: str, trusted: Collection[str]) -> tuple[EvalRows, Score]:
    """The predictions of a run for a part, and the metric as it computes it."""
    trained = TrainedModel.load(RunFolder(run.folder).best, trusted)
    state = trained.checkpoint
    torch.set_num_threads(trained.config.threads or torch.get_num_threads())
    data = trained.data({})
    data.prepare({"split": state.split, "spec": state.spec})
    every = trained.head_metrics
    own = tuple(metric for metric in every.metrics if metric.name == name.partition("/")[0])
    one = HeadMetrics(every.head, own, every.reduction)
    return trained.score(data, part), lambda rows: one(rows)[name]


def _draw(verdicts: Verdicts, path: Path) -> None:
    from graphfold.studies.compare_verdicts import Bar, draw_comparison

    found, best = verdicts.found, verdicts.order[0]
    axis, bars = verdicts.metric, []
    for model in verdicts.order:
        centre, label = float(found.means[model]), verdicts.labels[model]
        if found.half_width is not None:
            ends = centre - found.half_width, centre + found.half_width
        else:
            centre, ends = 0.0, (0.0, 0.0)
            if model != best:
                pair = found.pair(best, model)
                centre, ends = pair.difference, (pair.lower, pair.upper)
        bars.append(Bar(label, centre, *ends, verdicts.of(model)))
    title = "intervals that overlap: no difference is shown"
    if found.half_width is None:
        axis = f"{verdicts.metric} minus that of {verdicts.labels[best]}"
        title = "intervals that hold 0: no difference is shown"
    draw_comparison(bars, axis, title, path)
