"""Typed: something with an input type and an output type, each found out once.

Inference goes both ways: a type is unknown until something says it (the block itself, a neighbour,
a child), and from then on everything else must agree. All that follows from one call is found out
in a transaction: if a type does not fit anywhere, blocks are as they were before the call, and a
corrected line can be tried at once.
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
    """Changes that can be taken back, and blocks that still have to hear of them."""

    def __init__(self) -> None:
        self.undo: list[Callable[[], object]] = []
        self.pending: dict[tuple[Typed, Typed], None] = {}  # (parent, child), in order
        self.is_propagating = False

    def propagate(self) -> None:
        """Notifies parents until nothing new is found; what they find out joins the queue."""
        if self.is_propagating:
            return
        self.is_propagating = True
        try:
            while self.pending:
                parent, child = next(iter(self.pending))
                del self.pending[parent, child]
                parent._conclude(parent._child_found, child)
        finally:
            self.pending.clear()
            self.is_propagating = False

    def roll_back(self, size: int) -> None:
        """Takes back all changes but the first `size`, last things first."""
        while len(self.undo) > size:
            self.undo.pop()()


_CURRENT: ContextVar[_Transaction | None] = ContextVar("transaction", default=None)
_ABSENT: Any = object()


@contextmanager
def transaction() -> Iterator[None]:
    """Types that become known within it reach every block; if that fails, none has changed.

    One within another is a part of it that can fail alone.
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


def assign(known: MutableMapping[Key, Value], key: Key, value: Value) -> None:
    """Sets an item; of `vars(block)`, an attribute. A transaction that fails takes it back."""
    current = _CURRENT.get()
    if current is not None:
        old = known.get(key, _ABSENT)
        current.undo.append(lambda: known.pop(key) if old is _ABSENT else known.update({key: old}))
    known[key] = value


def append(items: list[Value], item: Value) -> None:
    """Adds an item to a list. A transaction that fails takes it back."""
    current = _CURRENT.get()
    if current is not None:
        current.undo.append(items.pop)
    items.append(item)


class Typed:
    """Base of blocks, layers and declarations.

    Args:
        input_type: what it takes, if known.
        output_type: what it gives, if known.
        name: what messages and state dicts call it.

    Raises:
        BlockTypeError: if the name is not a string.
    """

    #: The classes of types that are possible at all.
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
        """Its name; by default that of its class."""
        return self._name or type(self).__name__.strip("_")

    @property
    def input_type(self) -> ResultType | None:
        """The type of the input; None as long as that is unknown."""
        return self._types["input"]

    @property
    def output_type(self) -> ResultType | None:
        """The type of the output; None as long as that is unknown."""
        return self._types["output"]

    def set_input_type(self, input_type: TypeLike | None) -> Self:
        """Says what it takes; None says nothing.

        Raises:
            BlockTypeError: if that contradicts what is known.
        """
        self._learn("input", input_type, self._input_found)
        return self

    def set_output_type(self, output_type: TypeLike | None) -> Self:
        """Says what it gives; None says nothing.

        Raises:
            BlockTypeError: if that contradicts what is known.
        """
        self._learn("output", output_type, self._output_found)
        return self

    def set_input_type_classes(self, *classes: type[ResultType]) -> Self:
        """Says of what classes its input type may be, without saying which type it is.

        Raises:
            BlockTypeError: if that contradicts what is known.
        """
        self._narrow("input", classes)
        return self

    def set_output_type_classes(self, *classes: type[ResultType]) -> Self:
        """Says of what classes its output type may be, without saying which type it is.

        Raises:
            BlockTypeError: if that contradicts what is known.
        """
        self._narrow("output", classes)
        return self

    @transaction()
    def set_io_types(self, other: Typed) -> Self:
        """Says that both take the same and give the same; each learns what the other knows.

        Raises:
            BlockTypeError: if they contradict each other.
        """
        self.set_input_type(other.input_type)
        other.set_input_type(self.input_type)
        self.set_output_type(other.output_type)
        other.set_output_type(self.output_type)
        return self

    def check(self) -> None:
        """Looks for faults that only something finished can have.

        Raises:
            BlockTypeError: if a type is unknown.
        """
        for side, kind in self._types.items():
            if kind is None:
                raise BlockTypeError(
                    f"Cannot determine {side} type for {self.name}. Connect {self}, or call "
                    f"set_{side}_type."
                )

    def _learn(
        self, side: str, type_like: TypeLike | None, found: Callable[[ResultType], None]
    ) -> None:
        """Takes the type of a side, if that is new, and draws the conclusions."""
        if type_like is None:
            return
        new, known = canonicalize_type(type_like), self._types[side]
        if new == known:
            return
        if known is not None:
            raise BlockTypeError(
                f"Type mismatch between {side} type {new} and expected {side} type {known} in "
                f"{self}. Change one of the two, or use another block."
            )
        allowed = self._classes[side]
        if allowed is not None and not isinstance(new, allowed):
            raise BlockTypeError(_bad(side, new, self, allowed))
        with transaction():
            assign(self._types, side, new)
            self._conclude(found, new)
            self._notify_parents()

    def _narrow(self, side: str, classes: tuple[type[ResultType], ...]) -> None:
        kind, allowed = self._types[side], self._classes[side]
        if kind is not None:
            if not isinstance(kind, classes):
                raise BlockTypeError(_bad(side, kind, self, classes))
            return
        if allowed is not None:
            kept = tuple(c for c in classes if issubclass(c, allowed))
            if not kept:
                given = " or ".join(c.__name__ for c in classes)
                raise BlockTypeError(_bad(side, given, self, allowed))
            classes = kept
        assign(self._classes, side, classes)

    def _notify_parents(self) -> None:
        current = _CURRENT.get()
        assert current is not None
        current.pending.update(((parent, self), None) for parent in self._parents)

    def _conclude(self, draw: Callable[[Any], None], found: Any) -> None:
        """Draws conclusions from what was found."""
        draw(found)

    def _input_found(self, kind: ResultType) -> None:
        """Draws conclusions from the input type."""

    def _output_found(self, kind: ResultType) -> None:
        """Draws conclusions from the output type."""

    def _child_found(self, child: Any) -> None:
        """Draws conclusions from the types of a child."""


def _bad(side: str, shown: object, whose: object, allowed: tuple[type[ResultType], ...]) -> str:
    wanted = " or ".join(kind.__name__ for kind in allowed)
    hint = " (a tuple of Python objects is one PyObject)" if "PyObject" in str(shown) else ""
    return f"bad {side} type {shown} for {whose}, expected {wanted}{hint}. Check its connections."
