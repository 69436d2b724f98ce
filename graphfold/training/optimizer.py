"""The optimizer of a run, in the implementation that suits its device."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence

import torch
from torch.optim import Optimizer


def build_optimizer(
    make: Callable[..., Optimizer], parameters: Sequence[torch.nn.Parameter]
) -> Optimizer:
    """Calls `make`; on a CPU, torch's own optimizers are made with fused=True.

    They then update a parameter in one pass over its memory. Their default there takes one pass,
    and one temporary of the parameter's size, for each operation: five times as long for a table
    of embeddings. On a GPU their default is well chosen.

    Args:
        make: an optimizer's class, or a partial of it; where it sets `fused` or `foreach`, that
            stays.
        parameters: what it updates.
    """
    options = inspect.signature(make).parameters
    is_free = all(
        name in options and options[name].default is None for name in ("fused", "foreach")
    )
    is_torch = getattr(make, "func", make).__module__.startswith("torch.optim.")
    if is_free and is_torch and all(p.device.type == "cpu" for p in parameters):
        return make(parameters, fused=True)
    return make(parameters)
