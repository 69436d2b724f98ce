"""Stamp: the state of a cell that its programs depend on, compared before each run.

`forward` of a cell is a pure function, as under `jax.jit`: of its arguments, its parameters and
buffers, and the plain attributes of the cell and its modules, the mode among them. A stamp sees
when one of these changes, and `forward` of a class. Globals, variables of closures and other
attributes of classes are constants of a program; `Network.recompile` makes programs anew.
"""

from __future__ import annotations

import dataclasses
import functools
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import suppress
from enum import Enum
from operator import attrgetter, is_, itemgetter
from types import BuiltinFunctionType, FunctionType, MethodType, SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from graphfold._torch import HOOKS, has_global_hooks

#: Attributes that every module or cell has; of these only the mode is looked at.
_COMMON = frozenset({*vars(nn.Module()), "_types"})
_KIND = attrgetter("shape", "dtype", "device", "requires_grad")
#: Values that cannot change, and that their text tells apart (0.0 from -0.0, too).
_PLAIN = frozenset(
    {bool, int, float, complex, str, bytes, range, type(None), type(...)}
    | {torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size}
)
_SEQUENCES = (list, tuple, set, frozenset, deque)
#: A container with more items, or an array of more bytes, counts as one object.
MAX_ITEMS, MAX_BYTES = 1000, 4096


class Stamp:
    """The state that the programs of a cell depend on, apart from the numbers in tensors.

    Of registered tensors that is the kind, not the identity. Of attributes it is the value of plain
    ones: numbers, text, dtypes, small arrays; lists, tuples, sets, dictionaries, dataclasses and
    namespaces of such. All other objects count by identity.

    Args:
        cell: the cell.
    """

    def __init__(self, cell: nn.Module) -> None:
        self.cell = cell
        self._modules: list[nn.Module] = []
        self._mappings: list[dict[Any, Any]] = []  # in attributes, at any depth
        self._sequences: list[Any] = []
        self._arrays: list[np.ndarray[Any, Any]] = []
        self._tensors: list[Tensor] = []  # that no module has registered
        self._has_script = False
        self._visit(cell, set())
        own = [vars(module) for module in self._modules]
        # The mode twice: of a single name, `itemgetter` gives no tuple.
        self._own = [(o, itemgetter("training", "training", *_names_of(o))) for o in own]
        self._hooks = [o[name] for o in own for name in HOOKS]
        # A class may get another `forward`; one that is no function is made anew by each look.
        kinds: list[Any] = list(dict.fromkeys(map(type, self._modules)))
        self._classes = [kind for kind in kinds if isinstance(_forward_of(kind), FunctionType)]
        self._parts = self._read_parts()
        try:
            self._facts: tuple[object, ...] | None = self._read_facts()
        except RuntimeError:  # parameters of a lazy module have no shape before its first call
            self._facts = None

    def is_unchanged(self) -> bool:
        """True if all of it is as it was; takes some microseconds."""
        try:
            before, now = self._parts, self._read_parts()
            is_same = len(now) == len(before) and all(map(is_, now, before))
            if not is_same and list(map(_plainly, now)) != list(map(_plainly, before)):
                return False
            return self._read_facts() == self._facts
        except (KeyError, RuntimeError):  # something is gone, or changes at this moment
            return False

    def refusal(self) -> str | None:
        """The reason why the cell cannot be traced, if its modules show it."""
        if has_global_hooks():
            return "there are hooks for all modules"
        if self._has_script:
            return "it has code in TorchScript, which may depend on how many nodes there are"
        hooked = (m for m in self._modules if any(vars(m)[name] for name in HOOKS))
        return next((f"{type(module).__name__} has hooks" for module in hooked), None)

    def form(self) -> Hashable | None:
        """The stamp as a hashable value: cells of one form have one program.

        None for a cell that cannot be traced, or with objects that count by identity, such as
        unregistered tensors.
        """
        if self.refusal() is not None:
            return None
        numbers = {id(module): number for number, module in enumerate(self._modules)}
        describe = functools.partial(_describe, leaf=functools.partial(_shared_leaf, numbers))
        try:
            return (
                tuple(self._form_of(module, numbers, describe) for module in self._modules),
                self._kinds(),
                torch.get_default_dtype(),
            )
        except _Unshared:
            return None

    def keep(self) -> Callable[[], None]:
        """A function that puts back what a run of the cell changes in attributes and containers.

        It holds all that is there now, so it is for a short time.
        """
        own = [own for own, _ in self._own]
        inner = [o[kind] for o in own for kind in ("_parameters", "_buffers", "_modules")]
        saved = [(values, dict(values)) for values in (*own, *inner, *self._mappings)]
        saved_items = [(items, list(items)) for items in self._sequences]

        def restore() -> None:
            for values, before in saved:
                _restore(values, before)
            for items, before_items in saved_items:
                if list(map(id, items)) != list(map(id, before_items)):
                    items.clear()
                    (items.update if isinstance(items, set) else items.extend)(before_items)

        return restore

    def _visit(self, value: Any, seen: set[int]) -> None:
        """Notes an object, if it can change within, and all that is in it.

        Args:
            value: the object.
            seen: the identities of those that have been visited.
        """
        if type(value) in _PLAIN or id(value) in seen:
            return
        seen.add(id(value))
        items = _items_of(value)
        if _is_script(value) or (isinstance(value, FunctionType) and any(_scripts_of(value))):
            self._has_script = True
        elif isinstance(value, nn.Module):
            self._modules.append(value)
            self._visit(type(value).forward, seen)
            own = vars(value)
            items = [*(own[name] for name in _names_of(own)), *own["_modules"].values()]
        elif isinstance(value, Tensor):
            self._tensors.append(value)
        elif isinstance(value, np.ndarray):
            self._arrays.append(value)
        elif isinstance(value, (list, set, deque)):
            self._sequences.append(value)
        elif items is not None and not isinstance(value, (tuple, frozenset)):
            self._mappings.append(value if isinstance(value, dict) else vars(value))
        for item in items or ():
            self._visit(item, seen)

    def _read_parts(self) -> list[object]:
        """Attributes and items: compared by identity, or by value if they are plain."""
        found: list[object] = [*map(type, self._modules)]
        found += [kind.forward for kind in self._classes]
        for own, read in self._own:
            found.append(len(own))
            found += read(own)
            found += own["_modules"].values()
        for values in self._mappings:
            found += values
            found += values.values()
        for items in self._sequences:
            found += items
        return found

    def _read_facts(self) -> tuple[object, ...]:
        """Kinds of tensors and other facts, compared by value."""
        has_hooks = any(self._hooks) or has_global_hooks()
        arrays = list(map(_content_of, self._arrays))
        return self._kinds(), torch.get_default_dtype(), has_hooks, arrays

    def _kinds(self) -> Hashable:
        """The kinds of registered tensors, and which of them are one and the same."""
        tensors: list[Tensor | None] = [*self._tensors]
        for own, _ in self._own:
            tensors += own["_parameters"].values()
            tensors += own["_buffers"].values()
        known = [tensor for tensor in tensors if tensor is not None]
        ids = list(map(id, known))
        shared = tuple(map(ids.index, ids)) if len(set(ids)) < len(ids) else None
        return tuple(map(type, tensors)), tuple(map(_KIND, known)), shared

    @staticmethod
    def _form_of(
        module: nn.Module, numbers: dict[int, int], describe: Callable[[object], Hashable]
    ) -> Hashable:
        own = vars(module)
        inner = ((name, numbers.get(id(m))) for name, m in module._modules.items())
        attributes = ((name, describe(own[name])) for name in _names_of(own))
        names = (*module._parameters, None, *module._buffers)
        kind = type(module), _Itself(_forward_of(type(module)))
        return *kind, module.training, names, tuple(inner), tuple(attributes)


class _Unshared(Exception):
    """Ends the description of an object that counts by identity."""


class _Itself:
    """An object compared by identity, whatever `__eq__` its class defines."""

    def __init__(self, value: object) -> None:
        self._value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Itself) and other._value is self._value

    def __hash__(self) -> int:
        return id(self._value)


def _shared_leaf(numbers: dict[int, int], value: object) -> Hashable:
    """An object as all cells of a form have it: a module by its number, code and classes."""
    if id(value) in numbers:
        return numbers[id(value)]
    is_function = isinstance(value, FunctionType) and value.__closure__ is None
    if is_function or isinstance(value, (BuiltinFunctionType, type, Enum)):
        return _Itself(value)
    raise _Unshared


def _forward_of(kind: type) -> object:
    """The entry `forward` of a class or of the nearest of its bases."""
    return next(vars(base)["forward"] for base in kind.__mro__ if "forward" in vars(base))


def _names_of(own: dict[str, Any]) -> list[str]:
    """The attributes of a module, those aside that every module has."""
    return [name for name in own if name not in _COMMON]


def _plainly(value: object) -> Hashable:
    """A plain value by its text, any other object by its identity."""
    return (type(value), repr(value)) if type(value) in _PLAIN else _Itself(value)


def _is_script(value: object) -> bool:
    return isinstance(value, (torch.jit.ScriptModule, torch.jit.ScriptFunction))


def _scripts_of(function: FunctionType) -> Iterator[bool]:
    """True for each variable or global of a function that is code in TorchScript."""
    for cell in function.__closure__ or ():
        with suppress(ValueError):  # it has no value yet
            yield _is_script(cell.cell_contents)
    for name in function.__code__.co_names:
        yield _is_script(function.__globals__.get(name))


def _items_of(value: Any) -> Sequence[object] | None:
    """The items of a container, a dataclass or a namespace; None for any other object."""
    if isinstance(value, (*_SEQUENCES, dict)) and len(value) > MAX_ITEMS:
        return None
    if isinstance(value, dict):
        return [*value, *value.values()]
    if isinstance(value, _SEQUENCES):
        return list(value)
    if isinstance(value, type) or not hasattr(value, "__dict__"):
        return None
    if dataclasses.is_dataclass(value) or isinstance(value, SimpleNamespace):
        return [*vars(value), *vars(value).values()]
    return None


def _content_of(array: np.ndarray[Any, Any]) -> Hashable:
    """The numbers of a small array; a large one, or one of objects, counts by identity."""
    if array.nbytes > MAX_BYTES or array.dtype.hasobject:
        return _Itself(array)
    return array.dtype, array.shape, array.tobytes()


def _describe(
    value: Any, leaf: Callable[[object], Hashable], above: tuple[int, ...] = ()
) -> Hashable:
    """A value as what is in it; what else there is comes from `leaf`."""
    kind = type(value)
    if kind in _PLAIN:
        return kind, repr(value)
    if id(value) in above:  # a container that holds itself
        return above.index(id(value))
    within = functools.partial(_describe, leaf=leaf, above=(*above, id(value)))
    if kind is MethodType:
        return kind, within(value.__func__), within(value.__self__)
    if kind is functools.partial:
        return kind, within(value.func), within(value.args), within(value.keywords)
    if isinstance(value, np.ndarray) and not isinstance(content := _content_of(value), _Itself):
        return content
    items = _items_of(value)
    return leaf(value) if items is None else (kind, *map(within, items))


def _restore(values: dict[Any, Any], saved: dict[Any, Any]) -> None:
    """Gives a dictionary its items again; what is the same is left, as others may be reading."""
    for key in values.keys() - saved.keys():
        del values[key]
    for key, value in saved.items():
        if key not in values or values[key] is not value:
            values[key] = value
    if list(values) != list(saved):  # a key was gone, and is last now
        values.clear()
        values.update(saved)
