"""Products of very few and of many rows, where a command chose oneDNN for products.

- oneDNN is the faster kernel from some four rows on, but takes 30 microseconds to begin; torch's
  default takes 8 for a single row. The upper levels of trees have such groups: they are left to the
  default.
- oneDNN compiles a kernel for every new shape: half a millisecond, half a megabyte. Groups have
  another number of rows in every batch, so many rows are multiplied in two blocks, one a multiple
  of 64 and one of less: shapes that come again.

Which kernel multiplies is a setting of the process, which the library never changes by itself: it
does so only between `choose_onednn(True)`, which commands call, and the end of each pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

#: Groups of up to so many nodes are few rows.
FEW_ROWS = 2
#: Of more rows than these, a multiple is multiplied first, then the rest.
BLOCK_ROWS = 64

_is_chosen = False


def choose_onednn(is_chosen: bool) -> None:
    """Says whether products are oneDNN's; only commands call this."""
    global _is_chosen
    _is_chosen = is_chosen


class ProductKernel:
    """The kernel of the groups of a pass.

    Args:
        device: where the pass computes.
    """

    def __init__(self, device: torch.device) -> None:
        # Older versions of torch have one setting for all, which is not quick to change.
        self._setting: Any = getattr(torch.backends.mkldnn, "matmul", None)
        if not _is_chosen or device.type != "cpu":
            self._setting = None
        if self._setting is not None:
            self._usual = self._setting.fp32_precision
        self._is_few = False

    def choose(self, num_rows: int) -> None:
        """Before a group of so many nodes."""
        is_few = num_rows <= FEW_ROWS
        if self._setting is not None and is_few != self._is_few:
            self._setting.fp32_precision = "ieee" if is_few else self._usual
            self._is_few = is_few


@contextmanager
def product_kernel(device: torch.device) -> Iterator[ProductKernel]:
    """The kernel for the groups of a pass, which is the usual one again at the end."""
    kernel = ProductKernel(device)
    try:
        yield kernel
    finally:
        kernel.choose(FEW_ROWS + 1)


def addmm(bias: Tensor, x: Tensor, weight: Tensor, *, out: Tensor | None = None) -> Tensor:
    """[rows, m] bias + x @ weight, for x [rows, k], weight [k, m] and bias [m]."""
    cut = _cut(x)
    return _in_blocks(cut, x, weight, out, bias) if cut else torch.addmm(bias, x, weight, out=out)


def mm(x: Tensor, weight: Tensor, *, out: Tensor | None = None) -> Tensor:
    """[rows, m] x @ weight, for x [rows, k] and weight [k, m]."""
    cut = _cut(x)
    return _in_blocks(cut, x, weight, out) if cut else torch.mm(x, weight, out=out)


def rows_mm(x: Tensor, y: Tensor) -> Tensor:
    """[k, m] the sum over rows x.T @ y, for x [rows, k] and y [rows, m]."""
    cut = _cut(x)
    if not cut:
        return x.T @ y
    return (x[:cut].T @ y[:cut]).addmm_(x[cut:].T, y[cut:])


def _in_blocks(cut: int, x: Tensor, weight: Tensor, out: Tensor | None, *bias: Tensor) -> Tensor:
    """The product, of the first `cut` rows and of the rest."""
    multiply: Callable[..., Tensor] = torch.addmm if bias else torch.mm
    if out is None:
        out = x.new_empty(x.shape[0], weight.shape[1])
    multiply(*bias, x[:cut], weight, out=out[:cut])
    multiply(*bias, x[cut:], weight, out=out[cut:])
    return out


def _cut(x: Tensor) -> int:
    """How many rows are the first block; 0 if all are one."""
    rows = x.shape[0]
    if not _is_chosen or rows < BLOCK_ROWS:
        return 0
    rest = rows % BLOCK_ROWS
    return rows - rest if rest else 0
