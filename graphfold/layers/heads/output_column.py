"""OutputColumn: a column of predictions, for tables, data frames, JSON and reports."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphfold.layers.heads.eval_rows import Predicted

#: The name of the part that is the predicted value.
VALUE = "pred"

#: The words for a prediction at neither limit, at the high one, and (index -1) at the low one.
LIMITS = (None, "high", "low")


@dataclass(frozen=True)
class OutputColumn:
    """One column of predictions.

    Args:
        target: the name of the target.
        part: "pred" for its value, "prob_CLASS", or the name of another part, such as "std".
        type: the type of its values: float, int or str.
        values: from predictions to one plain value for each row; None for a missing value.
        label: the class of a probability; None for other columns.
    """

    target: str
    part: str
    type: type
    values: Callable[[Predicted], list[Any]]
    label: Any = None

    @property
    def name(self) -> str:
        """The name in a table, such as `logS_pred`."""
        return f"{self.target}_{self.part}"


def value_column(target: str, number: int) -> OutputColumn:
    """The column of the predicted numbers of a target, the `number`-th one."""
    return OutputColumn(target, VALUE, float, lambda p: finite_numbers(p.value[:, number]))


def part_column(target: str, part: str, number: int) -> OutputColumn:
    """The column of a part of the predictions of a target, the `number`-th one."""
    if part == "limit":
        return OutputColumn(target, part, str, lambda p: _limits(p.parts[part][:, number]))
    return OutputColumn(target, part, float, lambda p: finite_numbers(p.parts[part][:, number]))


def _limits(sides: Tensor) -> list[Any]:
    return [LIMITS[int(side)] for side in sides.tolist()]


def finite_numbers(numbers: Tensor) -> list[float | None]:
    """[num_rows] numbers, rounded to seven digits; None for NaN and infinities."""
    rounded: list[float | None] = seven_digits(numbers)
    for row in (~numbers.isfinite()).nonzero().flatten().tolist():
        rounded[row] = None
    return rounded


def seven_digits(numbers: Tensor) -> list[Any]:
    """Rounded to seven digits, which is all that a float32 has; `numbers` is on the CPU."""
    values = numbers.double().numpy()
    size = np.abs(values)
    # A power of ten up to 10**22 is exact, so a whole number over it is the nearest float64.
    is_usual = (size > 1e-15) & (size < 1e7)
    scale = 10.0 ** (6 - np.floor(np.log10(size, where=is_usual, out=np.zeros_like(size))))
    rounded = np.rint(values * scale) / scale
    is_odd = ~is_usual & (values != 0)
    rounded[is_odd] = [float(f"{value:.7g}") for value in values[is_odd].tolist()]
    return rounded.tolist()  # type: ignore[no-any-return]


@dataclass  # one is made for every node, and a frozen one takes twice as long
class TargetPrediction:
    """The prediction of one target of one row.

    Args:
        value: the class or the number.
        probabilities: class -> probability, where classes are predicted.
        extra: further parts by name, such as "std".
    """

    value: Any = None
    probabilities: dict[Any, float] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)


def by_target(
    columns: Sequence[OutputColumn], cells: Sequence[Any]
) -> Mapping[str, TargetPrediction]:
    """The cells of one row, by target."""
    predictions: dict[str, TargetPrediction] = {}
    for column, cell in zip(columns, cells, strict=True):
        prediction = predictions.setdefault(column.target, TargetPrediction())
        if column.part == VALUE:
            prediction.value = cell
        elif column.label is not None:
            prediction.probabilities[column.label] = cell
        else:
            prediction.extra[column.part] = cell
    return predictions


def likeliest(labels: Sequence[Any], probabilities: Tensor) -> list[Any]:
    """The label of the largest probability in each row of [num_rows, num_classes]."""
    return [labels[code] for code in torch.argmax(probabilities, 1).tolist()]
