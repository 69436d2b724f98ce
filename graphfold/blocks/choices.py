"""OneOf and Optional: blocks that the example chooses from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import nn

from graphfold.blocks.block import Block, convert_to_block, convert_to_part
from graphfold.blocks.block_errors import (
    BlockDuplicateError,
    BlockKeyError,
    BlockTypeError,
    BlockValueError,
    quoted,
)
from graphfold.blocks.constants import Zeros
from graphfold.blocks.contexts import Context, Steps
from graphfold.blocks.inference.typed import assign, transaction
from graphfold.blocks.inference.types import PyObjectType, ResultType, VoidType
from graphfold.blocks.record import Named, named_blocks
from graphfold.blocks.selection import InputTransform


class OneOf(Block):
    """Runs the block that the key of the input chooses.

    Args:
        key_fn: from the input to its key: a function of a Python object, or a block.
        case_blocks: the blocks, as in `Record`, with any keys; in a tuple a negative key counts
            from the end. All have the same types.
        pre_block: a block between the input and the chosen block; the key is of the input itself.

    Raises:
        BlockTypeError: if `key_fn` is no function, or the cases differ in their types.
        BlockValueError: if there are no cases, or two for one key.
        BlockKeyError: if an example has a key without a case.
    """

    is_simple = False

    @transaction()
    def __init__(
        self,
        key_fn: Callable[[Any], Any] | Any,
        case_blocks: Named,
        pre_block: Any = None,
        name: str | None = None,
    ) -> None:
        self._key_block = _key_block(key_fn)
        if not case_blocks and isinstance(case_blocks, (dict, list, tuple)):
            raise BlockValueError("case_blocks must be non-empty. Give at least one.")
        is_dict = isinstance(case_blocks, Mapping)  # its order does not matter here
        pairs = named_blocks(list(case_blocks.items()) if is_dict else case_blocks)  # type: ignore
        self._cases = dict(pairs)
        if len(self._cases) != len(pairs):
            keys = ", ".join(repr(key) for key, _ in pairs)
            raise BlockDuplicateError(f"case_blocks name a key twice: {keys}. Name each once.")
        if isinstance(case_blocks, tuple):
            self._cases |= {key - len(pairs): block for key, block in pairs}
        self._pre_block = None if pre_block is None else convert_to_block(pre_block)
        self._first = [block for block in (self._key_block, self._pre_block) if block is not None]
        self._each = [block for _, block in pairs]
        self._case_ids = {id(block) for block in self._each}
        _require_equal("output", self._each, "OneOf")
        if self._pre_block is None:
            _require_equal("input", self._each, "OneOf")
        super().__init__([*self._each, *self._first], name=name)

    def steps(self, context: Context, x: Any) -> Steps:
        key = yield self._key_block, x
        if self._pre_block is not None:
            x = yield self._pre_block, x
        try:
            case = self._cases[key]
        except (KeyError, TypeError) as error:
            keys = ", ".join(map(repr, self._cases))
            raise BlockKeyError(
                f"{self} has no case for the key {quoted(key)}. It has: {keys}.", key=key
            ) from error
        return (yield case, x)

    def always(self) -> Sequence[Block]:
        return self._first

    def _infer_from_input(self, kind: ResultType) -> None:
        for block in (*self._first, *([] if self._pre_block else self._each)):
            block.set_input_type(kind)

    def _infer_from_output(self, kind: ResultType) -> None:
        for block in self._each:
            block.set_output_type(kind)

    def _infer_from_child(self, child: Block) -> None:
        if any(child is block for block in self._first):
            self.set_input_type(child.input_type)
        if child is self._pre_block:
            for block in self._each:
                block.set_input_type(child.output_type)
        if id(child) in self._case_ids:
            self.set_output_type(child.output_type)
            if self._pre_block is None:
                self.set_input_type(child.input_type)
            else:
                child.set_input_type(self._pre_block.output_type)


class Optional(Block):
    """Runs one block for an object, and another for None.

    Args:
        some_case: the block for any object but None.
        none_case: the block for None, which has no input; None for zeros (and empty sequences).
    """

    is_simple = False

    @transaction()
    def __init__(self, some_case: Any, none_case: Any = None, name: str | None = None) -> None:
        self._some_case = convert_to_part(some_case, PyObjectType(), "some_case of Optional")
        self._none_case: Block | None = None
        self._facts = {"some_case_block": self._some_case}
        children = [self._some_case]
        if none_case is not None:
            self._none_case = convert_to_part(none_case, VoidType(), "none_case of Optional")
            children.append(self._none_case)
        super().__init__(children, input_type=PyObjectType(), name=name)

    def steps(self, context: Context, x: Any) -> Steps:
        return (yield (self._none_case if x is None else self._some_case), x)

    def always(self) -> Sequence[Block]:
        return ()

    def _infer_from_output(self, kind: ResultType) -> None:
        self._some_case.set_output_type(kind)
        if self._none_case is None:
            zeros = Zeros(kind).set_input_type(VoidType())
            assign(vars(self), "_none_case", zeros)
            self._add_child(zeros)
        else:
            self._none_case.set_output_type(kind)

    def _infer_from_child(self, child: Block) -> None:
        if self._none_case is not None:
            _require_equal("output", [self._some_case, self._none_case], "Optional")
        self.set_output_type(self._some_case.output_type)
        if self._none_case is not None:
            self.set_output_type(self._none_case.output_type)


def _require_equal(side: str, cases: Sequence[Block], owner: str) -> None:
    """Raises BlockTypeError if the types of two cases differ; unknown ones are passed over."""
    first: Block | None = None
    for case in cases:
        kind = case.input_type if side == "input" else case.output_type
        if kind is None:
            continue
        if first is None:
            first, expected = case, kind
        elif kind != expected:
            raise BlockTypeError(
                f"cases {first} and {case} of {owner} differ. Type mismatch between {side} type "
                f"{kind} and expected {side} type {expected}. Let all cases have one type."
            )


def _key_block(key_fn: Any) -> Block:
    """The block that computes the key: a plain function takes a Python object."""
    if isinstance(key_fn, (Block, nn.Module, dict, list, tuple)):
        return convert_to_block(key_fn).set_output_type(PyObjectType())
    if not callable(key_fn):
        raise BlockTypeError(
            f"key_fn is not callable: {quoted(key_fn)}. Give a function or a block."
        )
    return InputTransform(key_fn)
