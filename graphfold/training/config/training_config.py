"""TrainingConfig: the configuration of a run, checked whole and read once.

Whatever a config comes from, it is read here: what Hydra composed (`compose`), a mapping that a
user gives to `graphfold.train`, or the config of a stored run. torch is not loaded for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
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
    """A class or function by its path, with its options: what `instantiate` takes."""

    _target_: str


class ModelPart(Part, total=False):
    """The model; beside its options what it asks of the data, and where its weights come from."""

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
    """The configuration of a run; configs/train.yaml says what each key is for.

    Attributes:
        mapping: all of it as config.yaml and checkpoints hold it: plain values, resolved.
    """

    data: Mapping[str, Any]  # the arguments of `DataModule`
    model: ModelPart
    optimizer: Part
    lr_scheduler: Mapping[str, Any] | None
    callbacks: Mapping[str, Any] | None  # by name, without those that are null
    logger: Mapping[str, Any] | None  # as callbacks
    trainer: Trainer
    loss: Loss
    monitor: str | None
    seed: From0
    deterministic: bool
    name: Any = "run"
    threads: Annotated[int, Limits(least=1, most=1_024)] | None = None
    metrics: Any = None  # a list of names, see `_other_faults`
    ensemble: Annotated[int, Limits(least=1, most=10_000)] = 1
    calibration: CalibrationSettings = CalibrationSettings()
    freeze: Sequence[str] | None = None
    resume: LocalPath | None = None
    init_from: LocalPath | None = None
    needs: Sequence[Any] | None = None
    settings: DataSettings = field(default_factory=DataSettings)  # among the keys of `data`
    mapping: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @staticmethod
    def of(mapping: Mapping[str, Any]) -> TrainingConfig:
        """The configuration that a mapping holds; keys of other readers stay in it.

        Raises:
            ConfigError: naming every key that is absent, and every value that is absent or wrong.
        """
        faults = [*_absent_values(mapping), *section_faults(TrainingConfig, _known(mapping))]
        if isinstance(mapping.get("data"), Mapping):
            faults += setting_faults(mapping["data"])
        faults += [*_other_faults(mapping)]
        if faults:
            raise ConfigError("\n".join(dict.fromkeys(faults)))  # "???" is seen twice
        read, settings = make_section(TrainingConfig, _known(mapping)), mapping["data"]
        return replace(read, settings=DataSettings.of(settings), mapping=mapping)

    @staticmethod
    def stored(mapping: Mapping[str, Any], path: Path) -> TrainingConfig:
        """The configuration that a run folder or a checkpoint holds, for use on this machine.

        It does not say where files are written here (`data.cache_dir`), nor that cells must be
        compiled (`model.fuse: true`).

        Args:
            mapping: what the file holds.
            path: the file, for messages.

        Raises:
            CheckpointError: naming the file, and the key that is absent or has no such value.
        """
        mapping = dict(mapping)
        if isinstance(mapping.get("data"), Mapping):
            mapping["data"] = {**mapping["data"], "cache_dir": None}
        model = mapping.get("model")
        if isinstance(model, Mapping) and model.get("fuse") is True:
            mapping["model"] = {**model, "fuse": None}
        try:
            return TrainingConfig.of(mapping)
        except ConfigError as error:
            raise CheckpointError(
                f"{path}: {error.message} Restore the file, or train again.", path=str(path)
            ) from error

    def changed(self, values: Mapping[str, Any]) -> TrainingConfig:
        """The same with other values at some dotted keys."""
        mapping = dict(self.mapping)
        for key, value in values.items():
            section, _, name = key.rpartition(".")
            if section:
                mapping[section] = {**mapping[section], name: value}
            else:
                mapping[name] = value
        return TrainingConfig.of(mapping)

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


def _known(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """The keys that are read here; of the trainer's those of `Trainer`, see `check_parts`."""
    known = {key: mapping[key] for key in _KEYS if key in mapping}
    options = known.get("trainer")
    if isinstance(options, Mapping):
        names = [option.name for option in fields(Trainer)]
        known["trainer"] = {name: options[name] for name in names if name in options}
    for group in ("callbacks", "logger"):
        parts = known.get(group)
        if isinstance(parts, Mapping):
            known[group] = {name: part for name, part in parts.items() if part is not None}
    return known


#: The keys of the trainer that every run has, though `Trainer` has defaults.
_OF_TRAINER = ("max_epochs", "devices", "accumulate_grad_batches", "gradient_clip_val")

_KEYS = tuple(key.name for key in fields(TrainingConfig) if key.name not in ("settings", "mapping"))


def _absent_values(mapping: Mapping[str, Any]) -> Iterator[str]:
    """The faults of values that are not there, or no text."""
    values, needs, trainer = dict(flatten(mapping)), mapping.get("needs"), mapping.get("trainer")
    lacking = [key for key in _OF_TRAINER if isinstance(trainer, Mapping) and key not in trainer]
    for key, value in values.items():
        texts = value if isinstance(value, list) else [value]
        if any(isinstance(text, str) and "\0" in text for text in texts):
            yield f"{key} has a zero byte, which no text has. Correct it."
    for key, value in values.items():
        if value == "???":
            yield f"{key} has no value. Add {key}=VALUE."
    yield from (f"there is no key 'trainer.{key}' in the config." for key in lacking)
    for key in needs if isinstance(needs, list) else ():
        if values.get(str(key)) is None:
            yield f"{key} has no value, which this run needs. Add {key}=VALUE."


def _other_faults(mapping: Mapping[str, Any]) -> Iterator[str]:
    """The faults that no type hint tells."""
    names = mapping.get("metrics")
    are_names = isinstance(names, list) and all(isinstance(name, str) for name in names)
    if names is not None and not (are_names and names and len({*names}) == len(names)):
        yield (
            f"metrics is {names!r}, but it is a list of different names, such as [rmse,mae], or "
            "null for those of the head."
        )
    model = mapping.get("model")
    encoder = model.get("encoder_from") if isinstance(model, Mapping) else None
    if encoder is not None and mapping.get("init_from") is not None:
        yield (
            "init_from and model.encoder_from both give the weights of the encoder. Leave one out."
        )
