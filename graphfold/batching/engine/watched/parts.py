"""The parts of an object that code may read, and which objects have no parts."""

from __future__ import annotations

import functools
import logging
import types
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
from torch import nn

from graphfold.batching.engine.watched.object_kinds import (
    has_hidden_state,
    is_constant_class,
    members_of,
    name_of,
    shows_its_state,
)

#: What every module has, or every cell; of these only the mode and what it registers is looked at.
_COMMON = frozenset({*vars(nn.Module()), "_programs"}) - {"training"}
#: Containers, that first which derives from another.
_MAPPINGS: tuple[Any, ...] = (OrderedDict, dict, types.MappingProxyType)
_CONTAINERS: tuple[Any, ...] = (*_MAPPINGS, list, tuple, set, frozenset, deque)
#: How many bytes of an array are kept and compared.
MAX_BYTES = 4096
#: Stands for what an object lacks: a slot or a variable without a value.
ABSENT = object()


class Hidden(Exception):
    """An object with state that cannot be compared; the message names its kind."""


class Parts(NamedTuple):
    """Some parts of an object.

    Attributes:
        read: from the object; gives the same objects again, as long as nothing has changed.
        names: what messages call the last of them; only these can have parts that change.
    """

    read: Callable[[Any], Sequence[object]]
    names: Sequence[str]


def parts_of(value: object) -> Iterator[Parts]:
    """The parts of an object that is not plain, stateless, a class or a module of Python.

    Raises:
        Hidden: if it has state that cannot be compared.
    """
    kind = type(value)
    if kind is functools.cached_property:  # whose lock is of no interest
        yield Parts(lambda now: (now.func,), [".func"])
    elif kind is types.BuiltinFunctionType:
        yield Parts(lambda now: (now.__self__,), ["'s object"])
    elif issubclass(kind, logging.Logger):  # of which code may ask how much it tells
        yield Parts(lambda now: (now.getEffectiveLevel(), now.disabled, now.manager.disable), [])
    elif issubclass(kind, logging.LoggerAdapter):
        yield Parts(lambda now: (now.logger, now.extra), [".logger", ".extra"])
    elif issubclass(kind, nn.Module):
        yield _module(value)  # type: ignore[arg-type]
        if members_of(kind):
            yield _attributes(value)
    else:
        yield from _contents(value, kind)
        if kind.__dictoffset__ or members_of(kind) or not is_constant_class(kind):
            yield _attributes(value)


def _contents(value: Any, kind: type) -> Iterator[Parts]:
    """The items of containers and references; nothing for objects that only have attributes."""
    base: Any = next((base for base in _CONTAINERS if issubclass(kind, base)), None)
    if base in _MAPPINGS:
        keys = [*base.__iter__(value)]
        names = [f"'s key {k!r:.40}" for k in keys] + [f"[{k!r:.40}]" for k in keys]
        yield Parts(lambda now: [*base.__iter__(now), *base.values(now)], names)
    elif base is not None:
        names = [f"[{number}]" for number in range(len(value))]
        yield Parts(lambda now: [*base.__iter__(now)], names)
    elif issubclass(kind, weakref.ref):
        yield Parts(lambda now: (weakref.ref.__call__(now),), ["'s object"])
    elif has_hidden_state(kind) and not shows_its_state(kind):
        raise Hidden(f"a {name_of(kind)}")


def _module(module: nn.Module) -> Parts:
    """The parts of a module but its tensors, which count by name."""
    names = ["training", *(name for name in vars(module) if name not in _COMMON)]
    read_own = itemgetter(*names)  # the mode is named twice, so there are two at least
    # Even of torch's classes; what is no plain function is made anew whenever one asks for it.
    found = next(vars(base)["forward"] for base in type(module).__mro__ if "forward" in vars(base))
    forward = "forward" if type(found) is types.FunctionType else "__name__"

    def read(now: nn.Module) -> list[object]:
        kind, own = type(now), now.__dict__
        modules = own["_modules"]
        return [
            *(len(own), *own["_parameters"], *own["_buffers"], *modules),
            *(kind, getattr(kind, forward), *read_own(own), *modules.values()),
        ]

    own = [f".{name}" for name in (*names, *module._modules)]
    return Parts(read, ["'s class.forward", *own])


def _attributes(value: object) -> Parts:
    """The class of an object, its slots, and its dictionary if it has one."""
    members = members_of(type(value))
    has_dict = type(value).__dictoffset__ != 0

    def read(now: Any) -> list[object]:
        own = now.__dict__ if has_dict else {}
        return [*own, type(now), *(_slot(member, now) for member in members), *own.values()]

    own = vars(value) if has_dict else {}
    names = [*(member.__name__ for member in members), *own]
    return Parts(read, [f".{name}" for name in names])


def _slot(member: types.MemberDescriptorType, value: object) -> object:
    try:
        return member.__get__(value)
    except AttributeError:
        return ABSENT


def bytes_of(value: Any) -> Callable[[Any], object]:
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
        return lambda now: bytes(memoryview(now))
    return lambda now: (now.dtype, now.shape, now.strides, now.tobytes())
