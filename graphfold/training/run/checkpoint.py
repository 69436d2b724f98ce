"""Checkpoints: plain tensors and JSON, loaded without running any code that they name.

A checkpoint is given to other people and moved to other machines, where the folders of the
training machine do not exist; they may be private. So it holds the names of files, and only
config.yaml their folders.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.metadata import version
from pathlib import Path, PurePath
from typing import Any

import torch
import yaml
from torch import Tensor

from graphfold.datasets.data_module import DataModule
from graphfold.datasets.features.feature_sources import for_other_data, with_files
from graphfold.errors import CheckpointError
from graphfold.files import whole_file
from graphfold.training.config.build_model import own_options
from graphfold.training.config.training_config import TrainingConfig
from graphfold.training.config.trust import named_packages

FORMAT = "graphfold checkpoint"

#: The version of the content; files of another version are refused.
SCHEMA_NUMBER = 6

_JSON = ("config", "spec", "split", "packages", "versions")
_TENSORS = ("state_dict", "training_records", "progress", "calibration")


@dataclass(frozen=True)
class Checkpoint:
    """The content of a checkpoint: for scoring and prediction; last.ckpt also for training.

    `config` is the `TrainingConfig.mapping` of the run, with all values that the data decide.
    """

    config: dict[str, Any]
    spec: dict[str, Any]  # the feature spec: schema, vocabularies, scalers
    split: dict[str, Any]  # the part of each record, and the fingerprint of its files
    packages: list[str]  # third-party packages whose classes the config names
    state_dict: dict[str, Tensor]  # of the model
    training_records: Tensor  # [num_train] int64, hashes of the training records
    progress: dict[str, Any] = field(default_factory=dict)  # optimizer, loops, generators
    calibration: dict[str, Any] = field(default_factory=dict)  # fitted after training
    versions: dict[str, str] = field(default_factory=dict)

    def save(self, path: Path) -> None:
        """Writes the file completely, or leaves no file.

        Raises:
            OSError: if it cannot be written.
        """
        values = vars(self) | {"versions": _versions()}
        content = {"format": FORMAT, "schema_number": SCHEMA_NUMBER}
        content |= {name: values[name] for name in _TENSORS}
        content |= {name: json.dumps(values[name]) for name in _JSON}
        with whole_file(path) as file:
            torch.save(content, file)

    @staticmethod
    def load(path: Path) -> Checkpoint:
        """Reads the file onto the CPU; nothing that it names is imported.

        Raises:
            CheckpointError: if it is no checkpoint of graphfold, of another format, or damaged.
        """
        try:
            content = torch.load(path, map_location="cpu", weights_only=True)
        except (FileNotFoundError, IsADirectoryError, PermissionError) as error:
            raise CheckpointError(f"{path}: cannot be read ({error.strerror}).") from error
        except Exception as error:  # a damaged file may raise anything
            raise _damaged(path) from error
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            raise _damaged(path)
        if content.get("schema_number") != SCHEMA_NUMBER:
            raise CheckpointError(
                f"{path}: was written by another version of graphfold. Train again, or install "
                "that version.",
                path=str(path),
            )
        try:
            values = {name: json.loads(content[name]) for name in _JSON}
            return Checkpoint(**values, **{name: content[name] for name in _TENSORS})
        except (KeyError, TypeError, ValueError) as error:
            raise _damaged(path) from error

    @property
    def num_members(self) -> int:
        """The size of the ensemble that it holds; 1 for a single model."""
        return int(self.config.get("ensemble") or 1)

    @property
    def best_epochs(self) -> list[int]:
        """The best epoch of each member, counted from 1."""
        epochs = self.progress.get("epochs", [self.progress.get("epoch", 0)])
        return [int(epoch) + 1 for epoch in epochs]

    def member(self, number: int) -> dict[str, Tensor]:
        """The weights of a member, by their names in a single model."""
        if self.num_members == 1:
            return self.state_dict
        prefix = f"members.{number % self.num_members}."
        weights = self.state_dict.items()
        return {k.removeprefix(prefix): v for k, v in weights if k.startswith(prefix)}

    @staticmethod
    def join(members: Sequence[Checkpoint]) -> Checkpoint:
        """Joins the checkpoints of all members of an ensemble."""
        epochs = [int(member.progress["epoch"]) for member in members]
        return replace(
            members[0],
            config={**members[0].config, "ensemble": len(members)},
            state_dict={
                f"members.{number}.{name}": value
                for number, member in enumerate(members)
                for name, value in member.state_dict.items()
            },
            progress={"epoch": max(epochs), "epochs": epochs},
        )


def _damaged(path: Path) -> CheckpointError:
    return CheckpointError(
        f"{path}: not a checkpoint of graphfold, or damaged: it cannot be read as tensors and "
        "plain values. Restore the file, or name one that graphfold train wrote.",
        path=str(path),
    )


@cache
def _versions() -> dict[str, str]:
    names = ("graphfold", "torch", "numpy")
    return {"python": platform.python_version(), **{name: version(name) for name in names}}


def common_checkpoint(config: TrainingConfig, data: DataModule, member: int) -> Checkpoint:
    """The common part of all checkpoints of a member of a run, without weights and progress.

    Args:
        config: the config, with all values that the data decide.
        data: the data, prepared.
        member: the number of the member; 0 of a single model.
    """
    state = data.state_dict()
    return Checkpoint(
        config=without_places({**config.mapping, "model": own_options(config.model)}),
        spec=state["spec"],
        split=split_without_places(state["split"]),
        packages=named_packages(config.mapping),
        state_dict={},
        training_records=data.hashes[data.split.train],
        progress={"member": member},
    )


#: Keys of `data` for files, whose names a checkpoint holds, and for folders, which it omits.
FILES, FOLDERS = ("path", "vectors"), ("root", "cache_dir")


def without_places(config: Mapping[str, Any]) -> dict[str, Any]:
    """Removes folders from a config, for a checkpoint; the names of files stay."""
    data = dict(config["data"])
    data |= {key: _names(data[key]) for key in FILES if key in data}
    data |= {key: None for key in FOLDERS if key in data}
    if data.get("features_from"):
        data["features_from"] = with_files(data["features_from"], _names)
    runs = {key: _names(config[key]) for key in ("init_from", "resume") if key in config}
    return {**config, **runs, "data": data}


def split_without_places(split: Mapping[str, Any]) -> dict[str, Any]:
    """Removes folders from a split of plain values; the names of its files stay."""
    return {**split, "files": [{**f, "path": _names(f["path"])} for f in split["files"]]}


def with_places(config: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Adds folders to the config of a checkpoint, from the config.yaml of its run folder.

    Args:
        config: the config.
        path: the file of the checkpoint; outside of a run folder the config is unchanged.
    """
    folders = list(path.absolute().parents)
    for folder in (*folders[1:2], *folders[3:4]):  # of the run; of the run of a member
        try:
            places = yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8"))["data"]
            features = places.get("features_from")
            places = {key: places[key] for key in (*FILES, "root") if key in places}
            stored = config["data"].get("features_from")
            places["features_from"] = for_other_data(stored, features, is_other=False)
        except (OSError, ValueError, LookupError, TypeError, yaml.YAMLError):
            continue
        return {**config, "data": {**config["data"], **places}}
    return dict(config)


def _names(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _names(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_names(part) for part in value]
    return PurePath(value).name if isinstance(value, str) else value
