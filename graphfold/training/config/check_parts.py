"""The parts of a config are tried before any work: classes, arguments, options of the data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from graphfold.datasets.loading.data_module import DataModule
from graphfold.errors import ConfigError, GraphfoldError
from graphfold.metrics.registry import find_metric, metric_names
from graphfold.training.config.instantiate import check_targets, find_target, instantiate
from graphfold.training.config.model import AUTO, SHARED
from graphfold.training.loop.fit import OURS
from graphfold.training.process.quiet import quiet_lightning


def check_parts(config: Mapping[str, Any]) -> None:
    """Raises ConfigError that lists every fault of every part; reads no data.

    Args:
        config: a whole config.
    """
    faults = []
    for name in ("model", "optimizer", "lr_scheduler", "trainer", "callbacks", "logger"):
        node = config[name]
        own = {"model": SHARED, "trainer": OURS}.get(name, ())
        faults += check_targets(_without(node, own), name)
    if not faults:
        for attempt in (_try_optimizer, _try_trainer):
            with _collected(faults):
                attempt(config)
    with _collected(faults):
        for name in metric_names(config.get("metrics")) or ():
            find_metric(name)
    with _collected(faults):
        DataModule(**config["data"])
    if faults:
        raise ConfigError("\n".join(faults))


def _try_optimizer(config: Mapping[str, Any]) -> None:
    """Builds optimizer and schedule over a stand-in for the parameters."""
    optimizer = instantiate(config["optimizer"], "optimizer")
    made = _call(optimizer, "optimizer", [torch.nn.Parameter(torch.zeros(1))])
    if config["lr_scheduler"] is not None:
        _call(instantiate(config["lr_scheduler"], "lr_scheduler"), "lr_scheduler", made)


def _try_trainer(config: Mapping[str, Any]) -> None:
    given = _without(config["trainer"], ("_target_", *OURS))
    target = find_target(config["trainer"]["_target_"], "trainer")
    _call(target, "trainer", logger=False, enable_checkpointing=False, **given)


def _call(make: Callable[..., Any], place: str, *args: Any, **kwargs: Any) -> Any:
    try:
        with quiet_lightning():
            return make(*args, **kwargs)
    except GraphfoldError:
        raise
    except Exception as error:  # whatever a library raises about arguments
        raise ConfigError(f"{place}: {str(error).rstrip('.')}. Correct the config.") from error


def _without(node: Any, names: tuple[str, ...]) -> Any:
    """A copy of a config without some keys, and without classes that are chosen later."""
    if isinstance(node, dict):
        kept = {k: _without(v, ()) for k, v in node.items() if k not in names}
        return {} if kept.get("_target_") == AUTO else kept
    return [_without(item, ()) for item in node] if isinstance(node, list) else node


@contextmanager
def _collected(faults: list[str]) -> Iterator[None]:
    try:
        yield
    except GraphfoldError as error:
        faults.append(error.message)
