"""What the code of a cell's trace may depend on, apart from what the cell reads."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import _has_any_global_hook

#: What every module has; of these only the mode is looked at.
_COMMON = frozenset(vars(nn.Module())) - {"training"}
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_EQUAL = (bool, int, str, bytes, type(None), torch.dtype, torch.device)
#: Equal numbers may differ here: 0.0 and -0.0; nan is not even equal to itself.
_NUMBERS = (float, complex)
#: How far into an object's attributes changes are seen.
_DEPTH = 3


def cell_key(modules: Sequence[nn.Module]) -> Hashable:
    """The modules of a cell with the values of their attributes, and the kinds of its parameters.

    Of functions, and of objects without attributes, only the identity is looked at.

    Args:
        modules: see `modules_of`.

    Returns:
        Something that equals itself as long as nothing of that changes, or None if the cell has
        hooks, which only the cell itself calls.
    """
    if _has_any_global_hook():  # type: ignore[no-untyped-call]
        return None
    number = {id(module): index for index, module in enumerate(modules)}
    found = []
    for module in modules:
        own = module.__dict__
        if any(map(own.get, _HOOKS)):
            return None
        found.append(
            (
                type(module),
                tuple([(name, number.get(id(m))) for name, m in module._modules.items()]),
                tuple(map(_parameter, module._parameters.items())),
                tuple(map(_parameter, module._buffers.items())),
                tuple([(n, _value(v, _DEPTH)) for n, v in own.items() if n not in _COMMON]),
            )
        )
    return tuple(found)


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
    kind = type(value)
    if kind in _EQUAL:
        return kind, value
    if isinstance(value, _NUMBERS):
        return kind, repr(value)
    if isinstance(value, Tensor):
        return _Same(value), None if value.is_inference() else value._version
    if depth == 0 or callable(value):
        return _Same(value)
    if isinstance(value, dict):
        return dict, tuple((_value(k, 0), _value(v, depth - 1)) for k, v in value.items())
    if isinstance(value, (list, tuple, set, frozenset)):
        return type(value), tuple(_value(v, depth - 1) for v in value)
    return _Same(value), _value(getattr(value, "__dict__", {}), depth - 1)
