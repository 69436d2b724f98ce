"""Metrics: numbers over all predictions of a split, by name or by dotted path."""

from graphfold.metrics.base import Metric, metric
from graphfold.metrics.confusion import confusion_matrix, scores_by_class
from graphfold.metrics.metric_names import builtin_metrics, find_metric

__all__ = [
    "Metric",
    "builtin_metrics",
    "confusion_matrix",
    "find_metric",
    "metric",
    "scores_by_class",
]
