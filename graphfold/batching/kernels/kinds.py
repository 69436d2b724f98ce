"""Kinds: the different rows among those of some columns, such as the kinds of bonds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

#: Kinds are told apart by one number each, which has to stay below this.
MAX_NUMBER = 1 << 62


class Kinds(NamedTuple):
    """Columns of the different rows, and which of them each row is.

    Args:
        columns: name -> [num_kinds, ...].
        kind: [num_rows].
    """

    columns: Mapping[str, Tensor]
    kind: Tensor


def find_kinds(columns: Mapping[str, Tensor], num_rows: int) -> Kinds:
    """The kinds among some rows: equal rows of codes are of one kind.

    Where there are other numbers than codes, or so many codes that a row of them is no number, each
    row is a kind of its own; on a GPU too, which would have to be asked how many there are.

    Args:
        columns: name -> [num_rows, ...].
        num_rows: how many rows they have.
    """
    values = list(columns.values())
    is_code = all(v.is_cpu and not v.is_floating_point() for v in values)
    number = _numbers(values) if is_code and values and num_rows else None
    if number is None:
        device = values[0].device if values else None
        return Kinds(columns, torch.arange(num_rows, device=device))
    different, kind = torch.unique(number, return_inverse=True)
    row = torch.empty_like(different)
    row[kind] = torch.arange(num_rows)  # any row of the kind
    return Kinds({name: value.index_select(0, row) for name, value in columns.items()}, kind)


def _numbers(values: list[Tensor]) -> Tensor | None:
    """[num_rows] a number for each row, the same for equal ones; None if it would be too large."""
    codes = torch.cat(
        [value.flatten(1) if value.dim() > 1 else value[:, None] for value in values], 1
    )
    if not codes.shape[1]:
        return None
    codes = codes.long()
    lowest, highest = torch.aminmax(codes, dim=0)
    stride, strides = 1, []
    # In Python's numbers: the distance of two codes may be too large for one of theirs.
    for low, high in zip(lowest.tolist(), highest.tolist(), strict=True):
        strides.append(stride)
        stride *= high - low + 1
    if stride > MAX_NUMBER:
        return None
    return (codes - lowest) @ torch.tensor(strides)
