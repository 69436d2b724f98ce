"""Checkpoints: plain tensors and JSON, loaded without running any code that they name.

A checkpoint goes to other people and other machines, where the folders of the one that trained mean
nothing, and may be nobody's business: it keeps the names of files, config.yaml their places.
"""

from __future__ import annotations

import io
import json
import platform
import warnings
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path, PurePath
from typing import Any

import torch
import yaml
from torch import Tensor

from graphfold.datasets.data_module import DataModule
from graphfold.errors import CheckpointError
from graphfold.options import is_number
from graphfold.training.config.model import own_options
from graphfold.training.config.training_config import TrainingConfig
from graphfold.training.config.trust import named_packages

FORMAT = "graphfold checkpoint"

#: Grows when the content changes; files of another number are refused.
SCHEMA_NUMBER = 5

#: Stands before the SHA-256 of the rest of the file, both in the comment that a ZIP file may have.
_MARK = b"graphfold sha256\n"
_DIGEST_SIZE = sha256().digest_size
_COMMENT_SIZE = len(_MARK) + _DIGEST_SIZE

#: The last 22 bytes of a ZIP file without a comment begin so.
_ZIP_END = b"PK\5\6"

_JSON = ("config", "spec", "split", "packages", "versions")
_TENSORS = ("state_dict", "training_records", "progress", "calibration")


@dataclass(frozen=True)
class Checkpoint:
    """All that is needed to score and to predict, and, in last.ckpt, to go on training."""

    config: dict[str, Any]  # of the run, as `TrainingConfig.mapping`, with all that data decide
    spec: dict[str, Any]  # the feature spec: schema, vocabularies, scalers
    split: dict[str, Any]  # which record is in which part, and the fingerprint of its files
    packages: list[str]  # third-party packages whose classes the config names
    state_dict: dict[str, Tensor]  # of the model
    training_records: Tensor  # [num_train] int64, hashes of the training part
    progress: dict[str, Any] = field(default_factory=dict)  # optimizer, loops, generators
    calibration: dict[str, Any] = field(default_factory=dict)  # of predictions, after training
    versions: dict[str, str] = field(default_factory=dict)

    def encode(self) -> memoryview:
        """The content of the file, with its checksum.

        It is the ZIP file that torch saves, whose comment is the checksum, so that `torch.load` and
        other readers of ZIP files read it as before.
        """
        content = {
            "format": FORMAT,
            "schema_number": SCHEMA_NUMBER,
            "state_dict": self.state_dict,
            "training_records": self.training_records,
            "progress": self.progress,
            "calibration": self.calibration,
        }
        values = vars(self) | {"versions": _versions()}
        content |= {name: json.dumps(values[name]) for name in _JSON}
        file = io.BytesIO()
        torch.save(content, file)
        file.seek(-2, io.SEEK_END)  # where the size of the comment stands
        file.write(_COMMENT_SIZE.to_bytes(2, "little") + _MARK)
        file.write(sha256(file.getbuffer()).digest())
        return file.getbuffer()

    @property
    def num_members(self) -> int:
        """The size of the ensemble that it holds; 1 for a single model."""
        return int(self.config.get("ensemble") or 1)

    @property
    def best_epochs(self) -> list[int]:
        """The epoch that each member is from, counted from 1."""
        epochs = self.progress.get("epochs", [self.progress.get("epoch", 0)])
        return [int(epoch) + 1 for epoch in epochs]

    def member(self, number: int) -> dict[str, Tensor]:
        """The weights of a member, by their names in a single model."""
        if self.num_members == 1:
            return self.state_dict
        prefix = f"members.{number % self.num_members}."
        own = {k: v for k, v in self.state_dict.items() if k.startswith(prefix)}
        return {name.removeprefix(prefix): value for name, value in own.items()}

    @staticmethod
    def join(members: Sequence[Checkpoint]) -> Checkpoint:
        """One checkpoint of all members of an ensemble."""
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

    @staticmethod
    def load(path: Path) -> Checkpoint:
        """Reads the file onto the CPU; nothing that it names is imported.

        Raises:
            CheckpointError: if it is no checkpoint of graphfold, of another format, or damaged: a
                single changed bit is noticed.
        """
        content = _read(path)
        number = content.get("schema_number")
        if content.get("format") != FORMAT or not isinstance(number, int):
            raise CheckpointError(
                f"{path}: not a checkpoint of graphfold. Name a file that graphfold train wrote.",
                path=str(path),
            )
        if number != SCHEMA_NUMBER:
            raise CheckpointError(
                f"{path}: was written by another version of graphfold. Train again, or install "
                "that version.",
                path=str(path),
            )
        try:
            values = {name: json.loads(content[name]) for name in _JSON}
            tensors = {name: content[name] for name in _TENSORS}
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise _damaged(path) from error
        kinds = {"packages": list, "training_records": Tensor}
        parts = {**values, **tensors}
        is_other = any(not isinstance(v, kinds.get(k, dict)) for k, v in parts.items())
        state = parts["state_dict"] if isinstance(parts["state_dict"], dict) else {}
        are_weights = all(isinstance(k, str) and isinstance(v, Tensor) for k, v in state.items())
        if is_other or not are_weights:
            raise _damaged(path)
        _check_members(parts["config"].get("ensemble"), parts["state_dict"], path)
        return Checkpoint(**values, **tensors)


def _check_members(count: Any, state: Mapping[str, Tensor], path: Path) -> None:
    """Raises CheckpointError if a config asks for other members than there are weights of."""
    there = {name.split(".")[1] for name in state if name.startswith("members.")}
    is_count = count is None or (is_number(count) and isinstance(count, int) and count >= 1)
    if not is_count or (count or 1) not in (1, len(there)):
        raise CheckpointError(
            f"{path}: its config says ensemble: {count!r}, and it has the weights of "
            f"{len(there) or 1}. Restore the file.",
            path=str(path),
        )


def _read(path: Path) -> dict[str, Any]:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read ({error.strerror}).") from error
    if not content:
        raise CheckpointError(f"{path}: the file is empty. Restore it.", path=str(path))
    if not _is_whole(content):
        raise _damaged(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            loaded = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except Exception as error:  # of a damaged file any part may fail in any way
        raise _damaged(path) from error
    return loaded if isinstance(loaded, dict) else {}


def _is_whole(content: bytes) -> bool:
    """True if a file matches its checksum, or those of its parts where an earlier one has none."""
    if content[-_COMMENT_SIZE:-_DIGEST_SIZE] == _MARK:
        return sha256(memoryview(content)[:-_DIGEST_SIZE]).digest() == content[-_DIGEST_SIZE:]
    if content[-22:-18] != _ZIP_END:
        return False
    try:
        return zipfile.ZipFile(io.BytesIO(content)).testzip() is None
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, ValueError):
        return False


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


#: Keys of `data` that name files, whose names a checkpoint keeps, and folders, which it does not.
FILES, FOLDERS = ("path", "vectors"), ("root", "cache_dir")


def without_places(config: Mapping[str, Any]) -> dict[str, Any]:
    """A config as a checkpoint keeps it: with the names of files, without their folders."""
    data = dict(config["data"])
    data |= {key: _names(data[key]) for key in FILES if key in data}
    data |= {key: None for key in FOLDERS if key in data}
    own = {key: _names(config[key]) for key in ("init_from", "resume") if key in config}
    return {**config, **own, "data": data}


def split_without_places(split: Mapping[str, Any]) -> dict[str, Any]:
    """A split, as plain values, whose files have their names alone."""
    return {**split, "files": [{**f, "path": _names(f["path"])} for f in split["files"]]}


def with_places(config: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """The config of a checkpoint with the places in config.yaml, if it lies in its run folder.

    Args:
        config: the config.
        path: the file of the checkpoint.
    """
    folders = list(path.absolute().parents)
    for folder in (*folders[1:2], *folders[3:4]):  # that of a run; of the run of a member
        theirs = _data_of(folder / "config.yaml")
        if theirs and isinstance(config.get("data"), Mapping):
            places = {key: theirs[key] for key in (*FILES, "root") if key in theirs}
            return {**config, "data": {**config["data"], **places}}
    return dict(config)


def _data_of(path: Path) -> Mapping[str, Any]:
    """The section `data` of a config.yaml; nothing if there is none, or it cannot be read."""
    try:
        config = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError, ValueError):
        return {}
    data = config.get("data") if isinstance(config, Mapping) else None
    return data if isinstance(data, Mapping) else {}


def _names(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _names(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_names(part) for part in value]
    return PurePath(value).name if isinstance(value, str) else value


def common_checkpoint(config: TrainingConfig, data: DataModule, member: int) -> Checkpoint:
    """The part that all checkpoints of a member of a run share, without weights and progress.

    Args:
        config: the config, with all that the data decide.
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
