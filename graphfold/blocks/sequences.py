"""Blocks from sequences to sequences."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import Any

from graphfold.blocks.block import Block, Steps
from graphfold.blocks.context import Context
from graphfold.blocks.convert import convert_to_block
from graphfold.blocks.errors import BlockTypeError, BlockValueError
from graphfold.blocks.simple import elements_of
from graphfold.blocks.type_conversion import element_type_of
from graphfold.blocks.types import (
    BroadcastSequenceType,
    PyObjectType,
    ResultType,
    SequenceType,
    TupleType,
)


class Map(Block):
    """A block on every element: of a sequence, a tuple of equals or any iterable object.

    Args:
        elem_block: the block.
        name: its name.
    """

    is_simple = False
    expected_input = (SequenceType, TupleType, PyObjectType)
    expected_output = (SequenceType, PyObjectType)

    def __init__(self, elem_block: Any, name: str | None = None) -> None:
        self.element_block = convert_to_block(elem_block)
        super().__init__([self.element_block], name=name)

    def steps(self, context: Context, x: Any) -> Steps:
        block = self.element_block
        if isinstance(x, repeat):
            return repeat((yield block, next(x)))
        if block.is_simple:
            return [block.apply(context, item) for item in elements_of(x, self)]
        results = []
        for item in elements_of(x, self):
            result = yield block, item
            results.append(result)
        return results

    def always(self) -> Sequence[Block]:
        return ()

    def _input_found(self, kind: ResultType) -> None:
        self.element_block.set_input_type(element_type_of(kind, self))
        self._give(self.element_block.output_type)

    def _output_found(self, kind: ResultType) -> None:
        self.element_block.set_output_type(element_type_of(kind, self))

    def _child_found(self, child: Block) -> None:
        if self.input_type is not None:
            child.set_input_type(element_type_of(self.input_type, self))
            self._give(child.output_type)
        elif child.output_type is not None and self.output_type is None:
            self._give(child.output_type)

    def _give(self, element: ResultType | None) -> None:
        if element is not None:
            endless = isinstance(self.input_type, BroadcastSequenceType)
            self.set_output_type((BroadcastSequenceType if endless else SequenceType)(element))

    def _facts(self) -> dict[str, Any]:
        return {"element_block": self.element_block}


class Broadcast(Block):
    """An endless sequence of the input, to be zipped with a finite one.

    Args:
        name: its name.
    """

    expected_output = (BroadcastSequenceType,)

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name=name)

    def apply(self, context: Context, x: Any) -> Any:
        return repeat(x)

    def _input_found(self, kind: ResultType) -> None:
        self.set_output_type(BroadcastSequenceType(kind))


class Zip(Block):
    """A sequence of tuples from a tuple of sequences, as long as the shortest.

    Args:
        name: its name.
    """

    expected_input = (TupleType,)
    expected_output = (SequenceType,)

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name=name)

    def apply(self, context: Context, x: Any) -> Any:
        if isinstance(self.output_type, BroadcastSequenceType):
            return repeat(tuple(next(item) for item in x))
        return list(zip(*(elements_of(item, self) for item in x), strict=False))

    def _input_found(self, kind: ResultType) -> None:
        assert isinstance(kind, TupleType)
        if not len(kind):
            raise BlockTypeError(f"{self}: zip requires at least one input sequence. Give it one.")
        for item in kind:
            if not isinstance(item, (SequenceType, PyObjectType)):
                raise BlockTypeError(
                    f"{self}: item types must be sequences: {item}. Use Broadcast for a single "
                    "value."
                )
        element = TupleType(*(element_type_of(item, self) for item in kind))
        endless = all(isinstance(item, BroadcastSequenceType) for item in kind)
        self.set_output_type((BroadcastSequenceType if endless else SequenceType)(element))


def ZipWith(elem_block: Any, name: str | None = None) -> Block:
    """`Zip() >> Map(elem_block)`.

    Args:
        elem_block: a block that takes a tuple.
        name: the name of the `Map`.
    """
    return Zip() >> Map(elem_block, name)


class NGrams(Block):
    """All runs of n neighbours in a sequence, as a sequence of tuples.

    Args:
        n: how many.
        name: its name.

    Raises:
        BlockTypeError: if n is no integer.
        BlockValueError: if it is less than 1.
    """

    expected_input = (SequenceType,)
    expected_output = (SequenceType,)

    def __init__(self, n: int, name: str | None = None) -> None:
        if not isinstance(n, int):
            raise BlockTypeError(f"n must be an integer: {n!r}. Say how many go together.")
        if n <= 0:
            raise BlockValueError(f"n must be positive: {n}. Give at least 1.")
        self.n = n
        super().__init__(name=name)

    def apply(self, context: Context, x: Any) -> Any:
        if isinstance(x, repeat):
            return repeat((next(x),) * self.n)
        return [tuple(x[start : start + self.n]) for start in range(len(x) - self.n + 1)]

    def _input_found(self, kind: ResultType) -> None:
        assert isinstance(kind, SequenceType)
        self.set_output_type(type(kind)(TupleType(*[kind.element_type] * self.n)))

    def _facts(self) -> dict[str, Any]:
        return {"n": self.n}
