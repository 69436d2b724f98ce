"""Kernels: who computes the reductions over children. All give equal results, in tests too.

"native" is chosen by measurement for each device and reduction; the others are what it was chosen
from. On one core of an AMD EPYC (AVX-512, torch 2.13,
torch-scatter 2.1.2), in ms, forward / forward and backward, for rows of width 300 and runs of 2.5:

| reduction, rows | runs | index_add | segment_reduce | scatter |
|---|---|---|---|---|
| sum, 70 | 0.013 / 0.041 | 0.006 / 0.022 | 0.015 / 0.037 | 0.015 / 0.038 |
| sum, 4,328 | 0.090 / 0.36 | 0.205 / 0.45 | 0.89 / 1.8 | 0.75 / 1.3 |
| sum, 34,521 | 1.1 / 11 | 3.8 / 13 | 10 / 27 | 5.7 / 19 |
| max, 70 | 0.011 / 0.057 | = | 0.024 / 0.069 | 0.023 / 0.052 |
| max, 4,328 | 0.21 / 1.5 | = | 1.1 / 5.7 | 4.3 / 5.4 |
| max, 34,521 | 3.2 / 16 | = | 13 / 51 | 34 / 43 |

- CPU, sum: `runs` (embedding_bag over the rows where they lie) from 65,536 numbers on; below that
  `index_add`, whose operations are launched sooner. CPU, max: scatter_reduce with a gradient of
  our own (torch's takes five times as long).
- GPU, sum: `runs`, which adds up each run in order; `index_add` adds atomically, and its last
  digits differ from one call to the next. GPU, max: as on a CPU. Chosen
  for that reason, not measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from graphfold.batching.kernels.segment import (
    Reduction,
    segment_max,
    segment_sum,
    sum_by_index_add,
    sum_by_runs,
)
from graphfold.errors import ConfigError, did_you_mean


class Kernel(NamedTuple):
    """Reductions over runs of rows, differentiable; an empty run gives zeros."""

    sum: Reduction
    max: Reduction


def get_kernel(name: str) -> Kernel:
    """The kernel called `name`.

    Args:
        name: "native", the fastest of torch's own on the device; or one of those that it is chosen
            from: "runs", "index_add", "segment_reduce" and "scatter" (torch-scatter).

    Raises:
        ConfigError: if there is no such kernel, or its package is not installed.
    """
    if name == "scatter":
        return _scatter()
    if name not in _OF_TORCH:
        hint = did_you_mean(name, KERNELS)
        raise ConfigError(f"there is no kernel '{name}'.{hint} Use one of {', '.join(KERNELS)}.")
    return _OF_TORCH[name]


def _segment_reduce(reduction: str) -> Reduction:
    """torch.segment_reduce; it can be differentiated once."""

    def reduce(values: Tensor, ptr: Tensor, parent: Tensor) -> Tensor:
        if values.numel() == 0 or len(ptr) == 1:
            return sum_by_index_add(values, ptr, parent)
        reduced: Tensor = torch.segment_reduce(values, reduction, offsets=ptr)
        if reduction == "sum":
            return reduced
        is_empty = (ptr[1:] == ptr[:-1]).view(-1, *[1] * (values.dim() - 1))
        return reduced.masked_fill(is_empty, 0.0)

    return reduce


NATIVE = Kernel(segment_sum, segment_max)
_OF_TORCH: Mapping[str, Kernel] = {
    "native": NATIVE,
    "runs": Kernel(sum_by_runs, segment_max),
    "index_add": Kernel(sum_by_index_add, segment_max),
    "segment_reduce": Kernel(
        _segment_reduce("sum"), partial(segment_max, find=_segment_reduce("max"))
    ),
}
KERNELS = (*_OF_TORCH, "scatter")


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

    return Kernel(total, partial(segment_max, find=highest))
