"""LogRegressionHead: numbers above zero whose errors are ratios, such as costs."""

from __future__ import annotations

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

    def decode(self, raw: Tensor) -> Tensor:
        """[num_rows, num_targets] in the targets' own units."""
        return self.in_units(raw).exp()
