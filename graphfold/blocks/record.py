"""Record and AllOf: several blocks side by side, with one tuple of results."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from graphfold.blocks.block import Block, convert_to_block
from graphfold.blocks.block_errors import BlockKeyError, BlockOrderError, BlockTypeError, quoted
from graphfold.blocks.constants import Void
from graphfold.blocks.contexts import Context, Steps
from graphfold.blocks.inference.types import PyObjectType, ResultType, TupleType, VoidType
from graphfold.blocks.selection import item_of
from graphfold.blocks.wires import Wire

#: Blocks by key: a dict, a list of (key, block) pairs, or a tuple (keys 0, 1, ...).
Named: TypeAlias = Mapping[Any, Any] | Sequence[tuple[Any, Any]] | tuple[Any, ...]


@convert_to_block.register(dict)
@convert_to_block.register(list)
@convert_to_block.register(tuple)
class Record(Block):
    """Applies one block to each item of the input: (block of key 1 on x[key 1], ...).

    Args:
        named_children: a dict (its blocks run in the order of their sorted keys; an `OrderedDict`
            keeps its order), a list of (key, block) pairs, or a tuple of blocks for the items 0, 1
            and so on. A key is anything that the input can be indexed by, a slice too.

    Raises:
        BlockTypeError: if it is none of these, or a tuple input has another number of items.
        BlockOrderError: if the children are a plain dict, and the input is a tuple.
        BlockKeyError: if an example lacks a key.
    """

    is_simple = False
    expected_input = (PyObjectType, TupleType)
    expected_output = (PyObjectType, TupleType)

    def __init__(self, named_children: Named, name: str | None = None) -> None:
        self._ordered = not isinstance(named_children, dict) or isinstance(
            named_children, OrderedDict
        )
        self._facts = {"ordered": self._ordered}
        pairs = named_blocks(named_children)
        self._keys = [key for key, _ in pairs]
        super().__init__([block for _, block in pairs], name=name)
        if not pairs:
            self.set_output_type(TupleType())

    def __getitem__(self, key: Any) -> Any:
        """The output of the block with that key."""
        if isinstance(key, slice):
            return super().__getitem__(key)
        if key not in self._keys:
            keys = ", ".join(map(repr, self._keys))
            raise BlockKeyError(f"{self} has no key {key!r}. It has: {keys}.")
        return Wire(self, self._keys.index(key))

    def steps(self, context: Context, x: Any) -> Steps:
        results = []
        by_position = isinstance(self.input_type, TupleType)
        for number, (key, block) in enumerate(zip(self._keys, self.children, strict=True)):
            item = x[number] if by_position else item_of(x, key, self)
            results.append(block.apply(context, item) if block.is_simple else (yield block, item))
        return tuple(results)

    def _infer_from_input(self, kind: ResultType) -> None:
        if isinstance(kind, PyObjectType):
            for block in self.children:
                block.set_input_type(kind)
            return
        if not self._ordered:
            raise BlockOrderError(
                f"record block {self} created with an unordered dict cannot take ordered inputs: "
                f"{kind}. Use an OrderedDict or a list of (key, block) pairs."
            )
        for block, item in zip(self.children, self._matched("inputs", kind), strict=True):
            block.set_input_type(item)

    def _infer_from_output(self, kind: ResultType) -> None:
        if isinstance(kind, PyObjectType):
            for block in self.children:
                block.set_output_type(kind)
            return
        for block, item in zip(self.children, self._matched("outputs", kind), strict=True):
            block.set_output_type(item)

    def _infer_from_child(self, child: Block) -> None:
        if self.input_type is None:
            inputs = [block.input_type for block in self.children]
            if None not in inputs:
                self.set_input_type(TupleType(*inputs))  # type: ignore[arg-type]
        _give_tuple(self)

    def _matched(self, side: str, kind: ResultType) -> TupleType:
        assert isinstance(kind, TupleType)
        if len(kind) != len(self.children):
            raise BlockTypeError(
                f"Record block has {len(self.children)} children but {len(kind)} {side}: {self} "
                f"and {kind}. Give it as many."
            )
        return kind


def AllOf(*blocks: Any, name: str | None = None) -> Block:
    """Applies all blocks to the same input: (first block on x, second block on x, ...).

    Args:
        *blocks: blocks, or objects that convert to blocks; without any it is `Void`.
        name: its name in messages.
    """
    if not blocks:
        return Void(name).set_constructor_name("AllOf")
    return _AllOf([convert_to_block(block) for block in blocks], name)


class _AllOf(Block):
    is_simple = False

    def __init__(self, blocks: Sequence[Block], name: str | None) -> None:
        super().__init__(blocks, name=name)

    def steps(self, context: Context, x: Any) -> Steps:
        results = []
        for block in self.children:
            item = None if isinstance(block.input_type, VoidType) else x
            results.append(block.apply(context, item) if block.is_simple else (yield block, item))
        return tuple(results)

    def check(self) -> None:
        if all(isinstance(block.input_type, VoidType) for block in self.children):
            self.set_input_type(self.input_type or VoidType())
        super().check()

    def _infer_from_input(self, kind: ResultType) -> None:
        for block in self.children:
            if not isinstance(block.input_type, VoidType):
                block.set_input_type(kind)
        _give_tuple(self)

    def _infer_from_output(self, kind: ResultType) -> None:
        if isinstance(kind, TupleType):
            if len(kind) != len(self.children):
                raise BlockTypeError(
                    f"{self} has {len(self.children)} children but {len(kind)} outputs: {kind}."
                )
            for block, item in zip(self.children, kind, strict=True):
                block.set_output_type(item)

    def _infer_from_child(self, child: Block) -> None:
        if not isinstance(child.input_type, VoidType):
            self.set_input_type(child.input_type)
            child.set_input_type(self.input_type)
        _give_tuple(self)


def named_blocks(named: Named) -> list[tuple[Any, Block]]:
    """(key, block) pairs, in the order in which they run.

    Raises:
        BlockTypeError: if it is no dict, list of pairs or tuple, or keys cannot be sorted.
    """
    pairs: list[tuple[Any, Any]]
    if isinstance(named, tuple):
        pairs = list(enumerate(named))
    elif isinstance(named, OrderedDict):
        pairs = list(named.items())
    elif isinstance(named, Mapping):
        try:
            pairs = [(key, named[key]) for key in sorted(named)]
        except TypeError as error:
            keys = ", ".join(map(repr, named))
            raise BlockTypeError(
                f"the keys {keys} cannot be sorted. Give a list of (key, block) pairs."
            ) from error
    elif isinstance(named, list) and all(isinstance(p, tuple) and len(p) == 2 for p in named):
        pairs = named
    else:
        raise BlockTypeError(
            f"expected a list or tuple or dictionary of child blocks: {quoted(named)}. A list "
            "holds (key, block) pairs, a tuple holds blocks."
        )
    return [(key, convert_to_block(block)) for key, block in pairs]


def _give_tuple(block: Block) -> None:
    """Sets the output type of a block to the tuple of its children's, once they are known."""
    if block.output_type is None:
        outputs = [child.output_type for child in block.children]
        if None not in outputs:
            block.set_output_type(TupleType(*outputs))  # type: ignore[arg-type]
