"""Typed: an object with an input type and an output type, each inferred once.

Inference goes both ways: a type is unknown until the block itself, a neighbour or a child sets it,
and from then on everything else must agree. The consequences of one call are a transaction: if a
type does not fit anywhere, blocks are as they were before the call, and a corrected line can be
tried at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, TypeVar

from graphfold.blocks.block_errors import BlockTypeError
from graphfold.blocks.inference.types import ResultType, TypeLike, canonicalize_type

if TYPE_CHECKING:
    from typing_extensions import Self  # of Python 3.11; torch brings it along

Key = TypeVar("Key")
Value = TypeVar("Value")

#: Classes of types, or None for any.
Classes: TypeAlias = tuple[type[ResultType], ...] | None


class _Transaction:
    """Changes that can be undone, and a queue of parents to be notified of them."""

    def __init__(self) -> None:
        self.undo: list[Callable[[], object]] = []
        self.pending: dict[tuple[Typed, Typed], None] = {}  # (parent, child), in order
        self.is_propagating = False

    def propagate(self) -> None:
        """Notifies parents until nothing new follows; types that they infer join the queue."""
        if self.is_propagating:
            return
        self.is_propagating = True
        try:
            while self.pending:
                parent, child = next(iter(self.pending))
                del self.pending[parent, child]
                parent._apply_rule(parent._infer_from_child, child)
        finally:
            self.pending.clear()
            self.is_propagating = False

    def roll_back(self, size: int) -> None:
        """Undoes all changes but the first `size`, the last one first."""
        while len(self.undo) > size:
            self.undo.pop()()


_CURRENT: ContextVar[_Transaction | None] = ContextVar("transaction", default=None)
_ABSENT: Any = object()


@contextmanager
def transaction() -> Iterator[None]:
    """Propagates the types that are set within it to every block; undoes them all at an error.

    A transaction within another is a part of it that can fail alone.
    """
    current = _CURRENT.get()
    if current is None:
        token = _CURRENT.set(_Transaction())
        try:
            with transaction():
                yield
        finally:
            _CURRENT.reset(token)
        return
    size = len(current.undo)
    try:
        yield
        current.propagate()
    except BaseException:
        current.roll_back(size)
        raise


def assign(items: MutableMapping[Key, Value], key: Key, value: Value) -> None:
    """Sets an item; of `vars(block)`, an attribute. A transaction that fails undoes it."""
    current = _CURRENT.get()
    if current is not None:
        old = items.get(key, _ABSENT)
        current.undo.append(lambda: items.pop(key) if old is _ABSENT else items.update({key: old}))
    items[key] = value


def append(items: list[Value], item: Value) -> None:
    """Adds an item to a list. A transaction that fails undoes it."""
    current = _CURRENT.get()
    if current is not None:
        current.undo.append(items.pop)
    items.append(item)


class Typed:
    """Base of blocks, layers and declarations.

    Args:
        input_type: the type of its input, if it is known.
        output_type: the type of its output, if it is known.
        name: its name in messages and state dicts.

    Raises:
        BlockTypeError: if the name is not a string.
    """

    #: The possible classes of types; None for all.
    expected_input: ClassVar[Classes] = None
    expected_output: ClassVar[Classes] = None

    def __init__(
        self,
        input_type: TypeLike | None = None,
        output_type: TypeLike | None = None,
        name: str | None = None,
    ) -> None:
        if name is not None and not isinstance(name, str):
            raise BlockTypeError(f"name must be a string, but it is {name!r}. Give a string.")
        self._name = name
        self._parents: list[Any] = []  # whose types depend on this one's
        self._types: dict[str, ResultType | None] = {"input": None, "output": None}
        self._classes = {"input": self.expected_input, "output": self.expected_output}
        self.set_input_type(input_type)
        self.set_output_type(output_type)

    @property
    def name(self) -> str:
        """The name; by default that of the class."""
        return self._name or type(self).__name__.strip("_")

    @property
    def input_type(self) -> ResultType | None:
        """The type of the input; None while it is unknown."""
        return self._types["input"]

    @property
    def output_type(self) -> ResultType | None:
        """The type of the output; None while it is unknown."""
        return self._types["output"]

    def set_input_type(self, input_type: TypeLike | None) -> Self:
        """Sets the type of the input; None changes nothing.

        Raises:
            BlockTypeError: if it contradicts a type that is set already.
        """
        self._set("input", input_type, self._infer_from_input)
        return self

    def set_output_type(self, output_type: TypeLike | None) -> Self:
        """Sets the type of the output; None changes nothing.

        Raises:
            BlockTypeError: if it contradicts a type that is set already.
        """
        self._set("output", output_type, self._infer_from_output)
        return self

    def set_input_type_classes(self, *classes: type[ResultType]) -> Self:
        """Limits the input type to some classes of types.

        Raises:
            BlockTypeError: if they contradict the type, or an earlier limit.
        """
        self._narrow("input", classes)
        return self

    def set_output_type_classes(self, *classes: type[ResultType]) -> Self:
        """Limits the output type to some classes of types.

        Raises:
            BlockTypeError: if they contradict the type, or an earlier limit.
        """
        self._narrow("output", classes)
        return self

    @transaction()
    def set_io_types(self, other: Typed) -> Self:
        """Gives both objects the same types, from whichever of them has one.

        Raises:
            BlockTypeError: if they contradict each other.
        """
        self.set_input_type(other.input_type)
        other.set_input_type(self.input_type)
        self.set_output_type(other.output_type)
        other.set_output_type(self.output_type)
        return self

    def check(self) -> None:
        """Checks the finished object.

        Raises:
            BlockTypeError: if a type is unknown.
        """
        for side, kind in self._types.items():
            if kind is None:
                raise BlockTypeError(
                    f"Cannot determine {side} type for {self.name}. Connect {self}, or call "
                    f"set_{side}_type."
                )

    def _set(
        self, side: str, type_like: TypeLike | None, rule: Callable[[ResultType], None]
    ) -> None:
        """Sets the type of a side, if that is new, and infers others from it."""
        if type_like is None:
            return
        new, old = canonicalize_type(type_like), self._types[side]
        if new == old:
            return
        if old is not None:
            raise BlockTypeError(
                f"Type mismatch between {side} type {new} and expected {side} type {old} in "
                f"{self}. Change one of the two, or use another block."
            )
        allowed = self._classes[side]
        if allowed is not None and not isinstance(new, allowed):
            raise BlockTypeError(_bad(side, new, self, allowed))
        with transaction():
            assign(self._types, side, new)
            self._apply_rule(rule, new)
            current = _CURRENT.get()
            assert current is not None
            current.pending.update(((parent, self), None) for parent in self._parents)

    def _narrow(self, side: str, classes: tuple[type[ResultType], ...]) -> None:
        kind, allowed = self._types[side], self._classes[side]
        if kind is not None:
            if not isinstance(kind, classes):
                raise BlockTypeError(_bad(side, kind, self, classes))
            return
        if allowed is not None:
            both = tuple(c for c in classes if issubclass(c, allowed))
            if not both:
                names = " or ".join(c.__name__ for c in classes)
                raise BlockTypeError(_bad(side, names, self, allowed))
            classes = both
        assign(self._classes, side, classes)

    def _apply_rule(self, rule: Callable[[Any], None], fact: Any) -> None:
        """Applies one of the rules below to a new type, or to a child that has one."""
        rule(fact)

    def _infer_from_input(self, kind: ResultType) -> None:
        """Sets the types that follow from the input type."""

    def _infer_from_output(self, kind: ResultType) -> None:
        """Sets the types that follow from the output type."""

    def _infer_from_child(self, child: Any) -> None:
        """Sets the types that follow from the types of a child."""


def _bad(side: str, kind: object, owner: object, allowed: tuple[type[ResultType], ...]) -> str:
    wanted = " or ".join(cls.__name__ for cls in allowed)
    hint = " (a tuple of Python objects is one PyObject)" if "PyObject" in str(kind) else ""
    return f"bad {side} type {kind} for {owner}, expected {wanted}{hint}. Check its connections."
