"""Lazy parameters: uses of weights whose gradients can wait are noted, not differentiated.

Cavs (Xu et al., 2018, https://arxiv.org/abs/1712.04048, section 3.4) defers the gradients of
parameters to the end of the backward pass. A cell does not notice: inside the engine its weights
are `LazyParameter`s. Where one is used in a linear product or an embedding, the use is noted with
the place of its output in the autograd graph; backward asks for the gradient at that place, and
`LazyGradients` finds the weight's own from it. Any other use of a weight is differentiated per
group, as usual.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge
from torch.nn import functional as F

from graphfold.batching.kernels.row_blocks import linear

#: Functions with two arguments, (input, weight), whose result is a matrix product.
MATRIX_PRODUCTS = {torch.matmul, torch.mm, Tensor.matmul, Tensor.mm, Tensor.__matmul__}
#: Functions that say something about a tensor and give none.
_FACTS = {
    Tensor.size,
    Tensor.dim,
    Tensor.numel,
    Tensor.__len__,
    *(getattr(Tensor, name).__get__ for name in ("shape", "dtype", "device", "ndim", "is_cuda")),
}


class Kind(Enum):
    """What was done with a weight."""

    LINEAR = "input @ weight.T"
    PRODUCT = "input @ weight"
    EMBEDDING = "weight[input]"


class Use(NamedTuple):
    """One deferred use of parameters, by their numbers: a linear product or an embedding."""

    kind: Kind
    weight: int | None
    bias: int | None
    input: Tensor  # [..., in], or the index of an embedding
    version: int  # of the input
    output: GradientEdge

    def check(self) -> None:
        """Raises RuntimeError if the input was changed in place since."""
        if self.input._version != self.version:
            raise RuntimeError(
                "the input of a linear product or an embedding was modified by an inplace "
                "operation before its gradient was computed."
            )


class Aliases:
    """What stands for the parameters while the engine runs cells that must be differentiated.

    Args:
        parameters: what they stand for.
        plain: what has the parameters' values; the parameters if not given.
        deferred: the same for uses that are deferred.
        handles: what the cells get to hold; made anew if not given.

    Attributes:
        plain: one leaf per parameter, for uses that are differentiated per group.
        plain_used: the numbers of those that were used so.
        uses: the deferred uses of the group that runs.
    """

    def __init__(
        self,
        parameters: Sequence[Tensor],
        plain: Sequence[Tensor] | None = None,
        deferred: Sequence[Tensor] | None = None,
        handles: Sequence[LazyParameter] | None = None,
    ) -> None:
        self.plain = _leaves(parameters, plain)
        # Nobody asks for the gradient of these, so autograd does not compute it.
        self.deferred = _leaves(parameters, deferred)
        self.plain_used: dict[int, None] = {}
        self.uses: list[Use] = []
        handles = list(map(LazyParameter.wrap, parameters)) if handles is None else handles
        self.by_parameter: dict[int, Tensor] = {}
        for number, (parameter, handle) in enumerate(zip(parameters, handles, strict=True)):
            handle.aliases, handle.number = self, number
            lazy = parameter.requires_grad
            self.by_parameter[id(parameter)] = handle if lazy else self.plain[number]

    def note(
        self, kind: Kind, weight: int | None, bias: int | None, x: Tensor, output: Tensor
    ) -> Tensor:
        """Notes a deferred use; returns its output."""
        if output.grad_fn is not None:
            edge = GradientEdge(output.grad_fn, output.output_nr)
            self.uses.append(Use(kind, weight, bias, x, x._version, edge))
        return output


class LazyParameter(Tensor):
    """Stands for a parameter while the engine runs a cell.

    Attributes:
        aliases: all that stand for parameters.
        number: the parameter's among them.
    """

    aliases: Aliases
    number: int

    @staticmethod
    def wrap(parameter: Tensor) -> LazyParameter:
        """What can stand for a parameter; its own values are never read.

        A use that is not seen here, as in an autograd Function of the cell's own, leaves it in the
        graph, where `refuse_captured` finds it.
        """
        handle: LazyParameter = Tensor._make_subclass(
            LazyParameter, parameter.detach(), parameter.requires_grad
        )
        return handle

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            if func is F.linear:
                return _linear(*args, **(kwargs or {}))
            if func is F.embedding:
                return _embedding(*args, **(kwargs or {}))
            if func in MATRIX_PRODUCTS and not kwargs:
                return _product(func, *args)
            return _other(func, args, kwargs or {})


def cut(tensor: Tensor) -> Tensor:
    """The tensor as the beginning of an autograd graph of its own."""
    return tensor.detach().requires_grad_(tensor.requires_grad)


def _leaves(parameters: Sequence[Tensor], values: Sequence[Tensor] | None) -> list[Tensor]:
    values = parameters if values is None else values
    return [
        value.detach().requires_grad_(parameter.requires_grad)
        for value, parameter in zip(values, parameters, strict=True)
    ]


def _linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    lazy = weight if isinstance(weight, LazyParameter) else bias
    if not isinstance(lazy, LazyParameter):  # the input is a parameter, not the weight
        return F.linear(_plain(input), weight, bias)
    x = _plain(input)
    weight, weight_number = _deferred(weight)
    bias, bias_number = (None, None) if bias is None else _deferred(bias)
    all_deferred = weight_number is not None and (bias is None or bias_number is not None)
    output = linear(x, weight, bias, only_x=all_deferred)
    return lazy.aliases.note(Kind.LINEAR, weight_number, bias_number, x, output)


def _product(func: Callable[..., Any], *args: Any) -> Tensor:
    x, weight = args
    if not isinstance(weight, LazyParameter) or weight.dim() != 2 or x.dim() < 2:
        output: Tensor = func(*_plain(args))
        return output
    x = _plain(x)
    output = func(x, weight.aliases.deferred[weight.number])
    return weight.aliases.note(Kind.PRODUCT, weight.number, None, x, output)


def _embedding(input: Tensor, weight: LazyParameter, *args: Any, **kwargs: Any) -> Tensor:
    if any(value not in (None, False, 2.0) for value in (*args, *kwargs.values())):
        # A padding row, a norm limit or sparse gradients are rare in a cell: left to autograd.
        return F.embedding(input, _plain(weight), *args, **kwargs)
    output = F.embedding(input, weight.aliases.deferred[weight.number])
    return weight.aliases.note(Kind.EMBEDDING, weight.number, None, input, output)


def _deferred(value: Tensor) -> tuple[Tensor, int | None]:
    """The tensor whose gradient nobody asks for, and its number, if the value has one."""
    if isinstance(value, LazyParameter):
        return value.aliases.deferred[value.number], value.number
    return value, None


def _other(func: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
    """Any other function; what it gives of tensors is differentiated per group."""
    if func in _FACTS:
        return func(*_map_lazy(args, lambda lazy: lazy.aliases.plain[lazy.number]))
    return func(*_plain(args), **{name: _plain(value) for name, value in kwargs.items()})


def _plain(value: Any) -> Any:
    """The value with plain leaves in the place of lazy parameters."""

    def leaf(lazy: LazyParameter) -> Tensor:
        lazy.aliases.plain_used[lazy.number] = None
        return lazy.aliases.plain[lazy.number]

    return _map_lazy(value, leaf)


def _map_lazy(value: Any, function: Callable[[LazyParameter], Tensor]) -> Any:
    if isinstance(value, LazyParameter):
        return function(value)
    if isinstance(value, (list, tuple)):
        return type(value)(_map_lazy(item, function) for item in value)
    return value
