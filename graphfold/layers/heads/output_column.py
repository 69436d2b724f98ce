"""OutputColumn: a column of predictions, for tables, data frames, JSON and reports."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
        read: from predictions to [num_rows] numbers, or to a list of one plain value for each row.
        label: the class of a probability; None for other columns.
    """

    target: str
    part: str
    type: type
    read: Callable[[Predicted], Tensor | list[Any]]
    label: Any = None

    @property
    def name(self) -> str:
        """The name in a table, such as `logS_pred`."""
        return f"{self.target}_{self.part}"

    def values(self, predicted: Predicted) -> list[Any]:
        """One plain value for each row; None for a missing value."""
        return read_columns([self], predicted)[0]


def read_columns(columns: Sequence[OutputColumn], predicted: Predicted) -> list[list[Any]]:
    """The values of columns, [num_rows] each; None for missing values.

    All numbers are rounded at once: column by column it would take longer than to compute the few
    rows of a single record.
    """
    read = [column.read(predicted) for column in columns]
    numbers = [values.double() for values in read if isinstance(values, Tensor)]
    rounded = iter(_finite_numbers(torch.stack(numbers)) if numbers else ())
    return [next(rounded) if isinstance(values, Tensor) else values for values in read]


def value_column(target: str, number: int) -> OutputColumn:
    """The column of the predicted numbers of a target, the `number`-th one."""
    return OutputColumn(target, VALUE, float, lambda p: p.value[:, number])


def part_column(target: str, part: str, number: int) -> OutputColumn:
    """The column of a part of the predictions of a target, the `number`-th one."""
    if part == "limit":
        return OutputColumn(target, part, str, lambda p: _limits(p.parts[part][:, number]))
    return OutputColumn(target, part, float, lambda p: p.parts[part][:, number])


def _limits(sides: Tensor) -> list[Any]:
    return [LIMITS[int(side)] for side in sides.tolist()]


def _finite_numbers(numbers: Tensor) -> list[list[Any]]:
    """[num_columns, num_rows] numbers, rounded to seven digits; None for NaN and infinities."""
    rounded = seven_digits(numbers)
    for column, row in (~numbers.isfinite()).nonzero().tolist():
        rounded[column][row] = None
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
    columns: Sequence[OutputColumn],
) -> Callable[[Sequence[Any]], dict[str, TargetPrediction]]:
    """A function that sorts the cells of a row, one for each column, by target."""
    values: dict[str, int] = {}
    probabilities: dict[str, list[tuple[Any, int]]] = {}
    extra: dict[str, list[tuple[str, int]]] = {}
    for place, column in enumerate(columns):
        if column.part == VALUE:
            values[column.target] = place
        elif column.label is not None:
            probabilities.setdefault(column.target, []).append((column.label, place))
        else:
            extra.setdefault(column.target, []).append((column.part, place))
    targets = [
        (name, place, probabilities.get(name, ()), extra.get(name, ()))
        for name, place in values.items()
    ]

    def sort(cells: Sequence[Any]) -> dict[str, TargetPrediction]:
        return {
            name: TargetPrediction(
                cells[place],
                {label: cells[other] for label, other in classes},
                {part: cells[other] for part, other in parts},
            )
            for name, place, classes, parts in targets
        }

    return sort


def likeliest(labels: Sequence[Any], probabilities: Tensor) -> list[Any]:
    """The label of the largest probability in each row of [num_rows, num_classes]."""
    return [labels[code] for code in torch.argmax(probabilities, 1).tolist()]
