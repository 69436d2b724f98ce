"""Which tensors the kernels that are written for a CPU may look into."""

from __future__ import annotations

from collections.abc import Container

import torch
from torch import Tensor


def is_plain(x: Tensor, dtypes: Container[torch.dtype] = (torch.float32,)) -> bool:
    """Whether it is just numbers of one of these dtypes in the memory of the CPU.

    A subclass of Tensor sees to its functions itself, or has no numbers, as in a trace; neither has
    what a transform of torch.func hands out.
    """
    if type(x) is not Tensor or x.dtype not in dtypes or not x.is_cpu:
        return False
    return not torch._C._are_functorch_transforms_active()
