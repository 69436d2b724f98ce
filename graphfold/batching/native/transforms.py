"""Transforms of torch that ordinary operations follow, and functions of one's own do not."""

from __future__ import annotations

from graphfold._torch import is_in_forward_mode, is_in_transform


def is_transformed() -> bool:
    """Whether a transform of `torch.func`, or forward-mode differentiation, is on."""
    return is_in_forward_mode() or is_in_transform()
