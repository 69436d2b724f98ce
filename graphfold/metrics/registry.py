"""Metrics by name: those of a module of this package, and any other by its dotted path."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import Any

from graphfold.errors import ConfigError, did_you_mean
from graphfold.metrics.base import Metric
from graphfold.registry import METRICS

#: The tasks of the metrics here; each has a module of that name.
TASKS = tuple(METRICS)


def builtin_metrics(task: str) -> dict[str, Metric]:
    """The metrics of this package for a task, by name; none for a task of somebody else."""
    return METRICS[task].parts() if task in METRICS else {}


def find_metric(name: str, task: str | None = None) -> Metric:
    """The metric of a name or a dotted path.

    Args:
        name: "rmse", or "my_package.my_module.my_metric", which is imported.
        task: what it has to be for; None to look only whether there is such a metric.

    Raises:
        ConfigError: if there is none, or it is for another task.
    """
    known = builtin_metrics(task) if task else {k: m for t in TASKS for k, m in _items(t)}
    found = known[name] if name in known else _import(name, known)
    if task and found.task != task:
        raise ConfigError(
            f"metric '{name}' is for {found.task} predictions, but the head's are {task}. Choose "
            f"one for {task}: {', '.join(known) or 'none is built in'}."
        )
    return found


def metric_names(value: Any) -> list[str] | None:
    """The config key `metrics`, checked: a list of names and dotted paths, or None.

    Raises:
        ConfigError: if it is something else, or names a metric twice.
    """
    if value is None:
        return None
    names = [name for name in value if isinstance(name, str)] if isinstance(value, list) else []
    if not names or names != value or len(set(names)) < len(names):
        raise ConfigError(
            f"metrics is {value!r}, but it is a list of different names, such as [rmse,mae], or "
            "null for those of the head."
        )
    return names


def third_party_metrics(value: Any) -> list[str]:
    """The names in the config key `metrics` that lead out of graphfold."""
    paths = [name for name in metric_names(value) or () if "." in name]
    return [path for path in paths if not path.startswith("graphfold.metrics.")]


def _items(task: str) -> Iterable[tuple[str, Metric]]:
    return builtin_metrics(task).items()


def _import(path: str, known: Iterable[str]) -> Metric:
    module_name, _, name = path.rpartition(".")
    if not module_name:
        elsewhere = [task for task in TASKS if path in builtin_metrics(task)]
        there = f" It is one for {' and '.join(elsewhere)} predictions." if elsewhere else ""
        raise ConfigError(
            f"there is no metric '{path}' here.{there}{did_you_mean(path, known)} There are: "
            f"{', '.join(known) or 'none'}. Another one is named by its dotted path."
        )
    try:
        found = getattr(import_module(module_name), name, None)
    except (ImportError, ValueError) as error:
        raise ConfigError(
            f"metric '{path}': cannot import '{module_name}' ({error}). Correct the path."
        ) from error
    if not isinstance(found, Metric):
        what = "nothing" if found is None else f"a {type(found).__name__}"
        raise ConfigError(
            f"metric '{path}': {what} is there, no metric. Decorate a function with "
            "@graphfold.metrics.metric(task=..., higher_is_better=...)."
        )
    return found
