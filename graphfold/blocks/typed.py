"""Typed: something with an input type and an output type, each found out once.

Inference goes both ways: a type is unknown until something says it (the block itself, a neighbour,
a child), and from then on everything else must agree. What has been found is taken back only with
the connection that said it, if that is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from graphfold.blocks.errors import BlockTypeError
from graphfold.blocks.type_conversion import TypeLike, canonicalize_type
from graphfold.blocks.types import ResultType
from graphfold.blocks.undo import all_or_nothing, put

if TYPE_CHECKING:
    from typing_extensions import Self  # of Python 3.11; torch brings it along

#: Classes of types, or None for any.
Classes: TypeAlias = tuple[type[ResultType], ...] | None


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
        """What it takes; None as long as that is unknown."""
        return self._types["input"]

    @property
    def output_type(self) -> ResultType | None:
        """What it gives; None as long as that is unknown."""
        return self._types["output"]

    @all_or_nothing()
    def set_input_type(self, input_type: TypeLike | None) -> Self:
        """Says what it takes; None says nothing.

        Raises:
            BlockTypeError: if that contradicts what is known.
        """
        if self._learn("input", input_type):
            self._conclude(self._input_found, self._types["input"])
            self._type_found()
        return self

    @all_or_nothing()
    def set_output_type(self, output_type: TypeLike | None) -> Self:
        """Says what it gives; None says nothing.

        Raises:
            BlockTypeError: if that contradicts what is known.
        """
        if self._learn("output", output_type):
            self._conclude(self._output_found, self._types["output"])
            self._type_found()
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

    @all_or_nothing()
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

    def _learn(self, side: str, type_like: Any) -> bool:
        """Whether the type of a side is new."""
        if type_like is None:
            return False
        new, known = canonicalize_type(type_like), self._types[side]
        if known is not None and new != known:
            raise BlockTypeError(
                f"Type mismatch between {side} type {new} and expected {side} type {known} in "
                f"{self}. Change one of the two, or use another block."
            )
        if known is None:
            self._require(side, type(new), new)
            put(self._types, side, new)
        return known is None

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
        put(self._classes, side, classes)

    def _require(self, side: str, kind: type[ResultType], shown: object) -> None:
        allowed = self._classes[side]
        if allowed is not None and not issubclass(kind, allowed):
            raise BlockTypeError(_bad(side, shown, self, allowed))

    def _conclude(self, draw: Callable[[Any], None], found: Any) -> None:
        """Draws conclusions from what was found."""
        draw(found)

    def _input_found(self, kind: ResultType) -> None:
        """Draws conclusions from the input type."""

    def _output_found(self, kind: ResultType) -> None:
        """Draws conclusions from the output type."""

    def _type_found(self) -> None:
        """Tells others that a type has been found."""


def _bad(side: str, shown: object, whose: object, allowed: tuple[type[ResultType], ...]) -> str:
    wanted = " or ".join(kind.__name__ for kind in allowed)
    hint = " (a tuple of Python objects is one PyObject)" if "PyObject" in str(shown) else ""
    return f"bad {side} type {shown} for {whose}, expected {wanted}{hint}. Check its connections."
