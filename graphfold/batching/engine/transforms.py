"""Transforms of torch that ordinary operations follow, and functions of one's own do not."""

from __future__ import annotations

import torch
from torch.autograd import forward_ad


def is_transformed() -> bool:
    """Whether a transform of `torch.func`, or forward-mode differentiation, is on."""
    if getattr(forward_ad, "_current_level", -1) >= 0:
        return True
    peek = getattr(torch._C, "_are_functorch_transforms_active", None)
    return bool(peek is not None and peek())
