"""Results of runs, sorted into models and repetitions that can be compared."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

from graphfold.datasets.features.feature_spec import FeatureSpec
from graphfold.datasets.splits.split import Split
from graphfold.errors import CheckpointError, ConfigError
from graphfold.training.config.check_config import flatten
from graphfold.training.run.checkpoint import Checkpoint
from graphfold.training.run.run_folder import RunFolder
from graphfold.training.scoring import Metrics

#: Keys, or sections, of the config that may differ between the runs of one model.
REPEATED = (
    *("seed", "data.seed", "data.fold", "data.path", "data.root", "data.cache_dir"),
    *("data.num_workers", "threads", "resume", "logger"),
)


@dataclass(frozen=True, eq=False)
class Result:
    """The facts of one finished run that a comparison needs."""

    folder: Path
    config: Mapping[str, Any]
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
        monitor = str(checkpoint.config["monitor"])
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
    return {key: value for key, value in flatten(result.config) if not _is_repeated(key)}


def _is_repeated(key: str) -> bool:
    return any(key == name or key.startswith(f"{name}.") for name in REPEATED)


def _by_repetition(runs: Sequence[Result]) -> dict[tuple[str, int], Result]:
    """(split, number among the runs of that split) -> run."""
    found: dict[tuple[str, int], Result] = {}
    for run in sorted(runs, key=lambda run: (run.config["seed"], str(run.folder))):
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
    labels = [str(run.config["name"]) for run in runs]
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
