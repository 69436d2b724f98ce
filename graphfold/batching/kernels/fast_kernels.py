"""FastKernels: code of cells and models runs with graphfold's kernels where they are faster.

The programs of traced cells call them by themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from graphfold.batching.kernels import packed_linear, row_blocks
from graphfold.batching.kernels.tanh import tanh

#: torch's function -> ours.
_FASTER: dict[Any, Callable[..., Tensor]] = {
    F.linear: row_blocks.linear,
    torch.tanh: tanh,
    Tensor.tanh: tanh,
}
_COMPILED = {**_FASTER, F.linear: packed_linear.linear}


class FastKernels(TorchFunctionMode):
    """Inside, linear layers and tanh are computed by `kernels.row_blocks` and `kernels.tanh`.

    Args:
        compiled: whether linear layers have kernels in C, those of `kernels.packed_linear`.
    """

    def __init__(self, compiled: bool = False) -> None:
        super().__init__()
        self._faster = _COMPILED if compiled else _FASTER

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        # A kind of tensor that sees to its functions itself comes first.
        if all(kind is Tensor for kind in types):
            func = self._faster.get(func, func)
        return func(*args, **(kwargs or {}))
