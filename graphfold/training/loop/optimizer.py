"""The optimizer of a run, in the implementation that suits its device and its gradients."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.optim import SGD, Adagrad, Optimizer

from graphfold.training.loop.learning_rates import learning_rate

#: Arguments of schedules of the learning rate that say for how many epochs they are made.
LENGTHS = ("T_max", "total_steps")


def build_optimizer(
    make: Callable[..., Optimizer],
    parameters: Sequence[nn.Parameter],
    sparse: Iterable[nn.Parameter] = (),
    factors: Mapping[nn.Parameter, float] | None = None,
) -> Optimizer:
    """Calls `make`; on a CPU, torch's own optimizers are made with fused=True.

    They then update a parameter in one pass over its memory. Their default there takes one pass,
    and one temporary of the parameter's size, for each operation: five times as long for a table
    of embeddings. On a GPU their default is well chosen.

    Args:
        make: an optimizer's class, or a partial of it; where it sets `fused` or `foreach`, that
            stays.
        parameters: what it updates.
        sparse: those of them whose gradients are sparse; they are in a group of their own, which
            is not fused, for torch's fused optimizers refuse such gradients.
        factors: of the learning rate, where that is not 1.

    Raises:
        ConfigError: if there are factors, but no learning rate.
    """
    apart = set(sparse)
    by_kind: dict[tuple[bool, float], list[nn.Parameter]] = {}
    for parameter in parameters:
        kind = parameter in apart, (factors or {}).get(parameter, 1.0)
        by_kind.setdefault(kind, []).append(parameter)
    groups: list[dict[str, Any]] = []
    for (is_sparse, factor), members in sorted(by_kind.items(), key=lambda item: item[0]):
        options = {"fused": False} if is_sparse else {}
        rate = {} if factor == 1 else {"lr": factor * learning_rate(make)}
        groups.append({"params": members, **options, **rate})
    if apart:
        checks: Any = torch.sparse.check_sparse_tensor_invariants
        if not checks.is_enabled():
            checks.disable()  # they are off in any case; said aloud, torch does not warn of it
    if _may_be_fused(make) and all(p.device.type == "cpu" for p in parameters):
        return make(groups, fused=True)
    return make(groups)


def skips_absent_rows(make: Callable[..., Optimizer]) -> bool:
    """True if an optimizer leaves a row as it is where the gradient is zero.

    Then rows without a gradient need not be looked at, and a sparse gradient gives the very same
    update. It holds for Adagrad, and for SGD without momentum, both without weight decay.
    """
    kind, options = getattr(make, "func", make), getattr(make, "keywords", {})
    if kind not in (Adagrad, SGD) or options.get("fused") or options.get("foreach"):
        return False
    return not any(options.get(name) for name in ("weight_decay", "momentum", "maximize"))


def _may_be_fused(make: Callable[..., Optimizer]) -> bool:
    options = inspect.signature(make).parameters
    is_free = all(
        name in options and options[name].default is None for name in ("fused", "foreach")
    )
    return is_free and getattr(make, "func", make).__module__.startswith("torch.optim.")
