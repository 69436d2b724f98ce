"""Weights out of a file, checked before a model takes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.overrides import TorchFunctionMode

from graphfold.errors import CheckpointError

#: The functions by which modules make their tensors.
FACTORIES = (
    *(torch.empty, torch.zeros, torch.ones, torch.full, torch.rand, torch.randn),
    *(torch.eye, torch.arange, torch.linspace, torch.tensor),
)

#: A model may make so many times the numbers of its weights while it is built, and so many more
#: (10 million): tables that are not stored, weights that are made twice.
TIMES, MORE = 8, 10_000_000

#: So many times may it make a tensor, for each of its weights and beside them.
CALLS, MORE_CALLS = 100, 100_000


def weight_fault(weight: Tensor, own: Tensor | None = None, is_learnt: bool = True) -> str | None:
    """The reason why a tensor out of a file is no weight, or None.

    Args:
        weight: the tensor.
        own: the weight of a model in whose place it is to be; None for real numbers.
        is_learnt: whether its values must be finite.
    """
    if fault := tensor_fault(weight):
        return fault
    kind = "real" if own is None else _kind(own)
    if _kind(weight) != kind:
        return f"holds {_kind(weight)} numbers, not {kind} ones"
    if is_learnt and not weight.isfinite().all():
        return "has values that are no finite numbers"
    return None


def tensor_fault(tensor: Tensor) -> str | None:
    """The reason why a tensor out of a file is not what graphfold and chemprop write, or None."""
    if tensor.layout is not torch.strided or tensor.is_quantized:
        return "is sparse or quantized"
    if tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
        return "is larger than the numbers that the file holds of it"
    return None


def check_weights(model: nn.Module, state: Mapping[str, Tensor], path: Path) -> None:
    """Refuses the weights of a file that are not of the kind, or no numbers, that a model has.

    Their names and shapes are a matter of `load_state_dict`.

    Args:
        model: the model that is to take them.
        state: name -> weight.
        path: the file, for messages.

    Raises:
        CheckpointError: naming the weight.
    """
    parameters = dict(model.named_parameters())
    for name, own in model.state_dict().items():
        theirs = state.get(name)
        if theirs is None:
            continue
        if fault := weight_fault(theirs, own, name in parameters):
            raise CheckpointError(
                f"{path}: the weight {name} {fault}. Restore the file; if training made it so, "
                "train again with a lower optimizer.lr.",
                path=str(path),
            )


def check_state(optimizer: Optimizer, path: Path) -> None:
    """Refuses a state of a fused optimizer, out of a file, that has not the shapes of its weights.

    Such an optimizer would read behind its end. The others say it by themselves, and some of them
    keep other shapes (Adafactor).

    Args:
        optimizer: the optimizer.
        path: the file, for messages.

    Raises:
        CheckpointError: naming what is kept.
    """
    fused = [w for group in optimizer.param_groups if group.get("fused") for w in group["params"]]
    for weight in fused:
        kept = optimizer.state.get(weight)
        for name, value in kept.items() if isinstance(kept, dict) else ():
            if not isinstance(value, Tensor):
                continue
            fits = value.shape == weight.shape or value.numel() == 1
            fault = tensor_fault(value) or (None if fits else f"is of shape {list(value.shape)}")
            if fault:
                raise CheckpointError(
                    f"{path}: '{name}' of the optimizer, for a weight of shape "
                    f"{list(weight.shape)}, {fault}: its progress cannot be taken up. Restore the "
                    "file.",
                    path=str(path),
                )


class SizeLimit(TorchFunctionMode):
    """Within, a model cannot make much more than the weights that it is to take.

    What a checkpoint says of its model (widths, layers) may be anything. Tensors are counted before
    they are made.

    Args:
        state: name -> weight.
        path: the file, for messages.
    """

    def __init__(self, state: Mapping[str, Tensor], path: Path) -> None:
        super().__init__()
        self.path = path
        self.numbers = TIMES * sum(weight.numel() for weight in state.values()) + MORE
        self.calls = CALLS * len(state) + MORE_CALLS

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Calls a function of torch; one that makes a tensor only if that is small enough.

        Raises:
            CheckpointError: if the model is far larger than its weights.
        """
        kwargs = kwargs or {}
        if func in FACTORIES and kwargs.get("out") is None:  # else it fills a tensor that is there
            self.calls -= 1
            # Of random numbers torch knows the shape only by way of sympy, a third of a second.
            shaped = torch.empty if func in (torch.rand, torch.randn) else func
            given = {**kwargs, "device": "meta"}
            if shaped is not func:
                given.pop("generator", None)
            self.numbers -= shaped(*args, **given).numel()
            if self.numbers < 0 or self.calls < 0:
                raise CheckpointError(
                    f"{self.path}: its config describes a model that is far larger than the "
                    "weights in the file. Restore the file.",
                    path=str(self.path),
                )
        return func(*args, **kwargs)


def _kind(tensor: Tensor) -> str:
    if tensor.dtype is torch.bool:
        return "logical"
    if tensor.is_complex():
        return "complex"
    return "real" if tensor.is_floating_point() else "whole"
