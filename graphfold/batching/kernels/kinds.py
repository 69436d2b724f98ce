"""Kinds: the distinct rows of some columns, such as the kinds of bonds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from graphfold._torch import outside_modes
from graphfold.batching.kernels.gather import RowIndex
from graphfold.batching.kernels.row_numbers import Classes, row_numbers
from graphfold.dag.typed_dag import to_device


class Kinds(NamedTuple):
    """Columns of the different rows, and which of them each row is.

    Args:
        columns: name -> [num_kinds, ...].
        kind: [num_rows].
        num_kinds: how many there are.
    """

    columns: Mapping[str, Tensor]
    kind: RowIndex
    num_kinds: int


@outside_modes
def find_kinds(
    columns: Mapping[str, Tensor],
    num_rows: int,
    device: torch.device,
    on_cpu: Mapping[str, Tensor] | None = None,
) -> Kinds:
    """The kinds among some rows: equal rows of codes are of one kind.

    Where there are other numbers than codes, each row is a kind of its own; so it is for codes that
    a GPU alone has, which would have to be asked how many kinds there are.

    Args:
        columns: name -> [num_rows, ...].
        num_rows: how many rows they have.
        device: where they are, if there are any.
        on_cpu: the same on the CPU, if they are there as well.
    """
    values = list((columns if on_cpu is None else on_cpu).values())
    if not values or any(not v.is_cpu or v.is_floating_point() for v in values):
        each = RowIndex.for_device(torch.arange(num_rows, device="cpu"), device)
        return Kinds(columns, each, num_rows)
    flat = (value.reshape(num_rows, math.prod(value.shape[1:])) for value in values)
    codes = (code.numpy() for value in flat for code in value.T)
    kinds = Classes.of_equal(row_numbers(codes, num_rows))
    row = to_device(torch.from_numpy(kinds.representative), device)
    kind = RowIndex.for_device(torch.from_numpy(kinds.inverse), device)
    found = {name: value.index_select(0, row) for name, value in columns.items()}
    return Kinds(found, kind, len(row))
