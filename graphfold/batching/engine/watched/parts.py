"""The parts of an object that code may read, and which objects have no parts."""

from __future__ import annotations

import functools
import types
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
from torch import nn

from graphfold.batching.engine.watched.kinds import (
    has_hidden_state,
    is_constant,
    members_of,
    name_of,
    shows_its_state,
)

#: What every module has; of these only the mode and what it registers is looked at.
_COMMON = frozenset(vars(nn.Module())) - {"training"}
#: Containers, that first which derives from another.
_MAPPINGS: tuple[Any, ...] = (OrderedDict, dict, types.MappingProxyType)
_CONTAINERS: tuple[Any, ...] = (*_MAPPINGS, list, tuple, set, frozenset, deque)
#: How many bytes of an array are kept and compared.
MAX_BYTES = 4096
#: Stands for what an object lacks: a slot or a variable without a value.
ABSENT = object()

Get = Callable[[], Any]


class Hidden(Exception):
    """An object with state that cannot be compared; the message says what it is."""


class Parts(NamedTuple):
    """Some parts of an object.

    Attributes:
        read: gives them: the same objects again, as long as nothing has changed.
        names: what messages call the last of them; only these can have parts that change.
    """

    read: Callable[[], Sequence[object]]
    names: Sequence[str]


def parts_of(value: object, get: Get) -> Iterator[Parts]:
    """The parts of an object that is not plain, stateless, a class or a module of Python.

    Args:
        value: the object.
        get: gives it, without keeping it alive if that can be.

    Raises:
        Hidden: if it has state that cannot be compared.
    """
    kind = type(value)
    if kind is functools.cached_property:  # whose lock is of no interest
        yield Parts(lambda: (get().func,), [".func"])
    elif kind is types.BuiltinFunctionType:
        yield Parts(lambda: (get().__self__,), ["'s object"])
    elif issubclass(kind, nn.Module):
        yield _module(value, get)  # type: ignore[arg-type]
        if members_of(kind):
            yield _attributes(value, get)
    else:
        yield from _contents(value, kind, get)
        if kind.__dictoffset__ or members_of(kind) or not is_constant(kind.__module__):
            yield _attributes(value, get)


def _contents(value: Any, kind: type, get: Get) -> Iterator[Parts]:
    """The items of containers and references; nothing for objects that only have attributes."""
    base = next((base for base in _CONTAINERS if issubclass(kind, base)), None)
    if base in _MAPPINGS:
        yield _mapping(value, get, base)
    elif base is not None:
        names = [f"[{number}]" for number in range(len(value))]
        yield Parts(lambda: [*base.__iter__(get())], names)
    elif issubclass(kind, weakref.ref):
        yield Parts(lambda: (weakref.ref.__call__(get()),), ["'s object"])
    elif has_hidden_state(kind) and not shows_its_state(kind):
        raise Hidden(f"a {name_of(kind)}")


def _mapping(value: Any, get: Get, base: Any) -> Parts:
    def read() -> list[object]:
        now = get()
        return [*base.__iter__(now), *base.values(now)]

    keys = [*base.__iter__(value)]
    return Parts(read, [f"'s key {k!r:.40}" for k in keys] + [f"[{k!r:.40}]" for k in keys])


def _module(module: nn.Module, get: Callable[[], nn.Module]) -> Parts:
    """The parts of a module apart from its tensors, whose names are enough here."""
    names = ["training", *(name for name in vars(module) if name not in _COMMON)]
    read_own = itemgetter(*names)  # the mode is named twice, so there are two at least
    # Even of torch's classes; what is no plain function is made anew whenever one asks for it.
    found = next(vars(base)["forward"] for base in type(module).__mro__ if "forward" in vars(base))
    forward = "forward" if type(found) is types.FunctionType else "__name__"

    def read() -> list[object]:
        now = get()
        kind, own = type(now), now.__dict__
        modules = own["_modules"]
        return [
            *(len(own), *own["_parameters"], *own["_buffers"], *modules),
            *(kind, getattr(kind, forward), *read_own(own), *modules.values()),
        ]

    own = [f".{name}" for name in (*names, *module._modules)]
    return Parts(read, ["'s class.forward", *own])


def _attributes(value: object, get: Get) -> Parts:
    """The class of an object, its slots, and its dictionary if it has one."""
    members = members_of(type(value))
    has_dict = type(value).__dictoffset__ != 0

    def read() -> list[object]:
        now = get()
        own = now.__dict__ if has_dict else {}
        slots = [_slot(member, now) for member in members]
        return [*own, type(now), *slots, *own.values()]

    own = vars(value) if has_dict else {}
    names = [*(member.__name__ for member in members), *own]
    return Parts(read, [f".{name}" for name in names])


def _slot(member: types.MemberDescriptorType, value: object) -> object:
    try:
        return member.__get__(value)
    except AttributeError:
        return ABSENT


def bytes_of(value: Any, get: Get) -> Get:
    """A reader of an array: its kind and its bytes.

    Raises:
        Hidden: if it is large, or holds Python objects.
    """
    is_array = issubclass(type(value), np.ndarray)
    if is_array and value.dtype.hasobject:
        raise Hidden("a numpy.ndarray of objects")
    size = value.nbytes if is_array else memoryview(value).nbytes
    if size > MAX_BYTES:
        raise Hidden(f"a {name_of(type(value))} of {size} bytes")
    if not is_array:
        return lambda: bytes(memoryview(get()))

    def read() -> object:
        now = get()
        return now.dtype, now.shape, now.strides, now.tobytes()

    return read
