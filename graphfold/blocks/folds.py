"""Fold, Reduce and RNN: blocks of two arguments, applied along a sequence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn

from graphfold.blocks.block import Block, convert_to_block, convert_to_part
from graphfold.blocks.block_errors import BlockTypeError, BlockValueError
from graphfold.blocks.composition import Composition
from graphfold.blocks.constants import Zeros
from graphfold.blocks.contexts import Context, Steps
from graphfold.blocks.function import Function
from graphfold.blocks.inference.typed import assign, transaction
from graphfold.blocks.inference.types import (
    PyObjectType,
    ResultType,
    SequenceType,
    TupleType,
    VoidType,
    element_type_of,
    pair_of,
    refuse_endless,
)
from graphfold.blocks.layers import RNNCell
from graphfold.blocks.selection import elements_of


class Fold(Block):
    """Combines elements from left to right: combine(combine(start, x[0]), x[1]) and so on.

    Args:
        combine_block: from (value so far, element) to the next value.
        start_block: the value before the first element; it has no input.
    """

    is_simple = False
    expected_input = (SequenceType, TupleType, PyObjectType)

    @transaction()
    def __init__(self, combine_block: Any, start_block: Any, name: str | None = None) -> None:
        self.start_block = convert_to_part(start_block, VoidType(), "start_block of Fold")
        self.combine_block = convert_to_block(combine_block)
        self._facts = {"combine_block": self.combine_block, "start_block": self.start_block}
        super().__init__([self.start_block, self.combine_block], name=name)

    def steps(self, context: Context, x: Any) -> Steps:
        value = yield self.start_block, None
        for item in elements_of(x, self):
            value = yield self.combine_block, (value, item)
        return value

    def always(self) -> Sequence[Block]:
        return [self.start_block]

    def _infer_from_input(self, kind: ResultType) -> None:
        refuse_endless(kind, self, "fold over")
        self._spread()

    def _infer_from_output(self, kind: ResultType) -> None:
        self._spread()

    def _infer_from_child(self, child: Block) -> None:
        self.set_output_type(self.start_block.output_type)
        self.set_output_type(self.combine_block.output_type)
        takes = self.combine_block.input_type
        if takes is not None:
            self.set_output_type(pair_of(takes, "(value, element) by combine_block")[0])
        self._spread()

    def _spread(self) -> None:
        """Passes the types on to the children."""
        value = self.output_type
        self.start_block.set_output_type(value)
        if value is not None and self.input_type is not None:
            element = element_type_of(self.input_type, self)
            self.combine_block.set_input_type(TupleType(value, element))
        self.combine_block.set_output_type(value)


class Reduce(Block):
    """Combines neighbours in pairs, again and again, until one value is left: a balanced tree.

    In each round the first element goes with the second, the third with the fourth and so on; an
    odd last one waits for the next round. So of five, ((0 1) (2 3)) 4, and of n elements the depth
    is the logarithm, log2 n rounded up.

    Args:
        combine_block: from (left, right) to a value of the same type.
        default_block: the value of an empty sequence; it has no input; None for zeros.
    """

    is_simple = False
    expected_input = (TupleType, SequenceType)

    @transaction()
    def __init__(
        self, combine_block: Any, default_block: Any = None, name: str | None = None
    ) -> None:
        self.combine_block = convert_to_block(combine_block)
        self.default_block: Block | None = None
        self._facts = {"combine_block": self.combine_block}
        children = [self.combine_block]
        if default_block is not None:
            place = "default_block of Reduce"
            self.default_block = convert_to_part(default_block, VoidType(), place)
            children.append(self.default_block)
        super().__init__(children, name=name)

    def steps(self, context: Context, x: Any) -> Steps:
        if not x:
            return (yield self.default_block, None)
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

    def _infer_from_input(self, kind: ResultType) -> None:
        refuse_endless(kind, self, "reduce")
        element = element_type_of(kind, self)
        self.combine_block.set_input_type(TupleType(element, element))
        self.set_output_type(element)

    def _infer_from_output(self, kind: ResultType) -> None:
        self.combine_block.set_output_type(kind)
        if self.default_block is None:
            zeros = Zeros(kind)
            assign(vars(self), "default_block", zeros)
            self._add_child(zeros)
        else:
            self.default_block.set_output_type(kind)

    def _infer_from_child(self, child: Block) -> None:
        for block in (self.combine_block, self.default_block):
            if block is not None and self.output_type is not None:
                block.set_output_type(self.output_type)


@transaction()
def RNN(
    cell: Any,
    initial_state: Any = None,
    initial_state_from_input: bool = False,
    name: str | None = None,
) -> Block:
    """A block from a sequence to (the outputs of the cell, its last state).

    An empty sequence gives no outputs and the initial state.

    Args:
        cell: from (element, state) to (output, next state); or a recurrent cell of torch, which is
            put into an `RNNCell`.
        initial_state: the state before the first element; None for zeros, which needs a cell with
            an output type.
        initial_state_from_input: whether the input is (sequence, initial state) instead.
        name: its name in messages.

    Raises:
        BlockTypeError: if the types do not fit.
        BlockValueError: if the initial state is given in both ways.
    """
    module: Any = cell.fn if isinstance(cell, Function) else cell
    cell = convert_to_block(RNNCell(module) if isinstance(module, nn.RNNCellBase) else cell)
    if initial_state_from_input:
        if initial_state is not None:
            raise BlockValueError(
                "Cannot specify initial_state if initial_state_from_input is True. Leave one out."
            )
        return _RNN(cell, name)
    if initial_state is None:
        if cell.output_type is None:
            raise BlockTypeError(
                f"cannot infer initial_state type from cell {cell}: its output type is unknown. "
                "Give initial_state."
            )
        initial_state = Zeros(pair_of(cell.output_type, "(output_elem, state)")[1])
    composition = Composition(name=name).set_constructor_name("RNN")
    with composition.scope():
        composition.output.reads(_RNN(cell, name).reads(composition.input, initial_state))
    return composition


class _RNN(Block):
    is_simple = False
    expected_input = (TupleType,)
    expected_output = (TupleType,)

    def __init__(self, cell: Block, name: str | None) -> None:
        self.cell = cell
        super().__init__([cell], name=name)

    def steps(self, context: Context, x: Any) -> Steps:
        elements, state = x
        outputs = []
        for element in elements:
            output, state = yield self.cell, (element, state)
            outputs.append(output)
        return outputs, state

    def always(self) -> Sequence[Block]:
        return ()

    def _infer_from_input(self, kind: ResultType) -> None:
        elements, state = pair_of(kind, "(input_sequence, state)")
        refuse_endless(elements, self, "run an RNN on")
        if not isinstance(elements, SequenceType):
            raise BlockTypeError(f"First RNN input must be a sequence: {elements}. Use Map first.")
        self.cell.set_input_type(TupleType(elements.element_type, state))
        self._check_state()

    def _infer_from_output(self, kind: ResultType) -> None:
        outputs, state = pair_of(kind, "(output_sequence, state)")
        if not isinstance(outputs, SequenceType):
            raise BlockTypeError(f"First RNN output must be a sequence: {outputs}.")
        self.cell.set_output_type(TupleType(outputs.element_type, state))
        self._check_state()

    def _infer_from_child(self, child: Block) -> None:
        if child.input_type is not None:
            element, state = pair_of(child.input_type, "(input_elem, state)")
            self.set_input_type(TupleType(SequenceType(element), state))
        if child.output_type is not None:
            output, state = pair_of(child.output_type, "(output_elem, state)")
            self.set_output_type(TupleType(SequenceType(output), state))

    def _check_state(self) -> None:
        if self.input_type is None or self.output_type is None:
            return
        before, after = self.input_type[1], self.output_type[1]  # type: ignore[index]
        if before != after:
            raise BlockTypeError(
                f"RNN cell input and output state types don't match: {before} vs. {after} in "
                f"{self.cell}."
            )
