"""Products of few rows: where a command chose oneDNN, they are left to torch's default kernel.

oneDNN is the faster kernel from some four rows on, but takes 30 microseconds to begin; the default
takes 8 for a single row. The upper levels of trees have such groups. Which kernel multiplies is a
setting of the process, which the library never changes by itself: it does so only between
`use_default_for_few_rows(True)`, which commands call, and the end of each pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

#: Groups of up to so many nodes are few rows.
FEW_ROWS = 2

_is_wanted = False


def use_default_for_few_rows(wanted: bool) -> None:
    """Says whether groups of few rows have the default kernel; only commands call this."""
    global _is_wanted
    # Older versions of torch have one setting for all, which is not quick to change.
    _is_wanted = wanted and hasattr(torch.backends.mkldnn, "matmul")


class ProductKernel:
    """The kernel of the groups of a pass.

    Args:
        device: where the pass computes.
    """

    def __init__(self, device: torch.device) -> None:
        self._setting: Any = None
        if _is_wanted and device.type == "cpu":
            self._setting = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
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
