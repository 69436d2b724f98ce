"""NodeTypes: the node types of a model, which grow as examples need them."""

from __future__ import annotations

from graphfold.batching import Cell
from graphfold.blocks.cells import Precision
from graphfold.blocks.operations import Operations, Signature, Source
from graphfold.dag import Column, EdgeType, NodeType, Schema

#: The type of the node that stands for an example.
EXAMPLE = "example"
#: The relations from nodes to their example: what it gives, and how long its sequences are.
OUTPUTS, LENGTHS = "outputs", "lengths"

_RELATIONS = (
    EdgeType(
        OUTPUTS, (Column("slot", "int64"), Column("number", "int64"), Column("label", "string"))
    ),
    EdgeType(LENGTHS, (Column("slot", "int64"), Column("length", "int64"))),
)


class NodeTypes:
    """Node types in order of their first occurrence, and their cells.

    Args:
        operations: what nodes may compute.
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
        """Adds the types of a schema that this model, or one like it, has made."""
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
