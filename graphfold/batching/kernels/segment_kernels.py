"""Kernels: who computes the reductions over children. Both give equal results, in tests too."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from torch import Tensor

from graphfold.batching.kernels.segment import Reduction, expand, segment_max, segment_sum
from graphfold.errors import ConfigError, did_you_mean


class Kernel(NamedTuple):
    """Reductions over runs of rows, and back, differentiable; an empty run gives zeros."""

    sum: Reduction
    max: Reduction
    expand: Reduction = expand


NATIVE = Kernel(segment_sum, segment_max)
KERNELS = ("native", "scatter")


def get_kernel(name: str) -> Kernel:
    """The kernel called `name`.

    Args:
        name: "native", which is made of torch's operations, or "scatter" (torch-scatter).

    Raises:
        ConfigError: if there is no such kernel, or its package is not installed.
    """
    if name not in KERNELS:
        hint = did_you_mean(name, KERNELS)
        raise ConfigError(f"there is no kernel '{name}'.{hint} Use one of {', '.join(KERNELS)}.")
    return NATIVE if name == "native" else _scatter()


def _scatter() -> Kernel:
    try:
        from torch_scatter import segment_csr
    except (ImportError, OSError) as error:  # OSError: it was built against another torch
        raise ConfigError(
            f"the kernel 'scatter' needs the package torch-scatter, which cannot be loaded "
            f"({error}). Install graphfold[scatter], or use the kernel 'native'."
        ) from error

    def reduce(reduction: str, values: Tensor, ptr: Tensor, parent: Tensor) -> Tensor:
        reduced: Tensor = segment_csr(values, ptr, reduce=reduction)
        return reduced

    highest = partial(segment_max, find=partial(reduce, "max"))
    return Kernel(partial(reduce, "sum"), highest)
