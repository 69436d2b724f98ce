"""Watch: whether anything has changed that the code of a cell depends on."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from itertools import chain
from logging import Logger
from operator import attrgetter
from types import FunctionType, MethodType, ModuleType

import torch
from torch import Tensor, nn

from graphfold._torch import has_global_hooks
from graphfold.batching.engine.watched.object_kinds import (
    ARRAYS,
    CACHED,
    has_hidden_state,
    is_plain,
    is_same,
    value_of,
)
from graphfold.batching.engine.watched.snapshot import Snapshot
from graphfold.batching.engine.watched.walk import Unwatchable, Walk

__all__ = ["Unwatchable", "Watch"]

_KIND = attrgetter("shape", "dtype", "device", "requires_grad")


class Watch:
    """All that the code of a cell may depend on, apart from the numbers in tensors.

    That is what its functions, and the functions that they call, can reach: attributes of modules
    and objects at any depth, items of containers, variables of closures, globals, defaults,
    classes. Of tensors it is the kind; of registered ones not even the identity.

    Constant by convention are the code and the classes of torch, NumPy, Python's library and
    graphfold, apart from the `forward` of a class of modules.

    Args:
        cell: the cell, which is not kept alive.

    Raises:
        Unwatchable: if the code reads something that cannot be compared, such as a lock, a file, a
            large array of NumPy, environment variables or the clock, or if there are hooks.
    """

    def __init__(self, cell: nn.Module) -> None:
        walk = Walk(cell)
        self._reads, self._lengths, self._ids = walk.reads, walk.lengths, walk.ids
        self._plain = walk.plain
        self._held = list(walk.held.values())  # so that `dead` hears of them
        self._dead = walk.dead
        self._hooks = walk.hooks
        tensors = _Tensors(walk.modules, walk.tensors)
        self._facts, self._tensors = walk.facts, tensors
        try:
            self._found = self._compared()
        except RuntimeError as error:  # such as a lazy module's parameters before its first call
            raise Unwatchable(f"it has tensors of no kind: {error}") from None

    def is_unchanged(self) -> bool:
        """True if all of it is as it was; takes some microseconds."""
        if self._dead or any(self._hooks) or has_global_hooks():
            return False
        try:
            parts = [read(get()) for get, read in self._reads]
            is_equal = list(map(len, parts)) == self._lengths and self._are_same(parts)
            return is_equal and self._compared() == self._found
        except (AttributeError, KeyError, RuntimeError, TypeError, ValueError):
            return False  # something is gone, or changes at this moment

    def form(self) -> Hashable | None:
        """The watched state as a hashable value: cells of one form have one program.

        Objects that have been looked into are numbers, in the order in which the walk comes to
        them; what lies in modules and classes is itself. None for a cell with more than that: with
        tensors that it has not registered, or objects that do not show all they are.
        """
        objects = [get() for get, _ in (*self._reads, *self._facts)]
        natures = [_nature(value) for value in objects]
        if self._tensors.has_others or None in natures:
            return None
        numbers: dict[int, int] = {}
        for number, value in enumerate(objects):
            numbers.setdefault(id(value), number)

        def form_of(part: object) -> Hashable:
            return value_of(part) if is_plain(part) else numbers.get(id(part), _Itself(part))

        parts = (read(get()) for get, read in self._reads)
        return (
            tuple(map(_Itself, natures)),
            tuple(tuple(map(form_of, own)) for own in parts),
            tuple(self._found),
        )

    def snapshot(self) -> Snapshot:
        """All of it that code can change, for a short time."""
        return Snapshot(value for value in (get() for get in self._held) if value is not None)

    def _compared(self) -> list[object]:
        """All that is compared by value."""
        facts = [read(get()) for get, read in self._facts]
        return [self._tensors(), torch.get_default_dtype(), *facts]

    def _are_same(self, parts: Sequence[Sequence[object]]) -> bool:
        ids = list(map(id, chain.from_iterable(parts)))
        if ids == self._ids:
            return True
        now = list(chain.from_iterable(parts))
        return all(
            place in self._plain and is_same(now[place], self._plain[place])
            for place, (one, other) in enumerate(zip(ids, self._ids, strict=True))
            if one != other
        )


class _Itself:
    """An object compared by identity, whatever `__eq__` its class defines."""

    def __init__(self, value: object) -> None:
        self._value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Itself) and other._value is self._value

    def __hash__(self) -> int:
        return id(self._value)


#: Of these, as of objects that keep all they have in attributes, the parts are all there is.
_ALL_IN_PARTS: tuple[type, ...] = (
    *(nn.Module, dict, list, tuple, set, frozenset, weakref.ref, *ARRAYS),
    *(MethodType, partial, property, staticmethod, classmethod, CACHED),
)
#: These are the same for all cells.
_COMMON = (type, ModuleType, Logger)


def _nature(value: object) -> object | None:
    """The rest that objects of one form have in common; None if parts and this are too little."""
    if isinstance(value, FunctionType):
        return value.__code__
    kind = type(value)
    if issubclass(kind, _COMMON):
        return value
    return kind if issubclass(kind, _ALL_IN_PARTS) or not has_hidden_state(kind) else None


class _Tensors:
    """Reads the kinds of tensors, and which of them are one and the same.

    Args:
        modules: give modules, whose parameters and buffers it reads.
        others: give further tensors.
    """

    def __init__(
        self, modules: Sequence[Callable[[], nn.Module]], others: Sequence[Callable[[], Tensor]]
    ) -> None:
        # Without tensors at first, it cannot get some unseen: their names are parts.
        self._modules = [get for get in modules if get()._parameters or get()._buffers]
        self._others = others

    @property
    def has_others(self) -> bool:
        """True if it reads tensors that no module holds."""
        return bool(self._others)

    def __call__(self) -> tuple[object, ...]:
        tensors: list[Tensor | None] = [get() for get in self._others]
        for get in self._modules:
            own = get().__dict__
            tensors += own["_parameters"].values()
            tensors += own["_buffers"].values()
        known = [tensor for tensor in tensors if tensor is not None]
        ids = list(map(id, known))
        shared = tuple(map(ids.index, ids)) if len(set(ids)) < len(ids) else None
        return tuple(map(type, tensors)), tuple(map(_KIND, known)), shared
