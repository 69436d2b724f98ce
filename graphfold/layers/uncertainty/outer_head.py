"""OuterHead: a head around another one, that tells more of each target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from graphfold.dag import Column, TypedDAG
from graphfold.layers.heads.eval_rows import EvalRows, MetricInputs
from graphfold.layers.heads.head import Head
from graphfold.layers.heads.target_prediction import ClassNames, Predictions

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class OuterHead(Head):
    """Base of heads that add parts to the predictions of another one.

    Everything else is as the inner head has it. The parts of the inner head come first, then those
    that are added, in the last dimension of what `decode` gives.

    Args:
        inner: the head inside.
        added: the parts that the inner one has not.
    """

    def __init__(self, inner: Head, added: Sequence[str]) -> None:
        nn.Module.__init__(self)
        self.inner = inner
        self.level = inner.level
        self.columns = inner.columns
        self.task = inner.task
        self.losses_may_be_negative = inner.losses_may_be_negative
        self.metrics_by_target = inner.metrics_by_target
        self.pairs = inner.pairs
        self.parts = (*inner.parts, *added)
        self.num_classes: int | None = getattr(inner, "num_classes", None)

    @property
    def metrics(self) -> tuple[str, ...]:
        """Those of the inner head."""
        return self.inner.metrics

    @property
    def monitor(self) -> str | None:
        """That of the inner head."""
        return self.inner.monitor

    @property
    def extra_columns(self) -> tuple[str, ...]:
        """Those of the inner head, then one for each further part."""
        added = self.parts[len(self.inner.parts) :]
        return tuple(dict.fromkeys((*self.inner.extra_columns, *added)))

    @classmethod
    def refuses(cls, column: Column) -> str | None:
        return None  # the inner head has been asked

    def forward(self, rows: Tensor) -> Tensor:
        """The raw outputs of the inner head."""
        raw: Tensor = self.inner(rows)
        return raw

    def losses(self, raw: Tensor, targets: Tensor) -> Tensor:
        return self.inner.losses(raw, targets)

    def inner_part(self, prediction: Tensor) -> Tensor:
        """The part of a prediction that the inner head's `decode` gave."""
        if len(self.parts) == len(self.inner.parts):
            return prediction
        count = len(self.inner.parts)
        return prediction[..., 0] if count == 1 else prediction[..., :count]

    def learned(self, values: Tensor) -> Tensor:
        return self.inner.learned(values)

    def from_learned(self, values: Tensor) -> Tensor:
        return self.inner.from_learned(values)

    def learned_deviation(self, values: Tensor, std: Tensor) -> Tensor:
        return self.inner.learned_deviation(values, std)

    @property
    def possible(self) -> tuple[float, float]:
        """That of the inner head."""
        return self.inner.possible

    def target_rows(self, dag: TypedDAG) -> Tensor:
        return self.inner.target_rows(dag)

    def row_graph(self, dag: TypedDAG) -> Tensor:
        return self.inner.row_graph(dag)

    def measured(self, targets: Tensor) -> Tensor:
        return self.inner.measured(targets)

    def compared(self, targets: Tensor) -> tuple[Tensor, Tensor]:
        return self.inner.compared(targets)

    def metric_inputs(self, prediction: Tensor, targets: Tensor) -> MetricInputs:
        return self.inner.metric_inputs(self.inner_part(prediction), targets)

    def confusion(self, prediction: Tensor, targets: Tensor) -> dict[str, Tensor]:
        return self.inner.confusion(self.inner_part(prediction), targets)

    def labels(self, column: Column, names: ClassNames) -> Sequence[Any]:
        return self.inner.labels(column, names)

    def predictions(self, prediction: Tensor, names: ClassNames) -> Predictions:
        found = self.inner.predictions(self.inner_part(prediction), names)
        added = self.parts[len(self.inner.parts) :]
        if not added:
            return found
        more = self._of_targets(prediction)[..., -len(added) :].tolist()
        return [
            {
                name: told.with_extra(dict(zip(added, values, strict=True)))
                for (name, told), values in zip(row.items(), own, strict=True)
            }
            for row, own in zip(found, more, strict=True)
        ]

    def measured_values(self, targets: Tensor, names: ClassNames) -> list[dict[str, Any]]:
        return self.inner.measured_values(targets, names)

    def plot(self, rows: EvalRows, names: ClassNames) -> Figure | None:
        if self.task == "regression":
            return super().plot(rows, names)
        return self.inner.plot(replace(rows, prediction=self.inner_part(rows.prediction)), names)

    def _of_targets(self, prediction: Tensor) -> Tensor:
        """[num_rows, num_targets, num_parts]; of several classes the parts of the likeliest."""
        if self.task != "multiclass":
            return prediction
        best = prediction[..., 0].argmax(1)
        return prediction[torch.arange(len(best)), best].unsqueeze(1)
