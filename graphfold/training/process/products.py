"""Products: the kernels of float32 matrix products, a setting of the whole process.

PyTorch multiplies on a CPU with MKL unless `torch.set_float32_matmul_precision("medium")` allows
less than float32: then it calls oneDNN. Where the CPU has no instructions for less (AMX), oneDNN
works in float32 all the same, on some CPUs twice as fast as MKL; elsewhere it really rounds to
bfloat16. So neither is taken on trust: `probe_kernels` measures speed and error of both.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

#: Name of a kernel -> the precision by which PyTorch chooses it.
KERNELS = {"default": "highest", "onednn": "medium"}

#: Of the products tried: rows as of small and of large groups, and two widths.
_ROWS, _WIDTHS = (16, 64, 256), (300, 600)

_REPETITIONS = 4


@dataclass(frozen=True)
class Kernel:
    """A kernel, and what was measured of it."""

    name: str
    speed: float = 1.0  # times the speed of the default kernel, the mean over the products tried
    error: float = math.nan  # the largest, relative to the product's largest entry in float64

    def __str__(self) -> str:
        facts = f"{self.speed:.1f} x the default's speed, relative error {self.error:.0e}"
        return self.name if self.name == "default" else f"{self.name} ({facts})"


def products_in_use() -> str:
    """The kernel that this process multiplies with; whatever else was set counts as default."""
    names = {precision: name for name, precision in KERNELS.items()}
    return names.get(torch.get_float32_matmul_precision(), "default")


def use_products(name: str) -> None:
    """Multiplies with a kernel from now on, everywhere in the process; only commands call this."""
    torch.set_float32_matmul_precision(KERNELS[name])


def probe_kernels() -> list[Kernel]:
    """Measures the kernels that there are, in some hundredths of a second.

    Without oneDNN, or with a GPU, whose products the same setting would round, there is only the
    default.
    """
    has_onednn = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    names = ["default", "onednn"] if has_onednn and not torch.cuda.is_available() else ["default"]
    with torch.no_grad(), _restored():
        found = {name: list(_measure(name)) for name in names}
    usual = [seconds for seconds, _ in found["default"]]
    return [
        Kernel(
            name,
            speed=sum(u / s for u, (s, _) in zip(usual, pairs, strict=True)) / len(usual),
            error=max(error for _, error in pairs),
        )
        for name, pairs in found.items()
    ]


def _measure(name: str) -> Iterator[tuple[float, float]]:
    """(seconds, relative error) of every product."""
    use_products(name)
    draw = torch.Generator().manual_seed(0)
    width_in, width_out = _WIDTHS
    weight = torch.randn(width_out, width_in, generator=draw, dtype=torch.float32)
    for rows in _ROWS:
        x = torch.randn(rows, width_in, generator=draw, dtype=torch.float32)
        y = torch.randn(rows, width_out, generator=draw, dtype=torch.float32)
        # Those of a linear layer: its output, the gradient of its input, that of its weight.
        for left, right in ((x, weight.t()), (y, weight), (y.t(), x)):
            yield _seconds(lambda a=left, b=right: a @ b), _error(left, right)  # type: ignore[misc]


def _seconds(function: Callable[[], Tensor]) -> float:
    """The shortest time of several, after one that is not counted."""
    function()
    times = []
    for _ in range(_REPETITIONS):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def _error(left: Tensor, right: Tensor) -> float:
    exact = left.double() @ right.double()
    return float(((left @ right).double() - exact).abs().max() / exact.abs().max())


@contextmanager
def _restored() -> Iterator[None]:
    """Leaves the setting as it was."""
    before = torch.get_float32_matmul_precision()
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
