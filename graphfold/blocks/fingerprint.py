"""Fingerprints of Python values: equal ones mean that a function would be given the same.

Stored graphs are used again where the fingerprint is the same, and a wrong graph is worse than work
done twice. So everything that a value consists of goes in, code too, and what cannot be read is
an error instead of a guess.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from types import (
    BuiltinFunctionType,
    ClassMethodDescriptorType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MappingProxyType,
    MemberDescriptorType,
    MethodDescriptorType,
    MethodType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import nn

from graphfold.blocks import code_parts
from graphfold.blocks.block import Block
from graphfold.blocks.code_parts import Names, Unreadable, name_of
from graphfold.blocks.constants import FromTensor
from graphfold.blocks.errors import BlockValueError
from graphfold.blocks.function import Function
from graphfold.errors import shortened

#: What a value is, as text or bytes, and the values that it consists of.
Parts: TypeAlias = tuple[str | bytes, Sequence[Any]]

#: What graphs do not depend on: who else uses a block.
_OTHERS = "_parents"


def fingerprint(values: Sequence[Any], names: Mapping[Block, str], key: str | None = None) -> str:
    """The sha256 of some values, in hexadecimal; it takes no recursion, however deep they are.

    Args:
        values: the values; examples, blocks, anything.
        names: what the functions and constants among the blocks are called, which is all that
            matters of them: they are not called while examples are lowered.
        key: what vouches for the parts that cannot be read; None if they are errors.

    Raises:
        BlockValueError: if a part cannot be read.
    """
    return _Fingerprint(names, key).of([key, *values])


class _Fingerprint:
    def __init__(self, names: Mapping[Block, str], key: str | None) -> None:
        self._names = names
        self._key = key
        self._seen: dict[Hashable, tuple[int, Any]] = {}  # by id: number, the object, kept alive

    def of(self, value: Any) -> str:
        """The hash of a value with all its parts, each before those that come after it."""
        digest = hashlib.sha256()
        stack = [value]
        while stack:
            what, parts = self._parts(stack.pop())
            content = what.encode("utf-8", "surrogatepass") if isinstance(what, str) else what
            digest.update(b"%d %d " % (len(content), len(parts)))
            digest.update(content)
            stack.extend(reversed(parts))
        return digest.hexdigest()

    def _parts(self, value: Any) -> Parts:
        try:
            plain = _PLAIN.get(type(value))
            if plain is not None:
                return plain(value)
            if type(value) in (set, frozenset):  # whose order differs from process to process
                return f"set {sorted(map(self.of, value))}", ()
            if isinstance(value, np.generic):
                return _array(np.asarray(value))
            return self._object(value)
        except Unreadable as error:
            if self._key is not None:
                return f"vouched for {name_of(type(value))}", ()
            raise BlockValueError(
                f"it cannot be told whether {shortened(repr(value))} is the same in another run: "
                f"{error}. Give a cache_key, and another one whenever that changes; or do without "
                "cache_dir."
            ) from error

    def _object(self, value: Any) -> Parts:
        """Something that may contain itself, and counts as a number from its second time on."""
        identity = (id(value.module), value.names) if isinstance(value, Names) else id(value)
        if identity in self._seen:
            return f"number {self._seen[identity][0]}", ()
        self._seen[identity] = len(self._seen), value
        if isinstance(value, Block):
            return f"block {name_of(type(value))}", self._of_block(value)
        if isinstance(value, (nn.Module, nn.Parameter)):
            raise Unreadable("its parameters may change")
        for kinds, read in _CODE:
            if isinstance(value, kinds):
                return read(value)
        return _instance(value)

    def _of_block(self, block: Block) -> list[Any]:
        state = {name: part for name, part in vars(block).items() if name != _OTHERS}
        if isinstance(block, (Function, FromTensor)):
            if block not in self._names:
                raise Unreadable("it is no part of the model")
            state["fn" if isinstance(block, Function) else "module"] = self._names[block]
        return [type(block), state]


def _instance(value: Any) -> Parts:
    """Any object, by what `pickle` would keep of it."""
    try:
        reduced = value.__reduce_ex__(4)
    except Exception as error:
        raise Unreadable(f"{type(error).__name__}: {error}") from error
    if isinstance(reduced, str):
        return f"global {reduced}", [type(value)]
    make, arguments, *rest = reduced
    state, items, pairs = (*rest[:3], None, None, None)[:3]
    content = [make, arguments, state, list(items or ()), list(pairs or ())]
    return f"instance {name_of(type(value))}", content


def _array(value: np.ndarray) -> Parts:
    what = f"array {value.dtype.descr} {value.shape}"
    if value.dtype.hasobject:
        return what, value.ravel().tolist()
    return what.encode() + value.tobytes(), ()


def _tensor(value: torch.Tensor) -> Parts:
    if value.layout != torch.strided or value.is_quantized:
        raise Unreadable("it is no ordinary tensor")
    rows = value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy()
    return f"tensor {value.dtype} {tuple(value.shape)}".encode() + rows.tobytes(), ()


def _spelled(value: Any) -> Parts:
    return f"{type(value).__name__} {value!r}", ()


#: Values that are nothing but their content, however often they occur.
_PLAIN: Mapping[type, Callable[[Any], Parts]] = {
    **dict.fromkeys((type(None), type(...), type(NotImplemented)), _spelled),
    **dict.fromkeys((bool, complex, range, torch.dtype, torch.device), _spelled),
    int: lambda value: (f"int {value:x}", ()),
    str: lambda value: (f"str {value}", ()),
    float: lambda value: (f"float {value.hex()}", ()),
    bytes: lambda value: (b"bytes " + value, ()),
    bytearray: lambda value: (b"bytearray " + bytes(value), ()),
    list: lambda value: ("list", value),
    tuple: lambda value: ("tuple", value),
    dict: lambda value: ("dict", [part for pair in value.items() for part in pair]),
    MappingProxyType: lambda value: ("proxy", [dict(value)]),
    slice: lambda value: ("slice", [value.start, value.stop, value.step]),
    np.ndarray: _array,
    torch.Tensor: _tensor,
    re.Pattern: lambda value: ("pattern", [value.pattern, value.flags]),
}

#: Code, in the order in which it is looked for.
_CODE: Sequence[tuple[Any, Callable[[Any], Parts]]] = (
    (FunctionType, code_parts.function),
    (CodeType, code_parts.code),
    (MethodType, lambda value: ("method", [value.__func__, value.__self__])),
    (BuiltinFunctionType, code_parts.builtin),
    ((MethodDescriptorType, WrapperDescriptorType), code_parts.descriptor),
    (
        (ClassMethodDescriptorType, MemberDescriptorType, GetSetDescriptorType),
        code_parts.descriptor,
    ),
    ((staticmethod, classmethod), lambda value: (type(value).__name__, [value.__func__])),
    (property, lambda value: ("property", [value.fget, value.fset, value.fdel])),
    (functools.cached_property, lambda value: ("cached property", [value.func])),
    (code_parts.CachedFunction, lambda value: ("cached", [value.__wrapped__])),
    (type, code_parts.class_),
    (ModuleType, lambda value: code_parts.module(value, ())),
    (Names, lambda value: code_parts.module(value.module, value.names)),
)
