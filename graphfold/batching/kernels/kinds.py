"""Kinds: the distinct rows of some columns, such as the kinds of bonds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from graphfold._torch import outside_modes
from graphfold.batching.kernels.row_numbers import Classes, row_numbers


class Kinds(NamedTuple):
    """Columns of the different rows, and which of them each row is.

    Args:
        columns: name -> [num_kinds, ...].
        kind: [num_rows].
    """

    columns: Mapping[str, Tensor]
    kind: Tensor

    @property
    def num_kinds(self) -> int:
        """The number of rows of the columns; without columns each row is a kind."""
        column = next(iter(self.columns.values()), self.kind)
        return column.shape[0]


@outside_modes
def find_kinds(columns: Mapping[str, Tensor], num_rows: int, device: torch.device) -> Kinds:
    """The kinds among some rows: equal rows of codes are of one kind.

    Where there are other numbers than codes, each row is a kind of its own; on a GPU too, which
    would have to be asked how many there are.

    Args:
        columns: name -> [num_rows, ...].
        num_rows: how many rows they have.
        device: where they are, if there are any.
    """
    values = list(columns.values())
    if not values or any(not v.is_cpu or v.is_floating_point() for v in values):
        return Kinds(columns, torch.arange(num_rows, device=device))
    flat = (value.reshape(num_rows, math.prod(value.shape[1:])) for value in values)
    codes = (code.numpy() for value in flat for code in value.T)
    kinds = Classes.of_equal(row_numbers(codes, num_rows))
    row = torch.from_numpy(kinds.representative)
    found = {name: value.index_select(0, row) for name, value in columns.items()}
    return Kinds(found, torch.from_numpy(kinds.inverse))
