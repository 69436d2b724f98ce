"""The rule of trust: which classes a stored run may name.

A run folder or a checkpoint may come from anybody. Wherever one is read (train resume, evaluate,
predict, load, verify), nothing that it names is imported or called unless it is a registered class
of graphfold or torch, or belongs to a package that the user trusts (`--trust`). What a
checkpoint says of its own packages counts for nothing. The config of a new run is its user's own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from graphfold.batching import Down, Rounds, Up
from graphfold.errors import CheckpointError, ConfigError
from graphfold.registry import ADAPTERS, FEATURE_SETS, foreign_package, is_path, package_of
from graphfold.training.config.instantiate import find_target, targets
from graphfold.training.config.model import AUTO

#: Packages of which the parts of models are registered: modules, passes and blocks. Others of their
#: classes import what their arguments name (an adapter, say), or write files.
REGISTERED = ("graphfold.batching", "graphfold.layers", "graphfold.blocks")

#: Of these the modules, optimizers and schedules are registered.
REGISTERED_TORCH = ("torch.nn", "torch.optim")

#: Where functions may come from, which build models; elsewhere only classes.
REGISTERED_FUNCTIONS = ("graphfold.blocks.models",)

#: What there is for a training run beside the model: it writes into the run folder, or where the
#: environment of its user says.
REGISTERED_TRAINING = (
    "graphfold.training.Trainer",
    "graphfold.training.AverageWeights",
    "graphfold.training.EarlyStopping",
    "graphfold.training.LearningRateMonitor",
    "graphfold.training.TensorBoardLogger",
    "graphfold.training.MLflowLogger",
    "graphfold.training.WandbLogger",
)

#: The keys beside targets whose values are names of parts -> what those are.
_KINDS = {
    "metrics": "a metric",
    "data.adapter": "an adapter",
    "data.features": "a feature set",
    "data.split": "a split",
}

#: The parts of a config that scoring and prediction build, and those that training builds.
APPLIED = ("model",)
TRAINED = ("model", "optimizer", "lr_scheduler", "trainer", "callbacks", "logger")


def refuse_untrusted(
    config: Mapping[str, Any], trusted: Collection[str], parts: Sequence[str] = APPLIED
) -> None:
    """Refuses the config of a stored run before a class is imported that nobody vouched for.

    Args:
        config: the config of the run.
        trusted: packages that the user trusts.
        parts: the parts that will be built, besides metrics and adapter; with a trainer among
            them, the records may be split anew.

    Raises:
        CheckpointError: naming the class, the key that names it, and the package to trust.
    """
    for part in parts:
        refuse_unregistered(config.get(part), trusted, part)
    for place, path in _foreign_names(config):
        is_used = place != "data.split" or "trainer" in parts  # the parts are stored with the run
        if is_used and not _is_within(path, trusted):
            kind = f"{_KINDS[place]} of the package '{package_of(path)}'"
            raise _refusal(place, path, f", {kind} that is not registered")


def refuse_unregistered(node: Any, trusted: Collection[str], place: str = "") -> None:
    """Raises CheckpointError for a target that a stored run may not name.

    Args:
        node: a part of the config.
        trusted: packages that the user trusts.
        place: the key of `node`.
    """
    for where, item in targets(node, place):
        path = str(item["_target_"])
        is_ours = path == AUTO or _is_registered(path)
        if not is_ours and not _is_within(path, trusted):
            raise _refusal(where, path, ", which is not one of graphfold's registered classes")


def _refusal(place: str, path: str, fault: str) -> CheckpointError:
    package = package_of(path)
    remedy = f"If you trust the package '{package}', add --trust {package}."
    if not package.isidentifier():
        remedy = "Name a class as package.module.name, which --trust PACKAGE allows."
    message = f"{place} names '{path}'{fault}. {remedy}"
    return CheckpointError(message, target=path, package=package)


def third_party(node: Any) -> list[str]:
    """The packages, other than graphfold and torch, whose classes a config names."""
    paths = [str(item["_target_"]) for _, item in targets(node)]
    return sorted({package_of(p) for p in paths if p != AUTO and not _is_registered(p)})


def named_packages(config: Mapping[str, Any], parts: Sequence[str] = APPLIED) -> list[str]:
    """The third-party packages that a run uses for some of its parts, its metrics and its data."""
    packages = {package for part in parts for package in third_party(config[part])}
    return sorted(packages | {package_of(path) for _, path in _foreign_names(config)})


def _foreign_names(config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(key, path) of every name in a config, beside targets, that leads out of graphfold."""
    data = config.get("data") or {}
    names = [("metrics", str(name)) for name in config.get("metrics") or ()]
    if data.get("adapter") is not None:
        names.append(("data.adapter", ADAPTERS.path(str(data["adapter"]))))
    if isinstance(data.get("features"), str):  # a list of columns, for adapters of trees
        names.append(("data.features", FEATURE_SETS.path(data["features"])))
    yield from ((place, path) for place, path in names if foreign_package(path))
    split = str(data.get("split"))
    if is_path(split):  # a function is called: graphfold's own are the plain names
        yield "data.split", split


def _is_within(path: str, packages: Collection[str]) -> bool:
    dotted = path.replace(":", ".")
    return any(dotted == name or dotted.startswith(f"{name}.") for name in packages)


def _is_registered(path: str) -> bool:
    """True if a path names a public part of models that was itself defined in a registered package.

    A function only counts where models are built.
    """
    if path in REGISTERED_TRAINING:
        return True
    if _is_within(path, REGISTERED):
        home: tuple[str, ...] = REGISTERED
    elif _is_within(path, REGISTERED_TORCH):
        home = REGISTERED_TORCH
    else:
        return False
    try:
        target = find_target(path, "")
    except ConfigError:
        return False
    if target.__name__.startswith("_"):
        return False
    if not isinstance(target, type):
        return _is_within(target.__module__, REGISTERED_FUNCTIONS)
    return _is_within(target.__module__, home) and issubclass(target, _bases(target.__module__))


def _bases(module: str) -> tuple[type, ...]:
    """The classes of which the parts of models in a module are."""
    import torch

    if _is_within(module, REGISTERED_TORCH):
        return torch.nn.Module, torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler
    if _is_within(module, ("graphfold.blocks",)):
        from graphfold.blocks import Block

        return torch.nn.Module, Block
    return torch.nn.Module, Up, Down, Rounds
