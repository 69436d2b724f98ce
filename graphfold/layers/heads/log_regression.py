"""LogRegressionHead: numbers above zero whose errors are ratios, such as costs."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor

from graphfold.dag import Column
from graphfold.errors import DataError
from graphfold.layers.heads.numbers import NumberHead


class LogRegressionHead(NumberHead):
    """Predicts numbers above zero; learns their logarithms, standardised.

    The loss of a row is the absolute error of the standardised logarithms, which is least at the
    median of the q-error.

    The arguments are those of `NumberHead`.

    Shape:
        rows: [num_rows, input_size]
        returns: [num_rows, num_targets] standardised logarithms

    Raises:
        ConfigError: if there are no such targets, one is not a float, or one has no scaler.
        DataError: in `losses`, if a value is not above zero.
    """

    scaler_at = 2
    is_limited = False  # a logarithm that is far off is a factor, and no number below zero

    @property
    def metrics(self) -> tuple[str, ...]:
        return ("q_error", "q_error_90", "q_error_95", "mae", "rmse", "spearman")

    @classmethod
    def suits(cls, columns: Sequence[Column], level: str, pairs: bool, task: str | None) -> bool:
        return False  # whether errors are ratios, only the user can say

    def standardise(self, values: Tensor) -> Tensor:
        """The logarithms, standardised."""
        wrong = values[values <= 0]
        if len(wrong):
            raise DataError(
                f"a target of {', '.join(self.targets)} is {float(wrong[0]):g}, but "
                "LogRegressionHead learns numbers above zero. Choose RegressionHead."
            )
        return super().standardise(values.log())

    def target_losses(self, raw: Tensor, wanted: Tensor) -> Tensor:
        return (raw - wanted).abs()

    def decode_unlimited(self, raw: Tensor) -> Tensor:
        """[num_rows, num_targets] in the targets' own units."""
        return self.in_units(raw).exp()

    def learned(self, values: Tensor) -> Tensor:
        """The logarithms; an error of these is a factor."""
        return values.log()

    def from_learned(self, values: Tensor) -> Tensor:
        """The numbers that have such logarithms."""
        return values.exp()

    def learned_deviation(self, values: Tensor, std: Tensor) -> Tensor:
        """The deviations over the values: d log y = dy / y."""
        return std / values

    @property
    def possible(self) -> tuple[float, float]:
        """Above zero."""
        return 0.0, math.inf
