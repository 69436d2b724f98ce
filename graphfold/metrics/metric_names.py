"""Metrics by name, or by dotted path."""

from __future__ import annotations

from dataclasses import replace

from graphfold.errors import ConfigError
from graphfold.metrics.base import Metric
from graphfold.registry import METRICS, Registry

#: The tasks with metrics in this package; each has a module of that name.
TASKS = tuple(METRICS)


def builtin_metrics(task: str) -> dict[str, Metric]:
    """The metrics of this package for a task, by name; none for a user's task."""
    return METRICS[task].parts() if task in METRICS else {}


def find_metric(name: str, task: str | None = None) -> Metric:
    """The metric of a name or a dotted path.

    Args:
        name: "rmse", or "my_package.my_module.my_metric", which is imported.
        task: the task of the predictions; None for any.

    Raises:
        ConfigError: if there is no such metric, or it is for another task.
    """
    homes = [home for home in TASKS if name in builtin_metrics(home)]
    if homes and task in (None, *homes):
        return builtin_metrics(task or homes[-1])[name]
    if not homes:
        imported: Metric = _metrics_for(task).find(name)
        homes = [imported.task]
        if task in (None, imported.task):
            return imported
    raise ConfigError(
        f"metric '{name}' is for {' and '.join(homes)} predictions, but the head's are {task}. "
        f"Choose one for {task}: {', '.join(builtin_metrics(str(task))) or 'none is built in'}."
    )


def _metrics_for(task: str | None) -> Registry:
    """A registry of the metrics of a task, or of all tasks."""
    tasks = TASKS if task is None else [task] if task in METRICS else []
    paths = {name: path for home in tasks for name, path in METRICS[home].names().items()}
    return replace(METRICS[TASKS[0]], kind="metric", home=None, paths=paths)
