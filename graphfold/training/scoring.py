"""Predictions and metrics of a part of the data, named as in metrics.json.

A batch that does not fit in memory is run in two halves.
"""

from __future__ import annotations

import gc
import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import itemgetter
from typing import TypeAlias

import torch
from torch import Tensor

from graphfold.batching import Batch
from graphfold.batching.padding import without_padding
from graphfold.dag import select
from graphfold.errors import ConfigError, did_you_mean, some_of
from graphfold.layers import Head, Model
from graphfold.layers.heads.eval_rows import EvalRows, MetricInputs, Predicted, join
from graphfold.metrics import Metric, builtin_metrics, find_metric, scores_by_class
from graphfold.training.process.ranks import gather_objects

#: Name -> value; None with a warning for an undefined metric (one class, no variation or record).
Metrics: TypeAlias = dict[str, float | None]


class UndefinedMetricWarning(UserWarning):
    """A metric that is undefined for the data, and reported as null."""


@dataclass(frozen=True)
class HeadMetrics:
    """The metrics of a run for a head, and the loss.

    Args:
        head: the head of the model.
        metrics: the metrics of its predictions, and of their uncertainty.
        reduction: the average of the loss, "per_graph" or "per_node".
    """

    head: Head
    metrics: tuple[Metric, ...]
    reduction: str = "per_graph"

    @staticmethod
    def of(
        head: Head,
        names: Sequence[str] | None = None,
        reduction: str = "per_graph",
        parts: Sequence[str] | None = None,
    ) -> HeadMetrics:
        """Finds metrics by names or dotted paths, and adds those of uncertainty.

        Args:
            head: the head of the model.
            names: names or dotted paths; None for the default metrics of the head.
            reduction: the average of the loss, "per_graph" or "per_node".
            parts: the parts of the predictions; None for those of the head.

        Raises:
            ConfigError: if there is no such metric, it is not for the head's predictions, or two
                have one name.
        """
        chosen = [find_metric(n, head.task) for n in (head.metrics if names is None else names)]
        for metric in chosen:
            if metric.num_classes not in (None, getattr(head, "num_classes", None)):
                raise ConfigError(
                    f"metric '{metric.name}' is for {metric.num_classes} classes, which "
                    f"'{head.targets[0]}' has not. Leave it out."
                )
            if [other.name for other in chosen].count(metric.name) > 1:
                raise ConfigError(f"two metrics are called '{metric.name}'. Leave one out.")
        for task in head.uncertainty_tasks(head.shown_parts if parts is None else parts):
            chosen += builtin_metrics(task).values()
        return HeadMetrics(head, tuple(chosen), reduction)

    def __call__(self, rows: EvalRows) -> Metrics:
        """The metrics of some rows, without the name of their part."""
        result: Metrics = {}
        for metric in self.metrics:
            if metric.roots and not rows.has_roots:
                continue
            at = rows.is_root if metric.roots else slice(None)
            inputs = self._inputs(metric, rows.prediction[at], rows.target[at])
            by_target = {name: metric(*both) for name, both in inputs.items()}
            result[metric.name] = _mean(by_target.values())
            if self.head.metrics_by_target:
                result |= {f"{metric.name}/{name}": value for name, value in by_target.items()}
        return result | {"loss": self._loss(rows)}

    def _inputs(self, metric: Metric, predicted: Predicted, targets: Tensor) -> MetricInputs:
        if metric.task == self.head.task:
            return self.head.metric_inputs(predicted, targets)
        return self.head.uncertainty_inputs(metric.task, predicted, targets)

    def names(self, has_roots: bool) -> list[str]:
        """The names of all values; the default monitor comes first."""
        names = [metric.name for metric in self.metrics if has_roots or not metric.roots]
        if self.head.metrics_by_target:
            names += [f"{name}/{target}" for name in names for target in self.head.targets]
        names.append("loss")
        return sorted(names, key=lambda name: name != self.head.monitor)

    def choose_monitor(self, wanted: str | None, has_roots: bool) -> str:
        """The metric under val/ that chooses the best checkpoint: `wanted`, or the default.

        Raises:
            ConfigError: if there is no such metric.
        """
        names = [f"val/{name}" for name in self.names(has_roots)]
        if wanted is not None and wanted not in names:
            raise ConfigError(
                f"monitor is '{wanted}', but these targets have no such metric."
                f"{did_you_mean(str(wanted), names)} There are: {', '.join(names)}."
            )
        return wanted or names[0]

    def mode(self, monitor: str) -> str:
        """The direction of a metric such as val/rmse: "min" if less is better, or "max"."""
        name = monitor.split("/")[1]
        falls = {"loss", *(m.name for m in self.metrics if not m.higher_is_better)}
        return "min" if name in falls else "max"

    def _loss(self, rows: EvalRows) -> float | None:
        """The mean over measured values, as in training; each record counts once."""
        times = torch.ones(rows.num_graphs)
        count = self.head.denominator(rows.target, rows.graph, times, self.reduction)
        loss = float(rows.loss.double().sum() / count)
        return loss if math.isfinite(loss) else None


def class_metrics(head: Head, rows: EvalRows) -> dict[str, Metrics]:
    """Precision, recall, F1 and support of every class.

    Returns:
        score -> class -> value; with several targets a class is named TARGET/CLASS.

    Raises:
        ConfigError: if the head predicts no classes.
    """
    tables = _confusions(head, rows)
    if not tables:
        raise ConfigError("the run predicts no classes, so there are no metrics of classes.")
    scores: dict[str, Metrics] = {}
    for target, labels, confusion in tables:
        for score, values in scores_by_class(confusion).items():
            prefix = f"{target}/" if len(tables) > 1 else ""
            plain = [None if math.isnan(value) else value for value in values.tolist()]
            named = {f"{prefix}{label}": v for label, v in zip(labels, plain, strict=True)}
            scores.setdefault(score, {}).update(named)
    return scores


def confusion_counts(head: Head, rows: EvalRows) -> dict[str, dict[str, Metrics]]:
    """The confusion matrix of each target with classes.

    Returns:
        target -> predicted class -> true class -> number of rows; without classes that neither
        occur nor are predicted.
    """
    counts: dict[str, dict[str, Metrics]] = {}
    for target, labels, table in _confusions(head, rows):
        present = (table.sum(0) + table.sum(1)).nonzero().flatten().tolist()
        counts[target] = {
            str(labels[predicted]): {
                str(labels[true]): int(table[true, predicted]) for true in present
            }
            for predicted in present
        }
    return counts


def _confusions(head: Head, rows: EvalRows) -> list[tuple[str, Sequence[object], Tensor]]:
    """Target, names of its classes and confusion matrix, of each target with classes."""
    tables = head.confusion(rows.prediction, rows.target)
    columns = {column.name: column for column in head.columns}
    return [(name, head.labels(columns[name]), table) for name, table in tables.items()]


def _mean(values: Iterable[float | None]) -> float | None:
    """The mean of the values that are defined; None if none is."""
    defined = [value for value in values if value is not None]
    return sum(defined) / len(defined) if defined else None


def warn_of_undefined(metrics: Mapping[str, float | None]) -> None:
    """Warns once of all undefined metrics."""
    undefined = [name for name, value in metrics.items() if value is None]
    if undefined:
        warnings.warn(
            f"{some_of(undefined, 12)}: undefined for these records (one class only, no variation "
            "or no measured target), reported as null.",
            UndefinedMetricWarning,
            stacklevel=2,
        )


@torch.no_grad()
def score(
    model: Model,
    batches: Iterable[Batch],
    device: torch.device | str = "cpu",
    policy: str = "depth",
) -> EvalRows:
    """The rows of all graphs, in order; the model is left in evaluation mode."""
    model.eval()
    return join([rows_of(model, batch.to(device), policy) for batch in batches])


def rows_of(model: Model, batch: Batch, policy: str = "depth") -> EvalRows:
    """The rows of one batch, on the CPU; in halves where it does not fit in memory."""
    try:
        return _rows_of(model, batch)
    except MEMORY_ERRORS as error:
        if not is_out_of_memory(error) or batch.num_graphs < 2:
            raise
    return join([rows_of(model, half, policy) for half in halves(batch, model.plan, policy)])


def gather(numbered: Sequence[tuple[int, EvalRows]]) -> EvalRows:
    """The rows of all batches of all processes, in the order of the batches' numbers."""
    parts = sorted(chain(*gather_objects(list(numbered))), key=itemgetter(0))
    return join([rows for _, rows in parts])


def _rows_of(model: Model, batch: Batch) -> EvalRows:
    head, dag = model.head, batch.dag
    raw = model(batch)
    target = head.target_rows(dag)
    single = dag.output_ptr.diff() == 1
    is_output = torch.zeros_like(dag.batch, dtype=torch.bool)
    is_output[dag.output_index] = True
    is_root = is_output & single[dag.batch]
    if head.level != "node":
        is_root = is_root[dag.output_index] if head.level == "output" else single
    return EvalRows(
        prediction=model.predict(raw).cpu(),
        target=target.cpu(),
        loss=model.losses(raw, target).cpu(),
        graph=head.row_graph(dag).cpu(),
        is_root=is_root.cpu(),
        num_graphs=dag.num_graphs,
    )


#: The errors when memory runs out: of a GPU, of torch on the CPU, of Python and NumPy.
MEMORY_ERRORS = (torch.OutOfMemoryError, RuntimeError, MemoryError)


def is_out_of_memory(error: BaseException) -> bool:
    """True if memory ran out; on a CPU torch raises a RuntimeError with such a message."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return "not enough memory" in str(error) or "can't allocate memory" in str(error)


def halves(batch: Batch, plan: Callable[..., Batch], policy: str) -> list[Batch]:
    """The two halves of a batch without padding, planned in the same way, on the same device.

    Args:
        batch: the batch.
        plan: `Model.plan` of the model.
        policy: its scheduling policy.
    """
    gc.collect()  # returns the memory of the failed attempt
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    device = batch.dag.op_type.device
    dag = without_padding(batch.dag.to("cpu"))
    middle = (dag.num_graphs + 1) // 2
    parts = [select(dag, range(middle)), select(dag, range(middle, dag.num_graphs))]
    return [plan(part, policy, batch.schedule.is_shared).to(device) for part in parts]
