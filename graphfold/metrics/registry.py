"""Metrics by name: those of a module of this package, and any other by its dotted path."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import Any

from graphfold.errors import ConfigError, did_you_mean
from graphfold.metrics.base import Metric

#: The tasks of the metrics here; each has a module of that name.
TASKS = ("regression", "binary", "multiclass")


def builtin_metrics(task: str) -> dict[str, Metric]:
    """The metrics of this package for a task, by name; none for a task of somebody else."""
    if task not in TASKS:
        return {}
    module = import_module(f"graphfold.metrics.{task}")
    return {name: item for name, item in vars(module).items() if isinstance(item, Metric)}


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


def check_metrics(names: Any) -> None:
    """Raises ConfigError unless `names` is what the config key `metrics` may be; imports them."""
    if names is None:
        return
    if not isinstance(names, list) or not names or len(set(map(str, names))) < len(names):
        raise ConfigError(
            f"metrics is {names!r}, but it is a list of different names, such as [rmse,mae], or "
            "null for those of the head."
        )
    for name in names:
        find_metric(str(name))


def third_party_metrics(names: Iterable[str] | None) -> list[str]:
    """The names of metrics that lead out of graphfold."""
    paths = [str(name) for name in names or () if "." in str(name)]
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
