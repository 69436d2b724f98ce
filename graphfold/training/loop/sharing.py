"""Sharing of equal nodes: allowed or not by what the model is made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from graphfold.blocks.layers import FC
from graphfold.datasets.loading.data_module import DataModule
from graphfold.layers import Model
from graphfold.layers.dropout import drops_out
from graphfold.layers.normalisation import is_batch_norm

#: What is in the names of torch's functions that draw, or may look at more than one row.
_NOT_BY_ROW = ("dropout", "norm", "rand", "rrelu", "bernoulli", "gumbel", "multinomial")


def choose_sharing(data: DataModule, model: Model, training: bool) -> bool:
    """The value of `data.share`; for "auto", True if sharing is known to change nothing.

    Args:
        data: the data.
        model: the model.
        training: whether it trains or is evaluated.
    """
    return can_share(model, training) if data.share == "auto" else bool(data.share)


def can_share(model: Model, training: bool = False) -> bool:
    """True if a model is known to compute the same when equal nodes are computed once.

    It is not if something before its readout draws random numbers (dropout in training), looks at
    the whole batch (batch normalisation in training), or is code that neither torch nor graphfold
    has written: what that does, nobody can tell. Where such code treats every row for itself, as a
    cell on the way up should, `data.share=true` shares; the engine refuses cells that draw numbers
    or change buffers then.

    Args:
        model: the model.
        training: whether the model is to be in training mode.
    """
    draws = training or model.draws
    return all(_is_by_row(part, draws) for part in model.state_parts())


def _is_by_row(part: Callable[..., Any], training: bool) -> bool:
    if not isinstance(part, nn.Module):
        return _is_known(part)
    if type(part).__module__.split(".")[0] not in ("torch", "graphfold"):
        return False
    if is_batch_norm(part):
        return not training and getattr(part, "running_mean", None) is not None
    functions = (value for value in vars(part).values() if callable(value))
    return not (training and _draws(part)) and all(map(_is_known, functions))


def _is_known(function: Callable[..., Any]) -> bool:
    """True if a function is torch's or graphfold's own, and treats every row for itself."""
    name = getattr(function, "__name__", "")
    if (getattr(function, "__module__", None) or "").startswith("graphfold."):
        return True
    is_torch = any(getattr(home, name, None) is function for home in (torch, functional, nn.init))
    return is_torch and not any(word in name for word in _NOT_BY_ROW)


def _draws(module: nn.Module) -> bool:
    """True if a module draws random numbers in training."""
    if isinstance(module, FC):
        return any((p or 1) < 1 for p in (module.input_keep_prob, module.output_keep_prob))
    if isinstance(module, nn.RNNBase | nn.MultiheadAttention):
        return module.dropout > 0
    return drops_out(module) or isinstance(module, nn.RReLU)
