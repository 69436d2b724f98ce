"""Node types: their operations, arguments and names.

The name of a node type is the name of its operation with the source of each tensor: `x` (the
example: a column of the node), `=NAME` (a constant) or `SLOT:N` (output N of the child in that
slot). So `tree_lstm(0:0,0:1,1:0,1:1)` reads two outputs of each of two children, and `embedding(x)`
is a leaf; `sum(*:0)` reads the first output of any number of children. Types with the same
operation share its weights.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from graphfold.batching import Cell
from graphfold.blocks.block import Block
from graphfold.blocks.block_errors import BlockTypeError
from graphfold.blocks.function import Function
from graphfold.blocks.inference.types import TensorType
from graphfold.blocks.primitive import Primitive
from graphfold.blocks.running.cells import CellContext, Constant, Precision, Source
from graphfold.dag import Column, EdgeType, NodeType, Schema, TypedDAG
from graphfold.errors import SchemaError, did_you_mean

#: The type of the node that stands for an example: it computes nothing.
EXAMPLE = "example"
#: The relations from nodes to their example: its outputs, and the lengths of its sequences.
OUTPUTS, LENGTHS = "outputs", "lengths"

_RELATIONS = (
    EdgeType(
        OUTPUTS, (Column("slot", "int64"), Column("number", "int64"), Column("label", "string"))
    ),
    EdgeType(LENGTHS, (Column("slot", "int64"), Column("length", "int64"))),
)

#: Names that a dict of modules cannot have as keys.
_RESERVED = frozenset(dir(nn.ModuleDict()))

#: Dtypes of columns in place of those that a schema does not support.
_STORED = {"float16": "float32", "bfloat16": "float32", "int8": "int32", "int16": "int32"}


def output_tensors(blocks: Sequence[Block]) -> Iterator[TensorType]:
    """The tensor types in the outputs of blocks."""
    for block in blocks:
        for kind in block.output_type.terminal_types() if block.output_type else ():
            if isinstance(kind, TensorType):
                yield kind


@dataclass
class Operations:
    """The operations of a model by name; equal ones of several blocks are one.

    Attributes:
        primitives: name -> a block of the operation.
        name_of: block -> the name of its operation.
        copies: type -> the identity function, which makes a node of a tensor of the example or of a
            constant.
    """

    primitives: dict[str, Primitive] = field(default_factory=dict)
    name_of: dict[Primitive, str] = field(default_factory=dict)
    copies: dict[TensorType, Function] = field(default_factory=dict)
    _name_of_key: dict[Hashable, str] = field(default_factory=dict)

    @staticmethod
    def of(blocks: Sequence[Block]) -> Operations:
        """The operations of checked blocks."""
        operations = Operations()
        for block in blocks:
            if isinstance(block, Primitive):
                operations._add(block)
        for kind in dict.fromkeys(output_tensors(blocks)):
            copy = Function(_identity, "value", infer_output_type=False)
            operations.copies[kind] = copy.set_input_type(kind).set_output_type(kind)
            operations._add(copy)
        return operations

    def modules(self) -> dict[str, nn.Module]:
        """Name in a state dict -> module, each module once; constants last."""
        modules: dict[str, nn.Module] = {}
        for name, block in sorted(self.primitives.items(), key=lambda item: item[1].is_constant):
            for number, module in enumerate(block.own_modules()):
                if not any(module is other for other in modules.values()):
                    modules[f"{name}__{number}" if number else name] = module
        return modules

    def find(self, name: str) -> Primitive:
        """The operation of a name.

        Raises:
            BlockTypeError: if the model has none.
        """
        if name not in self.primitives:
            raise BlockTypeError(
                f"the model has no operation '{name}'.{did_you_mean(name, self.primitives)} It "
                f"has: {', '.join(self.primitives) or 'none'}. Lower the examples with this model."
            )
        return self.primitives[name]

    def _add(self, block: Primitive) -> None:
        """Adds the operation of a block under its name, with a number if that is taken."""
        if block.operation is None:
            return
        key, wanted = block.operation
        if key not in self._name_of_key:
            base = re.sub(r"\W+", "_", wanted).strip("_") or "function"
            taken = {*self.primitives, *_RESERVED}
            names = (f"{base}_{n}" if n > 1 else base for n in range(1, len(taken) + 2))
            self._name_of_key[key] = next(name for name in names if name not in taken)
        self.name_of[block] = self._name_of_key[key]
        self.primitives.setdefault(self._name_of_key[key], block)


@dataclass(frozen=True)
class Signature:
    """An operation with the sources of its arguments; the module's docstring has its spelling.

    Attributes:
        operation: the name of the operation.
        sources: the source of each tensor; of a reduction, the output number to read of each child.
    """

    operation: str
    sources: tuple[Source, ...] | int

    def __str__(self) -> str:
        if isinstance(self.sources, int):
            return f"{self.operation}(*:{self.sources})"
        return f"{self.operation}({','.join(map(_spelled, self.sources))})"

    @staticmethod
    def parse(text: str) -> Signature:
        """The signature of a name, the inverse of `str`."""
        operation, _, rest = text[:-1].partition("(")
        if rest.startswith("*:"):
            return Signature(operation, int(rest[2:]))
        return Signature(operation, tuple(map(_read, rest.split(","))) if rest else ())

    @property
    def arity(self) -> int | None:
        """The number of children of a node; None for any number."""
        if isinstance(self.sources, int):
            return None
        slots = (s[0] for s in self.sources if s is not None and not isinstance(s, Constant))
        return 1 + max(slots, default=-1)

    def node_type(self, operations: Operations) -> NodeType:
        """The node type, with a column for each tensor that the example holds."""
        return NodeType(str(self), self.arity, tuple(self._columns(operations)))

    def cell(self, operations: Operations, precision: Precision) -> Cell:
        """The cell of the type.

        Raises:
            BlockTypeError: if the model has no such operation.
        """
        sources = () if isinstance(self.sources, int) else self.sources
        names = [source.name for source in sources if isinstance(source, Constant)]
        constants = {n: m for n in names for m in operations.find(n).own_modules()}
        context = CellContext(self.sources, self.arity, constants, precision)
        return operations.find(self.operation).cell(context)

    def _columns(self, operations: Operations) -> Iterator[Column]:
        if isinstance(self.sources, int):
            return
        kinds = operations.find(self.operation).input_tensors
        for number, (source, kind) in enumerate(zip(self.sources, kinds, strict=True)):
            if source is None:
                yield Column(f"x{number}", _STORED.get(kind.dtype, kind.dtype), kind.shape)


class NodeTypes:
    """Node types in order of their first occurrence, and their cells.

    Args:
        operations: the operations of nodes.
    """

    def __init__(self, operations: Operations) -> None:
        self.operations = operations
        self.precision = Precision()
        self._number: dict[tuple[str, tuple[Source, ...] | int], int] = {}
        self._types: list[NodeType] = [NodeType(EXAMPLE, 0)]
        self._schema: Schema | None = None
        self._cells: dict[str, Cell] = {}

    @property
    def schema(self) -> Schema:
        """The schema with all types so far."""
        if self._schema is None:
            self._schema = Schema(tuple(self._types), relations=_RELATIONS)
        return self._schema

    def find(self, operation: str, sources: tuple[Source, ...] | int) -> int:
        """The number of a type, which is added if it is new."""
        key = operation, sources
        number = self._number.get(key)
        if number is None:
            number = self._number[key] = len(self._types)
            self._types.append(Signature(operation, sources).node_type(self.operations))
            self._schema = None
        return number

    def learn(self, schema: Schema) -> None:
        """Adds the types of a schema, of this model or one with the same operations."""
        for node_type in schema.types:
            if node_type.name != EXAMPLE:
                signature = Signature.parse(node_type.name)
                self.find(signature.operation, signature.sources)

    def cell(self, name: str) -> Cell:
        """The cell of a type; always the same one.

        Raises:
            BlockTypeError: if the model has no such operation.
        """
        if name not in self._cells:
            self._cells[name] = Signature.parse(name).cell(self.operations, self.precision)
        return self._cells[name]


def widen(dag: TypedDAG, schema: Schema) -> TypedDAG:
    """Gives graphs a schema that has all their types, in any order, and perhaps others.

    Raises:
        SchemaError: if the schema lacks a type of the graphs.
    """
    if dag.schema == schema:
        return dag
    number = {node_type.name: index for index, node_type in enumerate(schema.types)}
    for node_type in dag.schema.types:
        if node_type not in schema.types:
            raise SchemaError(
                f"the schema lacks the node type '{node_type.name}', or has another of that name. "
                "Widen it with the model that lowered the graphs."
            )
    moved = torch.tensor([number[node_type.name] for node_type in dag.schema.types], device="cpu")
    columns = dict(dag.columns)
    for node_type in schema.types:
        empty = {
            column.name: torch.zeros((0, *column.shape), dtype=column.torch_dtype, device="cpu")
            for column in node_type.features
        }
        columns.setdefault(f"type:{node_type.name}", empty)
    return replace(dag, schema=schema, op_type=moved[dag.op_type], columns=columns)


def _identity(value: Tensor) -> Tensor:
    return value


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
