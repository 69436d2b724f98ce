"""Snapshot: what the code of a cell can change, so that a trace or a trial leaves no trace."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, MutableMapping
from types import CellType, FunctionType
from typing import Any

from torch import nn

from graphfold.batching.engine.watched.code import names_of
from graphfold.batching.engine.watched.object_kinds import CACHED, is_constant_class, members_of
from graphfold.batching.engine.watched.parts import ABSENT


class Snapshot:
    """A copy of containers' items, objects' attributes and functions' variables.

    It holds all of them, so it is made for a short time only. Numbers in tensors and arrays are
    not part of it.

    Args:
        values: what to look at.
    """

    def __init__(self, values: Iterable[object]) -> None:
        self._restore: list[Callable[[], None]] = []
        for value in values:
            self._add(value)

    def restore(self) -> None:
        """Puts everything back, and empties caches that have got new entries."""
        for restore in self._restore:
            restore()

    def _add(self, value: Any) -> None:
        kind = type(value)
        if issubclass(kind, type):
            if not is_constant_class(value):
                self._add_class(value)
            return
        if kind is FunctionType:
            self._add_function(value)
        elif kind is CACHED:
            self._add_cache(value)
        elif issubclass(kind, dict):
            self._add_mapping(value)
        elif issubclass(kind, (list, deque, set)):
            self._add_items(value)
        if is_constant_class(kind) and not issubclass(kind, nn.Module):
            return
        if kind.__dictoffset__:
            self._add_mapping(value.__dict__)
        if issubclass(kind, nn.Module):
            for own in (value._parameters, value._buffers, value._modules):
                self._add_mapping(own)
        for member in members_of(kind):
            self._add_slot(member, value)

    def _add_mapping(self, values: MutableMapping[Any, Any]) -> None:
        saved = dict(values)

        def restore() -> None:
            # Only what differs: another thread may be reading the rest.
            for key in values.keys() - saved.keys():
                del values[key]
            for key, value in saved.items():
                if values.get(key, ABSENT) is not value:
                    values[key] = value
            if list(values) != list(saved):  # a key was gone, and is last now
                values.clear()
                values.update(saved)

        self._restore.append(restore)

    def _add_items(self, values: Any) -> None:
        saved = list(values)

        def restore() -> None:
            if list(map(id, values)) != list(map(id, saved)):
                values.clear()
                (values.update if isinstance(values, set) else values.extend)(saved)

        self._restore.append(restore)

    def _add_function(self, function: FunctionType) -> None:
        names = names_of(function.__code__)
        known = function.__globals__
        saved = {name: known.get(name, ABSENT) for name in names.loaded | names.stored}

        def restore() -> None:
            for name, value in saved.items():
                if value is ABSENT:
                    known.pop(name, None)
                else:
                    known[name] = value

        self._restore.append(restore)
        for cell in function.__closure__ or ():
            self._add_variable(cell)
        self._add_mapping(function.__dict__)

    def _add_variable(self, cell: CellType) -> None:
        try:
            saved = cell.cell_contents
        except ValueError:  # it has no value yet
            return
        self._restore.append(lambda: setattr(cell, "cell_contents", saved))

    def _add_class(self, kind: type) -> None:
        saved = dict(vars(kind))

        def restore() -> None:
            for name in vars(kind).keys() - saved.keys():
                type.__delattr__(kind, name)
            for name, value in saved.items():
                if vars(kind).get(name, ABSENT) is not value:
                    type.__setattr__(kind, name, value)

        self._restore.append(restore)

    def _add_slot(self, member: Any, value: object) -> None:
        try:
            saved = member.__get__(value)
        except AttributeError:
            return

        def restore() -> None:
            if member.__get__(value) is not saved:
                member.__set__(value, saved)

        self._restore.append(restore)

    def _add_cache(self, cached: Any) -> None:
        misses = cached.cache_info().misses
        self._restore.append(
            lambda: None if cached.cache_info().misses == misses else cached.cache_clear()
        )
