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

from graphfold.batching.kernels.row_blocks import linear
from graphfold.batching.kernels.tanh import tanh

#: torch's function -> ours.
_FASTER: dict[Any, Callable[..., Tensor]] = {F.linear: linear, torch.tanh: tanh, Tensor.tanh: tanh}


class FastKernels(TorchFunctionMode):
    """Inside, linear layers and tanh are computed by `kernels.row_blocks` and `kernels.tanh`."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        # A kind of tensor that sees to its functions itself comes first.
        if all(kind is Tensor for kind in types):
            func = _FASTER.get(func, func)
        return func(*args, **(kwargs or {}))
