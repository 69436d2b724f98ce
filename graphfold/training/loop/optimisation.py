"""Optimisation: which weights of a model learn, and by which optimizer."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adagrad, Optimizer

from graphfold.errors import ConfigError, did_you_mean


def freeze(model: nn.Module, parts: Sequence[str]) -> None:
    """Takes parts of a model out of training; see `in_training_mode` for what else they stop doing.

    Args:
        model: the model.
        parts: dotted names, each of which stands for all weights whose names begin with it.

    Raises:
        ConfigError: if a name matches no weight, or no weight is left to train.
    """
    weights = dict(model.named_parameters())
    for part in parts:
        _refuse_unknown(part, list(weights))
    for name, weight in weights.items():
        weight.requires_grad_(weight.requires_grad and not is_part(name, parts))
    if parts and not any(weight.requires_grad for weight in weights.values()):
        raise ConfigError(
            f"freeze=[{', '.join(parts)}] leaves no weight to train. Freeze fewer parts."
        )


def in_training_mode(model: nn.Module, frozen: Sequence[str]) -> None:
    """Puts a model into training mode, and its frozen parts into evaluation mode.

    They drop nothing out, and the statistics of their normalisation stay.
    """
    model.train()
    for name, module in model.named_modules():
        if is_part(name, frozen):
            module.eval()


def build_optimizer(
    make: Callable[..., Optimizer],
    parameters: Sequence[nn.Parameter],
    sparse: Iterable[nn.Parameter] = (),
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
    """
    apart = set(sparse)
    dense = [parameter for parameter in parameters if parameter not in apart]
    groups: list[dict[str, Any]] = [{"params": dense}] if dense else []
    if apart:
        groups.append({"params": [p for p in parameters if p in apart], "fused": False})
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


def add_gradients(loss: Tensor, parameters: Sequence[nn.Parameter]) -> None:
    """Adds the gradients of a loss to those of all parameters, or, if memory runs out, of none."""
    gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
    seen: set[int] = set()
    for parameter, gradient in zip(parameters, gradients, strict=True):
        if gradient is None:
            continue
        # autograd may give one tensor to two parameters, or an expanded one; ours is written to
        if not gradient.is_sparse:
            if not gradient.is_contiguous() or gradient.data_ptr() in seen:
                gradient = gradient.clone(memory_format=torch.contiguous_format)
            seen.add(gradient.data_ptr())
        if parameter.grad is None:
            parameter.grad = gradient
        else:
            parameter.grad += gradient


def is_part(name: str, of: Sequence[str]) -> bool:
    """True if a dotted name is one of some parts or lies in one."""
    return any(name == part or name.startswith(f"{part}.") for part in of)


def _refuse_unknown(part: str, weights: Sequence[str]) -> None:
    if any(is_part(name, [part]) for name in weights):
        return
    known = list(dict.fromkeys(_beginnings(weights)))
    top = [name for name in known if "." not in name]
    raise ConfigError(
        f"freeze names '{part}', but no weights of the model are called so."
        f"{did_you_mean(part, known)} Its parts are {', '.join(top)}, and parts of "
        f"them such as {max(known, key=lambda name: name.count('.'))}."
    )


def _beginnings(names: Sequence[str]) -> Iterator[str]:
    """All dotted names that names begin with."""
    for name in names:
        yield from accumulate(name.split("."), lambda a, b: f"{a}.{b}")
