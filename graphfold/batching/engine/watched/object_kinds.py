"""Kinds of objects: which cannot change, which have no state, and which hide theirs."""

from __future__ import annotations

import array
import datetime
import fractions
import functools
import pathlib
import re
import sys
import types
import weakref
from collections.abc import Hashable

import numpy as np
import torch
from torch import Tensor

from graphfold._torch import is_operation

#: Packages that nobody changes while a program runs.
_CONSTANT = sys.stdlib_module_names | {"torch", "numpy", "graphfold", "builtins"}
#: Modules whose functions make classes for others.
_MAKERS = frozenset({"abc", "collections", "dataclasses", "enum", "functools", "types", "typing"})
#: Values that cannot change, and that their text tells apart (0.0 from -0.0, too).
_PLAIN = frozenset(
    {bool, int, float, complex, str, bytes, range, type(None), type(...), type(NotImplemented)}
    | {torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size}
    | {fractions.Fraction, datetime.datetime, datetime.date, datetime.timedelta}
)
_PLAIN_BASES = (np.generic, np.dtype, pathlib.PurePath)
#: Written in C and without state, or with none that matters to a result.
_STATELESS = (
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
    types.ClassMethodDescriptorType,
    types.CodeType,
    types.GenericAlias,
    types.UnionType,
    re.Pattern,
    torch.finfo,
    torch.iinfo,
)
#: The class of functions that remember their results.
CACHED = type(functools.lru_cache(int))
#: What Python's own, written in C, hold can be read from them all the same.
_SHOWN = (
    *(int, float, complex, str, bytes),  # those that derive from them
    functools.partial,
    types.MethodType,
    staticmethod,
    classmethod,
    property,
    slice,
    CACHED,
    weakref.ref,
)
#: Of these the bytes are looked at.
ARRAYS = (np.ndarray, bytearray, array.array)
_PROXIES = (weakref.ProxyType, weakref.CallableProxyType)
_POINTER = tuple.__itemsize__


def is_plain(value: object) -> bool:
    """True if a value cannot change; see `is_same` for two of them."""
    stack = [value]
    while stack:
        value = stack.pop()
        if type(value) is tuple:
            stack += value
        elif type(value) not in _PLAIN and not issubclass(type(value), _PLAIN_BASES):
            return False
    return True


def is_same(one: object, other: object) -> bool:
    """True if two plain values are equal in all that code can see."""
    return value_of(one) == value_of(other)


def value_of(plain: object) -> Hashable:
    """A plain value, as code sees it: tuples by their sizes, then their items."""
    found: list[Hashable] = []
    stack = [plain]
    while stack:
        value = stack.pop()
        if type(value) is tuple:
            found.append((tuple, len(value)))
            stack += value
        else:
            found.append((type(value), repr(value)))
    return tuple(found)


def is_constant(module_name: object) -> bool:
    """True if what a module defines is taken for constant."""
    return isinstance(module_name, str) and module_name.partition(".")[0] in _CONSTANT


#: `type.__flags__` of classes that are made while a program runs.
_MADE_AT_RUN_TIME = 1 << 9


def is_constant_class(kind: type) -> bool:
    """True if a constant module defines a class.

    A class that `type()` makes for somebody bears the name of the module that called it, such as
    "abc", but stands nowhere in it.
    """
    if not is_constant(kind.__module__):
        return False
    makes_classes = kind.__module__.partition(".")[0] in _MAKERS
    is_made = kind.__flags__ & _MADE_AT_RUN_TIME and "<locals>" not in kind.__qualname__
    if not (makes_classes and is_made):
        return True
    found: object = sys.modules.get(kind.__module__)
    for name in kind.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is kind


def is_stateless(value: object) -> bool:
    """True if an object has no parts worth a look."""
    kind = type(value)
    if issubclass(kind, _STATELESS) or kind.__module__ == "typing" or is_operation(kind):
        return True
    if kind is types.BuiltinFunctionType:
        return isinstance(value.__self__, (types.ModuleType, type, type(None)))  # type: ignore[attr-defined]
    is_known = is_constant_class(kind) and not issubclass(kind, _PROXIES)
    if not is_known or not has_hidden_state(kind) or shows_its_state(kind):
        return False
    # Functions written in C, such as NumPy's, and enumerations of pybind11.
    names = {name for base in kind.__mro__ for name in vars(base)}
    return not names.isdisjoint(("__call__", "__members__"))


def shows_its_state(kind: type) -> bool:
    """True if objects of a class that is written in C can be read all the same."""
    return issubclass(kind, (*_SHOWN, *ARRAYS, Tensor))


def members_of(kind: type) -> list[types.MemberDescriptorType]:
    """The slots of a class, and what classes written in C show as such."""
    return [
        entry
        for base in kind.__mro__
        for name, entry in vars(base).items()
        if type(entry) is types.MemberDescriptorType and name != "__dict__"
    ]


def has_hidden_state(kind: type) -> bool:
    """True if objects of a class are larger than their slots, dictionary and weak references."""
    slots = sum(
        type(entry) is types.MemberDescriptorType
        for base in kind.__mro__
        if "__slots__" in vars(base)
        for entry in vars(base).values()
    )
    slots += (kind.__dictoffset__ > 0) + (kind.__weakrefoffset__ > 0)
    return kind.__basicsize__ > object.__basicsize__ + _POINTER * slots


def name_of(kind: type) -> str:
    """A class as messages name it."""
    module = kind.__module__
    return kind.__name__ if module == "builtins" else f"{module}.{kind.__name__}"
