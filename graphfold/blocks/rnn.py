"""RNN: a cell along a sequence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn

from graphfold.blocks.block import Block, Steps
from graphfold.blocks.composition import Composition
from graphfold.blocks.constants import Zeros
from graphfold.blocks.context import Context
from graphfold.blocks.convert import convert_to_block
from graphfold.blocks.errors import BlockTypeError, BlockValueError
from graphfold.blocks.folds import refuse_endless
from graphfold.blocks.function import Function
from graphfold.blocks.recurrent import RNNCell
from graphfold.blocks.types import ResultType, SequenceType, TupleType
from graphfold.blocks.undo import all_or_nothing


@all_or_nothing()
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
        initial_state: gives the state before the first element; zeros if not given, which needs a
            cell whose output type is known.
        initial_state_from_input: whether the input is (sequence, initial state) instead.
        name: its name.

    Raises:
        BlockTypeError: if the types do not fit.
        BlockValueError: if the initial state is given in both ways.
    """
    cell = convert_to_block(_typed(cell))
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
        if not isinstance(cell.output_type, TupleType):
            raise BlockTypeError(f"RNN cell must have tuple output type: {cell.output_type}.")
        initial_state = Zeros(_pair(cell.output_type, "(output_elem, state)")[1])
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

    def _input_found(self, kind: ResultType) -> None:
        elements, state = _pair(kind, "(input_sequence, state)")
        refuse_endless(elements, self, "run an RNN on")
        if not isinstance(elements, SequenceType):
            raise BlockTypeError(f"First RNN input must be a sequence: {elements}. Use Map first.")
        self.cell.set_input_type(TupleType(elements.element_type, state))
        self._check_state()

    def _output_found(self, kind: ResultType) -> None:
        outputs, state = _pair(kind, "(output_sequence, state)")
        if not isinstance(outputs, SequenceType):
            raise BlockTypeError(f"First RNN output must be a sequence: {outputs}.")
        self.cell.set_output_type(TupleType(outputs.element_type, state))
        self._check_state()

    def _child_found(self, child: Block) -> None:
        if child.input_type is not None:
            if not isinstance(child.input_type, TupleType):
                raise BlockTypeError(
                    f"RNN cell must take a tuple as input. {child} takes {child.input_type}."
                )
            element, state = _pair(child.input_type, "(input_elem, state)")
            self.set_input_type(TupleType(SequenceType(element), state))
        if child.output_type is not None:
            if not isinstance(child.output_type, TupleType):
                raise BlockTypeError(
                    f"RNN cell must produce a tuple as output. {child} gives {child.output_type}."
                )
            output, state = _pair(child.output_type, "(output_elem, state)")
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


def _typed(cell: Any) -> Any:
    """A recurrent cell of torch as an `RNNCell`; anything else as it is."""
    module: Any = cell.fn if isinstance(cell, Function) else cell
    return RNNCell(module) if isinstance(module, nn.RNNCellBase) else cell


def _pair(kind: ResultType, what: str) -> tuple[ResultType, ResultType]:
    if not isinstance(kind, TupleType) or len(kind) != 2:
        raise BlockTypeError(f"Expected a two-tuple of {what}, saw: {kind}.")
    return kind[0], kind[1]
