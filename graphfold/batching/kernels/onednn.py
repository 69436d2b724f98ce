"""Products of very few rows, where a command chose oneDNN for products.

oneDNN is the faster kernel from some four rows on, but takes 30 microseconds to begin; torch's
default takes 8 for a single row. The upper levels of trees have such groups: they are left to the
default.

Which kernel multiplies is a setting of the process, which the library never changes by itself: it
does so only between `choose_onednn(True)`, which commands call, and the end of each pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

#: Groups of up to so many nodes are few rows.
FEW_ROWS = 2

_is_chosen = False


def choose_onednn(is_chosen: bool) -> None:
    """Says whether products are oneDNN's; only commands call this."""
    global _is_chosen
    _is_chosen = is_chosen


def is_onednn_chosen() -> bool:
    """Whether a command said so."""
    return _is_chosen


def is_onednn_at_work() -> bool:
    """Whether the products of the group that runs, if one does, are oneDNN's."""
    setting: Any = getattr(torch.backends.mkldnn, "matmul", None)
    return _is_chosen and (setting is None or setting.fp32_precision != "ieee")


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
