"""Scalers of targets and of inputs, so that models learn from and predict numbers near zero."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from graphfold.dag import TypedDAG
from graphfold.errors import count_of


class Scaler(NamedTuple):
    """A target in units of its standard deviation, counted from its mean.

    Args:
        mean: of the values.
        std: of the values.
        least: the smallest of the values.
        most: the largest; equal to `least` without values.
    """

    mean: float = 0.0
    std: float = 1.0
    least: float = 0.0
    most: float = 0.0

    def scale(self, values: Tensor) -> Tensor:
        """Values in the target's unit -> scaled values."""
        return (values - self.mean) / self.std


def fit_scaler(values: Tensor, weights: Tensor | None = None) -> Scaler:
    """The scaler of all measured values of a column; NaN is a missing one.

    The standard deviation is that of the values themselves (no Bessel correction). Values that are
    all equal, or all missing, are not scaled. A value of weight 2 counts like two, one of weight 0
    does not count.

    Shape:
        values: [num_rows, *shape]; a column of vectors gets one mean and one deviation.
        weights: [num_rows] from 0 on; None for 1
    """
    counts = ~values.isnan()
    weights = None if weights is None or bool((weights == 1).all()) else _like(weights, values)
    if weights is not None:
        counts &= weights > 0
        weights = weights[counts].double()
    measured = values[counts].double()
    if not len(measured):
        return Scaler()
    spread = _mean_and_std(measured, weights)
    return Scaler(*spread, float(measured.min()), float(measured.max()))


def _like(weights: Tensor, values: Tensor) -> Tensor:
    """The weight of its row for every entry of `values`."""
    return weights.view(-1, *[1] * (values.dim() - 1)).expand_as(values)


def _mean_and_std(values: Tensor, weights: Tensor | None) -> tuple[float, float]:
    if weights is None:
        mean, std = float(values.mean()), float(values.std(correction=0))
    else:
        share = weights / weights.sum()
        mean = float(share @ values)
        std = float((share @ (values - mean).square()).sqrt())
    # Equal numbers have a mean that is off by a rounding error, and so a tiny deviation.
    is_constant = std <= 1e-12 * max(abs(mean), 1.0)
    return mean, 1.0 if is_constant else std


#: Rows that are scaled together.
_PIECE = 1 << 16

#: Scaled inputs beyond so many deviations are cut off: some descriptors span twenty decades.
LARGEST = 6.0


class InputScaler(NamedTuple):
    """Every entry of a column of floats in units of its deviation, counted from its mean.

    Args:
        mean: [num_entries] of the measured values of the training part.
        std: [num_entries] their deviation; 0 for an entry that never varies and is never used.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def scale(self, values: Tensor) -> Tensor:
        """Scaled values within +-`LARGEST`, 0 where one is missing or never varies.

        Shape:
            values: [num_rows, *shape]
            returns: the same
        """
        mean, std = (torch.tensor(each, dtype=torch.float64) for each in self)
        scaled = torch.empty(values.shape, dtype=values.dtype)
        for rows, result in zip(_pieces(values), _pieces(scaled), strict=True):
            row = (rows.double() - mean) / std.where(std > 0, 1.0)
            result[:] = row.clamp(-LARGEST, LARGEST).nan_to_num(0.0).where(std > 0, 0.0)
        return scaled

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> InputScaler:
        """The scaler with the fields in `data`."""
        return InputScaler(tuple(data["mean"]), tuple(data["std"]))


def fit_input_scaler(values: Tensor, weights: Tensor | None = None) -> InputScaler:
    """The scaler of the measured values of a column; NaN is a missing one.

    Shape:
        values: [num_rows, *shape]
        weights: [num_rows] how often each row counts; None for once
    """
    weights = torch.ones(len(values)) if weights is None else weights
    pieces = [*zip(_pieces(values), _pieces(weights.double()), strict=True)]
    count = torch.stack([(~rows.isnan() * times).sum(0) for rows, times in pieces]).sum(0)
    count = count.where(count > 0, 1.0)
    sums = [(rows.nan_to_num(0.0) * times).sum(0) for rows, times in pieces]
    mean = torch.stack(sums).sum(0) / count
    squares = [((rows - mean).nan_to_num(0.0).square() * times).sum(0) for rows, times in pieces]
    std = (torch.stack(squares).sum(0) / count).sqrt()
    # Equal numbers have a mean that is off by a rounding error, and so a tiny deviation.
    is_constant = std <= 1e-7 * mean.abs()
    return InputScaler(tuple(mean.tolist()), tuple(std.masked_fill(is_constant, 0.0).tolist()))


def _pieces(values: Tensor) -> Sequence[Tensor]:
    """[num_rows, num_entries] in pieces: in double precision all rows could fill the memory."""
    return torch.split(values.unsqueeze(1).flatten(1), _PIECE)


def missing_inputs(dag: TypedDAG) -> list[str]:
    """A line for every input of whole graphs that is missing or undefined somewhere."""
    lines = []
    for column in dag.schema.graph_inputs:
        values = dag.columns["graph"][column.name]
        count = int(values.isnan().sum()) if values.is_floating_point() else 0
        if count:
            lines.append(
                f"{column.name}: {count_of(count, 'value')} of {values.numel():,} missing or not "
                "finite, taken as the mean of the training part"
            )
    return lines
