"""Optimisation: frozen weights, gradients and the optimizer."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adagrad, Optimizer

from graphfold.errors import ConfigError, did_you_mean


def freeze(model: nn.Module, parts: Sequence[str]) -> None:
    """Freezes the weights of parts of a model; see also `in_training_mode`.

    Args:
        model: the model.
        parts: dotted names; each freezes all weights whose names begin with it.

    Raises:
        ConfigError: if a name matches no weight, or all weights are frozen.
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

    Frozen parts have no dropout, and their statistics of normalisation do not change.
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
    """Makes an optimizer; on a CPU, an optimizer of torch gets fused=True.

    It then updates a parameter in one pass over its memory. The default on a CPU takes one pass,
    and one temporary of the parameter's size, for each operation: five times as long for a table
    of embeddings. On a GPU the default is fast.

    Args:
        make: an optimizer's class, or a partial of it; its `fused` or `foreach` is not changed.
        parameters: the parameters to update.
        sparse: the parameters with sparse gradients; they form a second group that is not fused,
            since fused optimizers of torch refuse sparse gradients.
    """
    is_sparse = set(sparse)
    dense = [parameter for parameter in parameters if parameter not in is_sparse]
    groups: list[dict[str, Any]] = [{"params": dense}] if dense else []
    if is_sparse:
        groups.append({"params": [p for p in parameters if p in is_sparse], "fused": False})
        checks: Any = torch.sparse.check_sparse_tensor_invariants
        if not checks.is_enabled():
            checks.disable()  # they are off already; setting it avoids a warning of torch
    if _may_be_fused(make) and all(p.device.type == "cpu" for p in parameters):
        return make(groups, fused=True)
    return make(groups)


def skips_absent_rows(make: Callable[..., Optimizer]) -> bool:
    """True if an optimizer does not change rows with a zero gradient.

    A sparse gradient then gives exactly the same update. It holds for Adagrad, and for SGD without
    momentum, both without weight decay.
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
    """Adds the gradients of a loss to all parameters; to none of them if memory runs out."""
    gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
    seen: set[int] = set()
    for parameter, gradient in zip(parameters, gradients, strict=True):
        if gradient is None:
            continue
        # autograd may return one tensor for two parameters, or an expanded one; ours is written to
        if not gradient.is_sparse:
            if not gradient.is_contiguous() or gradient.data_ptr() in seen:
                gradient = gradient.clone(memory_format=torch.contiguous_format)
            seen.add(gradient.data_ptr())
        if parameter.grad is None:
            parameter.grad = gradient
        else:
            parameter.grad += gradient


def is_part(name: str, of: Sequence[str]) -> bool:
    """True if a dotted name is one of some parts, or inside one."""
    return any(name == part or name.startswith(f"{part}.") for part in of)


def _refuse_unknown(part: str, weights: Sequence[str]) -> None:
    if any(is_part(name, [part]) for name in weights):
        return
    prefixes = (accumulate(name.split("."), "{}.{}".format) for name in weights)
    names = list(dict.fromkeys(chain.from_iterable(prefixes)))
    top = [name for name in names if "." not in name]
    raise ConfigError(
        f"freeze names '{part}', but no weights of the model are called so."
        f"{did_you_mean(part, names)} Its parts are {', '.join(top)}, and parts of "
        f"them such as {max(names, key=lambda name: name.count('.'))}."
    )
