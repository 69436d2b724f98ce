"""Operations: what nodes compute, and how node types are named after it.

A node type says which function is called and how its arguments come: the name of the function and,
for each tensor, `x` (the example holds it: a column of the node), `=NAME` (a constant) or `SLOT:N`
(output N of the child in that slot). So `tree_lstm(0:0,0:1,1:0,1:1)` reads two outputs of each of
two children, and `embedding(x)` is a leaf. Types with the same function share its weights.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

from torch import Tensor, nn

from graphfold.batching import Cell
from graphfold.blocks.block import Block
from graphfold.blocks.cells import FunctionCell, LeafCell, Precision, ReductionCell, field_of
from graphfold.blocks.constants import ConstantTensor, FromTensor
from graphfold.blocks.errors import BlockTypeError
from graphfold.blocks.function import Function
from graphfold.blocks.metric import Metric
from graphfold.blocks.reductions import Reduction
from graphfold.blocks.types import TensorType
from graphfold.blocks.values import Constant
from graphfold.dag import Column, NodeType
from graphfold.errors import did_you_mean

#: How an argument comes: None (from the example), a `Constant`, or (slot, output number).
Source: TypeAlias = Constant | tuple[int, int] | None

Known = TypeVar("Known")

#: What a dict of modules cannot have as keys.
_RESERVED = frozenset(dir(nn.ModuleDict()))

#: How columns hold what a schema has no dtype for.
_STORED = {"float16": "float32", "bfloat16": "float32", "int8": "int32", "int16": "int32"}


@dataclass
class Operations:
    """The operations of a model by name; equal ones of several blocks are one.

    Attributes:
        functions: name -> a block that calls it.
        reductions: name -> a block that does it.
        constants: name -> the module that holds it.
        materialisers: for tensors that the example holds or that are constant, where a node is
            needed: functions that give them back.
        name_of: block -> the name of what it does.
    """

    functions: dict[str, Function] = field(default_factory=dict)
    reductions: dict[str, Reduction] = field(default_factory=dict)
    constants: dict[str, ConstantTensor] = field(default_factory=dict)
    materialisers: dict[TensorType, Function] = field(default_factory=dict)
    name_of: dict[Block, str] = field(default_factory=dict)
    _known: dict[Hashable, str] = field(default_factory=dict)

    @staticmethod
    def of(blocks: Sequence[Block]) -> Operations:
        """Those of some blocks, which have passed their checks."""
        found = Operations()
        for block in blocks:
            found._add(block)
        for block in blocks:
            for kind in _given(block):
                if kind not in found.materialisers:
                    found.materialisers[kind] = _materialiser(kind)
                    found._add(found.materialisers[kind])
        return found

    def _add(self, block: Block) -> None:
        """Names what a block does; a block that only wires does nothing."""
        key: Hashable
        if isinstance(block, Function):
            key = (_identity(block.fn), block.input_type, block.output_type)
            name = self._name(key, block._name or _plain_name(block.fn))
            self.functions.setdefault(name, block)
        elif isinstance(block, Reduction):
            key = (block.how, block.tensor)
            name = self._name(key, block.how)
            self.reductions.setdefault(name, block)
        elif isinstance(block, FromTensor):
            key = (block.module, id(block.module.value))
            name = self._name(key, block._name or "constant")
            self.constants.setdefault(name, block.module)
        else:
            return
        self.name_of[block] = name

    def modules(self) -> dict[str, nn.Module]:
        """The modules by the names that they have in a state dict; each once."""
        found: dict[str, nn.Module] = {}
        seen: set[int] = set()
        functions = {name: block.fn for name, block in self.functions.items()}
        for name, module in {**functions, **self.constants}.items():
            if isinstance(module, nn.Module) and id(module) not in seen:
                seen.add(id(module))
                found[name] = module
        return found

    def _name(self, key: Hashable, wanted: str) -> str:
        """The name of an operation, made from the one that is wanted if it is new."""
        if key not in self._known:
            base = re.sub(r"\W+", "_", wanted).strip("_") or "function"
            taken = {*self._known.values(), *_RESERVED}
            names = (f"{base}_{n}" if n > 1 else base for n in range(1, len(taken) + 2))
            self._known[key] = next(name for name in names if name not in taken)
        return self._known[key]


@dataclass(frozen=True)
class Signature:
    """An operation with the way in which its arguments come; see the module.

    Attributes:
        operation: its name.
        sources: of each tensor; of a reduction, the output number that it reads of every child.
    """

    operation: str
    sources: tuple[Source, ...] | int

    def __str__(self) -> str:
        if isinstance(self.sources, int):
            return f"{self.operation}(*:{self.sources})"
        return f"{self.operation}({','.join(map(_spelled, self.sources))})"

    @staticmethod
    def parse(text: str) -> Signature:
        """The signature that `str` spelled so."""
        operation, _, rest = text[:-1].partition("(")
        if rest.startswith("*:"):
            return Signature(operation, int(rest[2:]))
        return Signature(operation, tuple(map(_read, rest.split(","))) if rest else ())

    @property
    def arity(self) -> int | None:
        """How many children a node has; None for any number."""
        if isinstance(self.sources, int):
            return None
        return 1 + max((s[0] for s in self._slots()), default=-1)

    def node_type(self, operations: Operations) -> NodeType:
        """The node type, with a column for each tensor that the example holds."""
        return NodeType(str(self), self.arity, tuple(self._columns(operations)))

    def cell(self, operations: Operations, precision: Precision) -> Cell:
        """The cell of the type.

        Raises:
            BlockTypeError: if the model has no such operation.
        """
        if isinstance(self.sources, int):
            reduction = _require(operations.reductions, self.operation)
            kind = reduction.tensor
            return ReductionCell(reduction.how, kind, field_of(self.sources, kind), precision)
        function = _require(operations.functions, self.operation)
        constants = {
            s.name: _require(operations.constants, s.name)
            for s in self.sources
            if isinstance(s, Constant)
        }
        cell = FunctionCell(function, self.sources, constants, self.arity or 0, precision)
        return cell if cell.arity else LeafCell(cell)

    def _slots(self) -> Iterator[tuple[int, int]]:
        assert not isinstance(self.sources, int)
        return (s for s in self.sources if s is not None and not isinstance(s, Constant))

    def _columns(self, operations: Operations) -> Iterator[Column]:
        if isinstance(self.sources, int):
            return
        kinds = _require(operations.functions, self.operation).input_tensors
        for number, (source, kind) in enumerate(zip(self.sources, kinds, strict=True)):
            if source is None:
                yield Column(f"x{number}", _STORED.get(kind.dtype, kind.dtype), kind.shape)


def _given(block: Block) -> Iterator[TensorType]:
    """The types of tensors that must be outputs of nodes, whatever they come from."""
    if isinstance(block, (Reduction, Metric)):
        yield block.tensor
    for kind in block.output_type.terminal_types() if block.output_type else ():
        if isinstance(kind, TensorType):
            yield kind


def _materialiser(kind: TensorType) -> Function:
    """A function that gives a tensor back: a node for what would otherwise have none."""
    block = Function(_give, "value", infer_output_type=False)
    return block.set_input_type(kind).set_output_type(kind)


def _give(value: Tensor) -> Tensor:
    return value


def _require(known: Mapping[str, Known], name: str) -> Known:
    if name not in known:
        raise BlockTypeError(
            f"the model has no operation '{name}'.{did_you_mean(name, known)} It has: "
            f"{', '.join(known) or 'none'}. Lower the examples with this model."
        )
    return known[name]


def _identity(fn: object) -> Hashable:
    try:
        hash(fn)
    except TypeError:
        return id(fn)
    return fn


def _plain_name(fn: object) -> str:
    if isinstance(fn, nn.Module):
        return str(getattr(fn, "name", None) or type(fn).__name__)
    fn = getattr(fn, "func", fn)  # of a partial
    name = getattr(fn, "__name__", type(fn).__name__)
    return "function" if name == "<lambda>" else str(name)


def _spelled(source: Source) -> str:
    if source is None:
        return "x"
    return f"={source.name}" if isinstance(source, Constant) else f"{source[0]}:{source[1]}"


def _read(piece: str) -> Source:
    if piece == "x":
        return None
    if piece.startswith("="):
        return Constant(piece[1:])
    slot, _, number = piece.partition(":")
    return int(slot), int(number)
