"""The walk over all that the code of a cell can read."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from types import FunctionType, ModuleType
from typing import Any

from torch import Tensor, nn

from graphfold._torch import HOOKS, has_global_hooks
from graphfold.batching.engine.watched import code
from graphfold.batching.engine.watched.object_kinds import (
    ARRAYS,
    is_constant_class,
    is_plain,
    is_stateless,
)
from graphfold.batching.engine.watched.parts import Hidden, Parts, bytes_of, parts_of

#: Beyond so many parts a look at all of them takes longer than what a program saves.
MAX_PARTS = 20_000


class Unwatchable(Exception):
    """A cell that depends on state whose changes cannot be seen; the message names it."""


class Walk:
    """Visits a cell, its parts, their parts and so on, each once.

    Objects are held by weak references where that can be, so that it does not keep alive what the
    cell has parted with, nor the cell itself.

    Args:
        cell: the cell.

    Attributes:
        reads: each gives an object, with what reads some parts of it.
        lengths: how many each gives.
        ids: identities of all parts, one after the other.
        plain: the plain values among them, by their place.
        held: what holds the others, by identity.
        dead: filled as soon as one of them is gone.
        hooks: what must stay empty.
        facts: the same of what is compared by value.
        modules: the modules whose parameters and buffers count, by their kinds.
        tensors: further tensors.

    Raises:
        Unwatchable: if there is something that cannot be compared.
    """

    def __init__(self, cell: nn.Module) -> None:
        self.reads: list[tuple[Callable[[], Any], Callable[[Any], Sequence[object]]]] = []
        self.lengths: list[int] = []
        self.ids: list[int] = []
        self.plain: dict[int, object] = {}
        self.held: dict[int, Callable[[], Any]] = {}
        self.dead: list[object] = []
        self.hooks: list[object] = []
        self.facts: list[tuple[Callable[[], Any], Callable[[Any], object]]] = []
        self.modules: list[Callable[[], nn.Module]] = []
        self.tensors: list[Callable[[], Tensor]] = []
        self._stack: list[tuple[object, str]] = [(cell, "self")]
        self._seen: set[int] = set()
        self._names: set[str] = set()
        self._made: set[int] = set()  # classes of which code may make objects
        self._followed: dict[int, set[str]] = {}  # entries of a class or module of Python
        self._path = ""  # where a path of a file is
        self._run()

    def _run(self) -> None:
        if has_global_hooks():
            raise Unwatchable("there are hooks for all modules")
        while self._stack or self._follow_names():
            value, path = self._stack.pop()
            try:
                self._visit(value, path)
            except Hidden as error:
                raise Unwatchable(f"it reads {path}, {error}, which cannot be watched") from None
            except (AttributeError, KeyError, RuntimeError, TypeError, ValueError) as error:
                raise Unwatchable(f"it reads {path}, which cannot be read: {error}") from None
        if self._path and code.reads_files(self._names):
            raise Unwatchable(f"it reads {self._path}: files cannot be watched")

    def _visit(self, value: Any, path: str) -> None:
        kind = type(value)
        if not self._path and code.has_path(value):
            self._path = path
        if is_plain(value):
            return
        if what := code.why_changing(value):
            raise Unwatchable(f"it reads {path}: {what} cannot be watched")
        if issubclass(kind, type):
            self._made.add(id(value))
        if id(value) in self._seen:
            return
        self._seen.add(id(value))
        if issubclass(kind, type):
            self._visit_class(value)
        elif issubclass(kind, ModuleType):
            self._hold(value)
            self._followed[id(value)] = set()
        elif kind is FunctionType:
            self._visit_function(value, path)
        elif not is_stateless(value):
            self._visit_class(kind)
            self._visit_object(value, path)

    def _visit_object(self, value: Any, path: str) -> None:
        kind, get = type(value), self._hold(value)
        if issubclass(kind, Tensor):
            self.tensors.append(get)
            if not vars(value):
                return
        if issubclass(kind, nn.Module):
            self._visit_module(value, get, path)
        if issubclass(kind, ARRAYS):
            self.facts.append((get, bytes_of(value)))
        for parts in parts_of(value):
            self._add(value, parts, path)

    def _visit_module(self, module: nn.Module, get: Callable[[], nn.Module], path: str) -> None:
        hooks = [module.__dict__.get(name) for name in HOOKS]
        if any(hooks):
            raise Unwatchable("it has hooks" if path == "self" else f"{path} has hooks")
        self.hooks += hooks
        self.modules.append(get)
        own = {**module._parameters, **module._buffers}
        # A tensor with attributes of its own is watched like an object.
        self._stack += [
            (t, f"{path}.{name}") for name, t in own.items() if t is not None and vars(t)
        ]

    def _visit_class(self, kind: type) -> None:
        """Visits a class with its bases; classes of constant modules have nothing to watch."""
        for base in (type(kind), *kind.__mro__):
            if not is_constant_class(base) and id(base) not in self._followed:
                self._followed[id(base)] = set()
                self._add(base, code.CLASS_PARTS, base.__qualname__)

    def _visit_function(self, function: FunctionType, path: str) -> None:
        if function.__closure__:
            self._add(function, code.closure_of(function), path)
        if code.is_constant_function(function):
            return
        names = code.names_of(function.__code__)
        if what := code.why_changing_names(names, function):
            raise Unwatchable(f"it calls {path}, which reads {what}: that cannot be watched")
        self._names |= names.named
        self._add(function, code.parts_of_function(function, names), path)
        for name, module in names.modules_of(function):
            if module is None:
                raise Unwatchable(f"it calls {path}, which imports {name} when it runs")
            self._stack.append((module, name))

    def _follow_names(self) -> bool:
        """Pushes those entries of classes and modules that the code found so far names."""
        for identity, followed in list(self._followed.items()):
            found = self.held[identity]()
            if isinstance(found, ModuleType):
                names = [n for n in self._names if n not in followed and code.has(found, n)]
                if names:
                    self._add(found, code.parts_of_module(found, names), found.__name__)
            else:
                wanted = code.entries_to_follow(found, self._names, identity in self._made)
                names = [name for name in wanted if name not in followed]
                path = found.__qualname__
                self._stack += [(vars(found)[name], f"{path}.{name}") for name in names]
            followed.update(names)
        return bool(self._stack)

    def _add(self, value: Any, parts: Parts, path: str) -> None:
        get, found = self._hold(value), parts.read(value)
        for place, part in enumerate(found, len(self.ids)):
            if is_plain(part):
                self.plain[place] = part
            else:
                self._hold(part)
        self.ids += map(id, found)
        if len(self.ids) > MAX_PARTS:
            raise Unwatchable(f"it reads {path}, which has too many parts to watch")
        self.reads.append((get, parts.read))
        self.lengths.append(len(found))
        followed = found[len(found) - len(parts.names) :]
        new = [(p, path + n) for p, n in zip(followed, parts.names, strict=True)]
        self._stack += reversed(new)  # the first is visited first, and named in messages

    def _hold(self, value: Any) -> Callable[[], Any]:
        """A weak reference to a value, which fills `dead` when the value is gone."""
        if id(value) not in self.held:
            try:
                self.held[id(value)] = weakref.ref(value, self.dead.append)
            except TypeError:
                self.held[id(value)] = lambda: value
        return self.held[id(value)]
