"""Places of files: config.yaml of the run folder knows them, a checkpoint only the names.

A checkpoint goes to other people and other machines, where the folders of the one that trained mean
nothing, and may be nobody's business.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any

import yaml

from graphfold.training.config.stored_config import read_yaml

#: Keys of `data` that name files, whose names a checkpoint keeps, and folders, which it does not.
FILES, FOLDERS = ("path", "vectors", "encoder"), ("root", "cache_dir")


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
    data = dict(config["data"])
    folders = list(path.absolute().parents)
    for folder in (*folders[1:2], *folders[3:4]):  # that of a run; of the run of a member
        theirs = _data_of(folder / "config.yaml")
        if theirs:
            places = {key: theirs[key] for key in (*FILES, "root") if key in theirs}
            return {**config, "data": {**data, **places}}
    return dict(config)


def _data_of(path: Path) -> Mapping[str, Any]:
    """The section `data` of a config.yaml; nothing if there is none, or it cannot be read."""
    try:
        config = read_yaml(path)
    except (OSError, yaml.YAMLError, ValueError, RecursionError):
        return {}
    data = config.get("data") if isinstance(config, Mapping) else None
    return data if isinstance(data, Mapping) else {}


def _names(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _names(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_names(part) for part in value]
    return PurePath(value).name if isinstance(value, str) else value
