"""TrainingConfig: the configuration of a run, as training, checkpoints and reports use it.

`TrainingConfig.of` checks a mapping once: the config that Hydra composed, a mapping given to
`graphfold.train`, or the config of a stored run. Faults that need neither data nor torch are found
here, all of them together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

import yaml

from graphfold.datasets.settings import DataSettings, setting_faults
from graphfold.errors import CheckpointError, ConfigError
from graphfold.options import (
    From0,
    Limits,
    LocalPath,
    make_section,
    section_faults,
)
from graphfold.training.trainer import Trainer


class Part(TypedDict):
    """A class or function by its path, with its options: the input of `instantiate`."""

    _target_: str


class ModelPart(Part, total=False):
    """The config group `model`: a class, its options, needs of the data, a source of weights."""

    encoder_from: LocalPath | None
    needs_data: Mapping[str, Any] | None


class Loss(TypedDict):
    """The config group `loss`: how the losses of rows become the loss of a step."""

    reduction: Literal["per_graph", "per_node"]


@dataclass(frozen=True)
class CalibrationSettings:
    """The config group `calibration`.

    Args:
        method: "auto": conformal intervals for numbers of whole graphs, nothing for classes;
            "conformal": intervals, whatever has numbers; "temperature": calibrated probabilities;
            "none".
        level: the probability that an interval holds the true value.
    """

    method: Literal["auto", "none", "conformal", "temperature"] = "none"
    level: Annotated[float, Limits(above=0, below=1)] = 0.9


@dataclass(frozen=True)
class TrainingConfig:
    """The configuration of a run; configs/train.yaml describes each key.

    Attributes:
        mapping: the config as config.yaml and checkpoints store it: plain values, resolved, with
            keys that other readers use.
    """

    data: Mapping[str, Any]  # the arguments of `DataModule`
    model: ModelPart
    optimizer: Part
    lr_scheduler: Mapping[str, Any] | None
    callbacks: Mapping[str, Any] | None  # by name; null ones are left out
    logger: Mapping[str, Any] | None  # by name; null ones are left out
    trainer: Trainer
    loss: Loss
    monitor: str | None
    seed: From0
    deterministic: bool
    name: Any = "run"
    threads: Annotated[int, Limits(least=1, most=1_024)] | None = None
    metrics: Any = None  # a list of names, see `_metrics_faults`
    ensemble: Annotated[int, Limits(least=1, most=10_000)] = 1
    calibration: CalibrationSettings = CalibrationSettings()
    freeze: Sequence[str] | None = None
    resume: LocalPath | None = None
    init_from: LocalPath | None = None
    needs: Sequence[Any] | None = None
    mapping: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @staticmethod
    def of(mapping: Mapping[str, Any]) -> TrainingConfig:
        """Checks a mapping and reads it.

        Raises:
            ConfigError: naming every absent key, and every absent or wrong value.
        """
        faults = [*_absent_values(mapping), *section_faults(TrainingConfig, _sections(mapping))]
        if isinstance(mapping.get("data"), Mapping):
            faults += setting_faults(mapping["data"])
        faults += [*_part_faults(mapping), *_metrics_faults(mapping), *_weights_faults(mapping)]
        if faults:
            raise ConfigError("\n".join(dict.fromkeys(faults)))  # "???" is seen twice
        return _read(mapping)

    @staticmethod
    def stored(mapping: Mapping[str, Any], path: Path) -> TrainingConfig:
        """Reads the config of a run folder or a checkpoint, for use on this machine.

        The folder of packed data (`data.cache_dir`) is that of this machine, and cells that had to
        be compiled (`model.run: compiled`) are compiled where that is possible.

        Args:
            mapping: content of the file.
            path: the file, for messages.

        Raises:
            CheckpointError: naming the file, and the key that is absent or has a wrong value.
        """
        mapping = dict(mapping)
        if isinstance(mapping.get("data"), Mapping):
            mapping["data"] = {**mapping["data"], "cache_dir": None}
        model = mapping.get("model")
        if isinstance(model, Mapping) and model.get("run") == "compiled":
            mapping["model"] = {**model, "run": "auto"}
        try:
            return TrainingConfig.of(mapping)
        except ConfigError as error:
            raise CheckpointError(
                f"{path}: {error.message} Restore the file, or train again.", path=str(path)
            ) from error

    @cached_property
    def settings(self) -> DataSettings:
        """The settings of the `DataModule` among the keys of `data`."""
        return DataSettings.of(self.data)

    def changed(self, values: Mapping[str, Any]) -> TrainingConfig:
        """A copy with other values at some dotted keys, which are not checked again."""
        mapping = dict(self.mapping)
        for key, value in values.items():
            section, _, name = key.rpartition(".")
            if section:
                mapping[section] = {**mapping[section], name: value}
            else:
                mapping[name] = value
        return _read(mapping)

    def to_yaml(self) -> str:
        """The text of config.yaml."""
        return yaml.safe_dump(dict(self.mapping), sort_keys=False, allow_unicode=True)


def flatten(node: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted key, value) of every leaf of a nested config."""
    if not isinstance(node, Mapping):
        yield prefix, node
        return
    for key, value in node.items():
        yield from flatten(value, f"{prefix}.{key}" if prefix else str(key))


#: The only class that trains, by its path.
TRAINER = "graphfold.training.Trainer"

#: The keys of the trainer that a config must have, though `Trainer` has defaults.
_TRAINER_KEYS = ("max_epochs", "devices", "accumulate_grad_batches", "gradient_clip_val")

_KEYS = tuple(key.name for key in fields(TrainingConfig) if key.name != "mapping")


def _read(mapping: Mapping[str, Any]) -> TrainingConfig:
    return replace(make_section(TrainingConfig, _sections(mapping)), mapping=mapping)


def _sections(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of `TrainingConfig` in a mapping, each as its field holds it."""
    sections = {key: mapping[key] for key in _KEYS if key in mapping}
    for group in ("callbacks", "logger"):
        parts = sections.get(group)
        if isinstance(parts, Mapping):
            sections[group] = {name: part for name, part in parts.items() if part is not None}
    if isinstance(sections.get("trainer"), Mapping):
        sections["trainer"] = {k: v for k, v in sections["trainer"].items() if k != "_target_"}
    return sections


def _absent_values(mapping: Mapping[str, Any]) -> Iterator[str]:
    """The faults of absent values."""
    values, needs = dict(flatten(mapping)), mapping.get("needs")
    for key, value in values.items():
        if value == "???":
            yield f"{key} has no value. Add {key}=VALUE."
    trainer = mapping.get("trainer")
    if isinstance(trainer, Mapping):
        absent = [key for key in _TRAINER_KEYS if key not in trainer]
        yield from (f"there is no key 'trainer.{key}' in the config." for key in absent)
    for key in needs if isinstance(needs, list) else ():
        if values.get(str(key)) is None:
            yield f"{key} has no value, which this run needs. Add {key}=VALUE."


def _part_faults(mapping: Mapping[str, Any]) -> Iterator[str]:
    """The faults of other values where a class with its options belongs."""
    for group in ("callbacks", "logger"):
        parts = mapping.get(group)
        for name, part in parts.items() if isinstance(parts, Mapping) else ():
            if part is None or (isinstance(part, Mapping) and "_target_" in part):
                continue
            remedy = f"Write {group}={name}" if isinstance(part, str) else "Set its _target_"
            yield f"{group}.{name} is {part!r}, but it is a class with its options. {remedy}."
    model, trainer = mapping.get("model"), mapping.get("trainer")
    for name in ("readout", "head"):
        if isinstance(model, Mapping) and not isinstance(model.get(name, {}), Mapping):
            yield (
                f"model.{name} is {model[name]!r}, but it is a class with its options. Set "
                f"model.{name}._target_, for which auto takes what fits the targets."
            )
    if isinstance(trainer, Mapping) and trainer.get("_target_", TRAINER) != TRAINER:
        yield f"trainer._target_ names '{trainer['_target_']}', but {TRAINER} trains. Leave it out."


def _metrics_faults(mapping: Mapping[str, Any]) -> Iterator[str]:
    """The fault of metrics that are no list of different names."""
    names = mapping.get("metrics")
    are_names = isinstance(names, list) and all(isinstance(name, str) for name in names)
    if names is not None and not (are_names and names and len({*names}) == len(names)):
        yield (
            f"metrics is {names!r}, but it is a list of different names, such as [rmse,mae], or "
            "null for those of the head."
        )


def _weights_faults(mapping: Mapping[str, Any]) -> Iterator[str]:
    """The fault of two sources for the weights of the encoder."""
    model = mapping.get("model")
    encoder = model.get("encoder_from") if isinstance(model, Mapping) else None
    if encoder is not None and mapping.get("init_from") is not None:
        yield (
            "init_from and model.encoder_from both give the weights of the encoder. Leave one out."
        )
