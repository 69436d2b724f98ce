"""LogRegressionHead: numbers above zero whose errors are ratios, such as costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor

from graphfold.dag import Column, Schema
from graphfold.errors import DataError
from graphfold.layers.heads.numbers import NumberHead


class LogRegressionHead(NumberHead):
    """Predicts numbers above zero; learns their logarithms, standardised.

    The loss of a row is the absolute error of the standardised logarithms, which is least at the
    median of the q-error.

    Args:
        input_size: width of the readout's rows.
        schema: the schema of the graphs.
        level: what one row stands for.
        targets: names of the targets; None for all targets of that level.
        scalers: target -> (mean, std, log_mean, log_std) of the training part; None to learn the
            logarithms as they are.
        hidden_size: width of a hidden layer, or None for none.
        dropout: probability of dropping an entry of the rows.

    Shape:
        rows: [num_rows, input_size]
        returns: [num_rows, num_targets] standardised logarithms

    Raises:
        ConfigError: if there are no such targets, one is not a float, or one has no scaler.
        DataError: in `losses`, if a value is not above zero.
    """

    def __init__(
        self,
        input_size: int,
        schema: Schema,
        level: str = "graph",
        targets: Sequence[str] | None = None,
        scalers: Mapping[str, tuple[float, ...]] | None = None,
        hidden_size: int | None = None,
        dropout: float = 0.0,
    ) -> None:
        logs = None if scalers is None else {k: (v[2], v[3]) for k, v in scalers.items()}
        super().__init__(input_size, schema, level, targets, logs, None, hidden_size, dropout)

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
