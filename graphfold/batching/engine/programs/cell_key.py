"""What the code of a cell's trace may depend on, apart from what the cell reads."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import _has_any_global_hook

from graphfold.batching.cell import Cell

#: What every module has; of these only the mode is looked at.
_COMMON = frozenset(vars(nn.Module())) - {"training"}
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device)
#: How far into an object's attributes changes are seen.
_DEPTH = 3


def cell_key(cell: Cell) -> Hashable:
    """The modules of a cell with the values of their attributes, and the kinds of its parameters.

    Of functions, and of objects without attributes, only the identity is looked at.

    Returns:
        Something that equals itself as long as nothing of that changes, or None if the cell has
        hooks, which only the cell itself calls.
    """
    modules = list(cell.named_modules())
    if _has_any_global_hook() or any(  # type: ignore[no-untyped-call]
        getattr(m, hook) for _, m in modules for hook in _HOOKS
    ):
        return None
    return tuple(
        (
            prefix,
            type(module),
            tuple(map(_parameter, module._parameters.items())),
            tuple(map(_parameter, module._buffers.items())),
            tuple((n, _value(v, _DEPTH)) for n, v in vars(module).items() if n not in _COMMON),
        )
        for prefix, module in modules
    )


class _Same:
    """An object by its identity, and kept alive so that no other can have it."""

    __slots__ = ("held",)

    def __init__(self, held: object) -> None:
        self.held = held

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.held is other.held

    def __hash__(self) -> int:
        return id(self.held)


def _parameter(item: tuple[str, Tensor | None]) -> Hashable:
    name, value = item
    if value is None:
        return name
    return name, value.shape, value.dtype, value.device, value.requires_grad


def _value(value: Any, depth: int) -> Hashable:
    if isinstance(value, _PLAIN):
        return type(value), repr(value)
    if isinstance(value, Tensor):
        return _Same(value), None if value.is_inference() else value._version
    if depth == 0 or callable(value):
        return _Same(value)
    if isinstance(value, dict):
        return dict, tuple((_value(k, 0), _value(v, depth - 1)) for k, v in value.items())
    if isinstance(value, (list, tuple, set, frozenset)):
        return type(value), tuple(_value(v, depth - 1) for v in value)
    return _Same(value), _value(getattr(value, "__dict__", {}), depth - 1)
