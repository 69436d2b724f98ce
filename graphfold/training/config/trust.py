"""The rule of trust: which code a stored run may name.

A run folder or a checkpoint may come from anybody. Wherever one is read (train resume, evaluate,
predict, load, verify), of every name in its config one question is asked: does it lead out of
graphfold? If so, nothing is imported unless the user trusts the package (`--trust`). What a
checkpoint lists as its own packages counts for nothing. The config of a new run is its user's own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from graphfold.batching import Down, Rounds, Up
from graphfold.errors import CheckpointError, ConfigError
from graphfold.registry import ADAPTERS, FEATURE_SETS, foreign_package, package_of
from graphfold.training.config.build_model import AUTO
from graphfold.training.config.instantiate import find_target, targets

#: Packages whose modules, passes, blocks, optimizers and schedules may be targets. Other classes of
#: theirs import what their arguments name (an adapter, say), or write files.
REGISTERED = (
    *("graphfold.batching", "graphfold.layers", "graphfold.blocks"),
    *("torch.nn", "torch.optim"),
)

#: Functions there, which build models.
REGISTERED_FUNCTIONS = ("graphfold.blocks.models",)

#: What else training may make: it writes into the run folder, or where the environment of the user
#: says.
REGISTERED_TRAINING = tuple(
    f"graphfold.training.{name}"
    for name in (
        *("Trainer", "AverageWeights", "EarlyStopping"),
        *("TensorBoardLogger", "MLflowLogger", "WandbLogger"),
    )
)

#: The parts of a config that scoring and prediction build, and those that training builds.
APPLIED = ("model",)
TRAINED = ("model", "optimizer", "lr_scheduler", "trainer", "callbacks", "logger")


def refuse_untrusted(
    config: Mapping[str, Any], trusted: Collection[str], parts: Sequence[str] = APPLIED
) -> None:
    """Refuses the config of a stored run that names a package which the user does not trust.

    Args:
        config: the config of the run.
        trusted: packages that the user trusts.
        parts: the parts that will be built, besides metrics and adapter; with a trainer among
            them, the records may be split anew.

    Raises:
        CheckpointError: naming the key, the path, and the package to trust.
    """
    for place, path, package in _foreign_names(config, parts):
        if package in trusted:
            continue
        remedy = f"If you trust the package '{package}', add --trust {package}."
        if not package.isidentifier():
            remedy = "Name a class as package.module.name, which --trust PACKAGE allows."
        raise CheckpointError(
            f"{place} names '{path}', which is not registered in graphfold. {remedy}",
            target=path,
            package=package,
        )


def named_packages(config: Mapping[str, Any], parts: Sequence[str] = APPLIED) -> list[str]:
    """The packages outside of graphfold that a config names in some parts, metrics and data."""
    return sorted({package for _, _, package in _foreign_names(config, parts)})


def _foreign_names(
    config: Mapping[str, Any], parts: Sequence[str]
) -> Iterator[tuple[str, str, str]]:
    """(key, path, package) of every name in a config that leads out of graphfold."""
    for part in parts:
        for place, item in targets(config.get(part), part):
            path = str(item["_target_"])
            if path != AUTO and not _is_registered(path):
                yield place, path, package_of(path)
    for place, path in _names(config, "trainer" in parts):
        if package := foreign_package(path):
            yield place, path, package


def _names(config: Mapping[str, Any], splits: bool) -> Iterator[tuple[str, str]]:
    """(key, path) of metrics, adapter, features, and of the split if records are split again."""
    data = config.get("data") or {}
    for name in config.get("metrics") or ():
        yield "metrics", str(name)
    if data.get("adapter") is not None:
        yield "data.adapter", ADAPTERS.path(str(data["adapter"]))
    if isinstance(data.get("features"), str):  # a list of columns, for adapters of trees
        yield "data.features", FEATURE_SETS.path(data["features"])
    if splits:
        yield "data.split", str(data.get("split"))


def _is_registered(path: str) -> bool:
    """True for a public part of models or of training that a registered package defines."""
    if path in REGISTERED_TRAINING:
        return True
    if not _is_within(path, REGISTERED):
        return False
    try:
        target = find_target(path, "")
    except ConfigError:
        return False
    if target.__name__.startswith("_"):
        return False
    if not isinstance(target, type):
        return _is_within(target.__module__, REGISTERED_FUNCTIONS)
    return _is_within(target.__module__, REGISTERED) and issubclass(
        target, _bases(target.__module__)
    )


def _is_within(path: str, packages: Sequence[str]) -> bool:
    return any(path.replace(":", ".").startswith(f"{name}.") or path == name for name in packages)


def _bases(module: str) -> tuple[type, ...]:
    """The classes from which the parts of models in a module derive."""
    import torch

    if _is_within(module, ("torch",)):
        return torch.nn.Module, torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler
    if _is_within(module, ("graphfold.blocks",)):
        from graphfold.blocks import Block

        return torch.nn.Module, Block
    return torch.nn.Module, Up, Down, Rounds
