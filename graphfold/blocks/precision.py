"""The floating-point dtype of a model: one for all of it, that of its parameters."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

from graphfold.blocks.types import TensorType


def float_dtype_of(modules: Iterable[nn.Module]) -> torch.dtype | None:
    """The dtype of the first parameter or, if there is none, buffer; None if there is neither.

    So `model.double()` makes a model of float32 types compute in float64.
    """
    modules = list(modules)
    for tensors in (nn.Module.parameters, nn.Module.buffers):
        for module in modules:
            for tensor in tensors(module):
                if tensor.is_floating_point():
                    return tensor.dtype
    return None


def in_dtype(kind: TensorType, float_dtype: torch.dtype | None) -> torch.dtype:
    """The dtype that tensors of a type have in a model that computes in `float_dtype`."""
    if float_dtype is None or not kind.is_floating_point:
        return kind.torch_dtype
    return float_dtype
