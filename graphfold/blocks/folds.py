"""Fold and Reduce: a whole sequence into one value, by a block of two arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from graphfold.blocks.block import Block, Steps
from graphfold.blocks.constants import Zeros
from graphfold.blocks.context import Context
from graphfold.blocks.convert import convert_to_block, convert_to_part
from graphfold.blocks.errors import BlockTypeError
from graphfold.blocks.simple import elements_of
from graphfold.blocks.type_conversion import element_type_of
from graphfold.blocks.types import (
    BroadcastSequenceType,
    PyObjectType,
    ResultType,
    SequenceType,
    TupleType,
    VoidType,
)
from graphfold.blocks.undo import all_or_nothing, put


class Fold(Block):
    """From left to right: combine(combine(start, x[0]), x[1]) and so on.

    Args:
        combine_block: from (value so far, element) to the value with it.
        start_block: gives the value before the first element; takes nothing.
        name: its name.
    """

    is_simple = False
    expected_input = (SequenceType, TupleType, PyObjectType)

    @all_or_nothing()
    def __init__(self, combine_block: Any, start_block: Any, name: str | None = None) -> None:
        self.start_block = convert_to_part(start_block, VoidType(), "start_block of Fold")
        self.combine_block = convert_to_block(combine_block)
        super().__init__([self.start_block, self.combine_block], name=name)

    def steps(self, context: Context, x: Any) -> Steps:
        value = yield self.start_block, None
        for item in elements_of(x, self):
            value = yield self.combine_block, (value, item)
        return value

    def always(self) -> Sequence[Block]:
        return [self.start_block]

    def _input_found(self, kind: ResultType) -> None:
        refuse_endless(kind, self, "fold over")
        self._spread()

    def _output_found(self, kind: ResultType) -> None:
        self._spread()

    def _child_found(self, child: Block) -> None:
        self.set_output_type(self.start_block.output_type)
        self.set_output_type(self.combine_block.output_type)
        pair = self.combine_block.input_type
        if pair is not None:
            if not isinstance(pair, TupleType):
                raise BlockTypeError(
                    f"Fold: combine_block has non-tuple input_type. {self.combine_block} takes "
                    f"{pair}, but is given (value, element)."
                )
            if len(pair) != 2:
                raise BlockTypeError(
                    f"Fold: combine_block input_type must be a 2-tuple. {self.combine_block} takes "
                    f"{pair}, but is given (value, element)."
                )
            self.set_output_type(pair[0])
        self._spread()

    def _spread(self) -> None:
        """Tells the children what is known."""
        value = self.output_type
        self.start_block.set_output_type(value)
        if value is not None and self.input_type is not None:
            element = element_type_of(self.input_type, self)
            self.combine_block.set_input_type(TupleType(value, element))
        self.combine_block.set_output_type(value)

    def _facts(self) -> dict[str, Any]:
        return {"combine_block": self.combine_block, "start_block": self.start_block}


class Reduce(Block):
    """Neighbours two by two, again and again, until one value is left: a balanced tree.

    In each round the first element goes with the second, the third with the fourth and so on; an
    odd last one waits for the next round. So of five, ((0 1) (2 3)) 4, and of n elements the depth
    is the logarithm, log2 n rounded up.

    Args:
        combine_block: from (left, right) to a value of the same type.
        default_block: gives the value of an empty sequence; takes nothing; zeros if not given.
        name: its name.
    """

    is_simple = False
    expected_input = (TupleType, SequenceType)

    @all_or_nothing()
    def __init__(
        self, combine_block: Any, default_block: Any = None, name: str | None = None
    ) -> None:
        self.combine_block = convert_to_block(combine_block)
        self.default_block: Block | None = None
        children = [self.combine_block]
        if default_block is not None:
            place = "default_block of Reduce"
            self.default_block = convert_to_part(default_block, VoidType(), place)
            children.append(self.default_block)
        super().__init__(children, name=name)

    def steps(self, context: Context, x: Any) -> Steps:
        if not x:
            return (yield self.default_block, None)  # type: ignore[misc]
        while len(x) > 1:
            pairs = zip(x[::2], x[1::2], strict=False)
            last = x[-1:] if len(x) % 2 else []
            x = []
            for pair in pairs:
                x.append((yield self.combine_block, pair))
            x += last
        return x[0]

    def always(self) -> Sequence[Block]:
        return ()

    def _input_found(self, kind: ResultType) -> None:
        refuse_endless(kind, self, "reduce")
        element = element_type_of(kind, self)
        self.combine_block.set_input_type(TupleType(element, element))
        self.set_output_type(element)

    def _output_found(self, kind: ResultType) -> None:
        self.combine_block.set_output_type(kind)
        if self.default_block is None:
            zeros = Zeros(kind)
            put(vars(self), "default_block", zeros)
            self._add_child(zeros)
        else:
            self.default_block.set_output_type(kind)

    def _child_found(self, child: Block) -> None:
        for block in (self.combine_block, self.default_block):
            if block is not None and self.output_type is not None:
                block.set_output_type(self.output_type)

    def _facts(self) -> dict[str, Any]:
        return {"combine_block": self.combine_block}


def refuse_endless(kind: ResultType, whose: object, what: str) -> None:
    """Raises BlockTypeError for an infinite sequence."""
    if isinstance(kind, BroadcastSequenceType):
        raise BlockTypeError(
            f"{whose} cannot {what} an infinite sequence: {kind}. Zip it with a finite one first."
        )
