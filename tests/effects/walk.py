"""Every option that a user can set, found where it is declared: configs and signatures.

Options of commands are no part of it: tests beside each command have those.

An option's id says where it is set:

- `seed`, `loss.reduction`: the top level of train.yaml;
- `optimizer/adam.lr`: a key of configs/optimizer/adam.yaml, likewise of other groups;
- `data.batch_size`: an argument of `DataModule` or one of its settings; `smiles.salts`: an option
  of that adapter (its class, if configs name it by a path); `listops_generated.pool`: an option of
  a corpus that is made on the spot;
- `model/gcn.dropout`: a key that the parts of a model share; `GCNCell.norm`: an argument of a class
  that configs of models name, or that could be named in the place of one.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from graphfold.datasets.corpora.corpus_table import CORPORA
from graphfold.datasets.data_module import DataModule
from graphfold.datasets.settings import NAMES
from graphfold.options import parameters
from graphfold.registry import ADAPTERS
from graphfold.training.config.available import list_choices
from graphfold.training.config.folder import config_folder
from graphfold.training.config.instantiate import find_target

#: What code gives the parts of a model, and no config.
GIVEN = ("input_size", "schema", "level", "scalers", "arity", "edge_columns")

#: What code gives a maker of corpora; both are keys of the data, too.
PLACES = ("cache_dir", "root")

#: The groups whose keys are arguments of classes, with shared values beside them.
MODELS = "model"


@cache
def options() -> frozenset[str]:
    """The ids of all options."""
    found = (_of_primaries, _of_groups, _of_data, _of_models, _of_experiments)
    return frozenset(name for walk in found for name in walk())


def unknown_keys() -> list[str]:
    """Keys in files of the group data that are no option, as `FILE: KEY`.

    Those of other groups are arguments, which `check_targets` compares with signatures.
    """
    found = []
    for group in ("data", "experiment"):
        for path in _files(group):
            config = _load(path)
            owners = _owners_of_data(_data_of(config) if group == "experiment" else config)
            keys = config.get("data", {}) if group == "experiment" else config
            found += [
                f"{group}/{path.stem}: {key}"
                for key in keys
                if key != "defaults" and not any(f"{o}.{key}" in options() for o in owners)
            ]
    return found


def _data_of(experiment: Mapping[str, Any]) -> dict[str, Any]:
    """The config of the data that an experiment chooses."""
    chosen = {k: v for item in experiment["defaults"] for k, v in item.items()}
    return _load(config_folder() / "data" / f"{chosen['override /data']}.yaml")


def read_keys(node: Any, prefix: str = "") -> Iterator[str]:
    """The dotted keys of the values of a config; a class with its arguments is one value."""
    for key, value in node.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            yield from read_keys(value, f"{name}.")
        elif key not in ("_target_", "_partial_", "defaults"):
            yield name


def _of_primaries() -> Iterator[str]:
    yield from read_keys(_load(config_folder() / "train.yaml"))


def _of_groups() -> Iterator[str]:
    """Keys of the small groups, as the file has them."""
    for folder in sorted(config_folder().iterdir()):
        if folder.is_dir() and folder.name not in ("data", "experiment", MODELS):
            for path in _files(folder.name):
                for key in read_keys(_load(path)):
                    # A sampler of Optuna is one option, whatever arguments a file gives it.
                    name = key.partition(".")[0] if folder.name == "tune" else key
                    yield f"{folder.name}/{path.stem}.{name}"


def _of_data() -> Iterator[str]:
    yield from (f"data.{name}" for name in (*parameters(DataModule), *NAMES, "features_from"))
    by_path = [_load(path).get("adapter") for path in _files("data")]
    for name in {*ADAPTERS.paths, *filter(None, by_path)}:
        yield from (f"{_short(name)}.{option}" for option in parameters(ADAPTERS.find(name)))
    for name, corpus in CORPORA.items():
        if corpus.maker is not None:
            module, _, function = corpus.maker.partition(":")
            made = parameters(getattr(import_module(module), function))
            yield from (f"{name}.{option}" for option in made if option not in PLACES)


def _short(adapter: str) -> str:
    """The name of an adapter, or the class of one that a config names by its path."""
    return adapter.rpartition(".")[2]


def _of_experiments() -> Iterator[str]:
    """Keys that an experiment sets and no file of the group has, such as one more of a class's."""
    for path in _files("experiment"):
        config = _load(path)
        for key in read_keys({k: v for k, v in config.items() if k not in ("data", MODELS)}):
            group, _, rest = key.partition(".")
            files = [_load(file) for file in _files(group)]
            if files and not any(rest in read_keys(file) for file in files):
                yield f"experiment/{path.stem}.{key}"


def _owners_of_data(config: Mapping[str, Any]) -> list[str]:
    corpus = CORPORA.get(config.get("corpus"))
    adapter = config.get("adapter") or (corpus.adapter.name if corpus else None)
    return ["data", *([_short(adapter)] if adapter else []), *([corpus.name] if corpus else [])]


def _of_models() -> Iterator[str]:
    """Arguments of all parts that a model can have, and the values that parts share."""
    parts = dict(_parts_by_name())
    for group in (MODELS, "experiment"):
        for path in _files(group):
            config = _load(path)
            parts |= {target.__name__: target for target in _targets(config)}
            if group == MODELS:
                own = _arguments(find_target(config["_target_"], "model"))
                shared = (key for key in config if key not in own and key not in _NO_OPTIONS)
                yield from (f"{MODELS}/{path.stem}.{key}" for key in shared)
    for name, part in parts.items():
        yield from (f"{name}.{option}" for option in _arguments(part))


_NO_OPTIONS = ("_target_", "_partial_", "defaults")


def _parts_by_name() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Heads, readouts and cells, which a config may name."""
    layers = import_module("graphfold.layers")
    for choices in list_choices():
        if choices.title in ("heads", "readouts", "cells"):
            yield from ((name, getattr(layers, name)) for name in choices.names)


def _targets(node: Any) -> Iterator[Callable[..., Any]]:
    if isinstance(node, Mapping):
        name = str(node.get("_target_", "auto"))
        if name.startswith("graphfold."):
            yield find_target(name, name)
        for value in node.values():
            yield from _targets(value)
    elif isinstance(node, list):
        for value in node:
            yield from _targets(value)


def _arguments(part: Callable[..., Any]) -> list[str]:
    return [name for name in inspect.signature(part).parameters if name not in GIVEN]


def _files(group: str) -> list[Path]:
    return sorted((config_folder() / group).glob("*.yaml"))


def _load(path: Path) -> dict[str, Any]:
    found = OmegaConf.to_container(OmegaConf.load(path), resolve=False)
    assert isinstance(found, dict)
    return {str(key): value for key, value in found.items()}
