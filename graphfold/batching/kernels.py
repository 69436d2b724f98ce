"""Kernels: who computes the reductions over children. All give equal results, in tests too."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor

from graphfold.batching.segment import segment_max, segment_sum
from graphfold.errors import ConfigError, did_you_mean

#: (values [num_rows, width], ptr [num_segments + 1], parent [num_rows]) -> [num_segments, width]
Reduction = Callable[[Tensor, Tensor, Tensor], Tensor]


class Kernel(NamedTuple):
    """Reductions over runs of rows, differentiable; an empty run gives zeros."""

    sum: Reduction
    max: Reduction


KERNELS = ("native", "scatter")
NATIVE = Kernel(segment_sum, segment_max)


def get_kernel(name: str) -> Kernel:
    """The kernel called `name`: "native" (torch itself) or "scatter" (torch-scatter).

    Raises:
        ConfigError: if there is no such kernel, or its package is not installed.
    """
    if name == "native":
        return NATIVE
    if name == "scatter":
        return _scatter()
    hint = did_you_mean(name, KERNELS)
    raise ConfigError(f"there is no kernel '{name}'.{hint} Use one of {', '.join(KERNELS)}.")


def _scatter() -> Kernel:
    try:
        import torch_scatter
    except (ImportError, OSError) as error:  # OSError: it was built against another torch
        raise ConfigError(
            f"the kernel 'scatter' needs the package torch-scatter, which cannot be loaded "
            f"({error}). Install graphfold[scatter], or use the kernel 'native'."
        ) from error

    def total(values: Tensor, ptr: Tensor, parent: Tensor) -> Tensor:
        result: Tensor = torch_scatter.segment_csr(values, ptr, reduce="sum")
        return result

    def highest(values: Tensor, ptr: Tensor, parent: Tensor) -> Tensor:
        result: Tensor = torch_scatter.segment_csr(values, ptr, reduce="max")
        return result

    return Kernel(total, highest)
