"""Opaque: functions that a trace calls as they are, for they choose by size how they compute.

A trace leaves the number of rows open. Such a function is one operation in it, of which no more is
known than the shape of what it gives; it looks at the size when the code runs that was traced.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

#: Operation of a trace -> the function that it stands for.
_FUNCTIONS: dict[Any, Callable[..., Tensor]] = {}


def is_open(tensor: Tensor) -> bool:
    """Whether a trace runs in which the number of a tensor's rows is open."""
    return isinstance(tensor.shape[0], torch.SymInt)


def opaque(
    fake: Callable[..., Tensor],
) -> Callable[[Callable[..., Tensor]], Callable[..., Tensor]]:
    """A decorator for functions of tensors, the first of which has an open size in a trace.

    They are not differentiable by themselves where the size is open, and give new memory.

    Args:
        fake: gives a tensor of the function's shape and dtype for the same arguments.
    """

    def decorate(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        operation = functools.cache(lambda: _register(function, fake))

        @functools.wraps(function)
        def call(*tensors: Tensor) -> Tensor:
            return operation()(*tensors) if is_open(tensors[0]) else function(*tensors)

        return call

    return decorate


def function_of(target: object) -> Callable[..., Tensor] | None:
    """The function that an operation of a trace stands for, if it stands for one."""
    return _FUNCTIONS.get(target)


def _register(function: Callable[..., Tensor], fake: Callable[..., Tensor]) -> Callable[..., Any]:
    """The operation; its own call takes tens of microseconds, so programs call the function."""
    name = f"graphfold::{function.__module__.rpartition('.')[2]}_{function.__name__.strip('_')}"
    arguments = ", ".join(f"Tensor {name}" for name in inspect.signature(function).parameters)
    made: Any = torch.library.custom_op(
        name, function, mutates_args=(), schema=f"({arguments}) -> Tensor"
    )
    made.register_fake(fake)
    _FUNCTIONS[made._opoverload] = function
    return made  # type: ignore[no-any-return]
