"""Checks that cells fit the schema and each other, before anything runs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from graphfold.batching.cell import Cell
from graphfold.batching.engine.pass_inputs import describe
from graphfold.batching.scheduling.passes import Pass, Up
from graphfold.batching.scheduling.schedule import PassSchedule
from graphfold.dag import Schema
from graphfold.errors import ConfigError, SchemaError, ShapeError


def check_cells(
    schema: Schema, passes: Sequence[Pass], cells: Sequence[Mapping[int, Cell]]
) -> dict[str, int]:
    """Checks what is known before there is data.

    Args:
        schema: the schema of the graphs.
        passes: the passes.
        cells: for each pass, op type -> cell.

    Returns:
        The width of every field.

    Raises:
        SchemaError: if there is no such relation, or a declared input lacks a field that is read.
        ShapeError: if two cells disagree about the width of a field.
        ConfigError: if a cell needs another number of children than its nodes have.
    """
    widths: dict[str, int] = {}
    has: dict[int, set[str]] = {}
    for item, by_type in zip(passes, cells, strict=True):
        if item.relation is not None:
            schema.relation(item.relation)
        for op_type, cell in by_type.items():
            has.setdefault(op_type, set()).update(cell.fields)
            _check_widths(cell, widths)
            _check_arity(schema, item, op_type, cell)
        if _reads_inputs(item):
            for op_type, cell in by_type.items():
                for name in schema.types[op_type].inputs or ():
                    read = schema.type_index(name)
                    if read in has:
                        _require_fields(schema, cell, read, has[read])
    return widths


def check_reads(
    schema: Schema,
    plan: PassSchedule,
    cells: Mapping[int, Cell],
    has: Mapping[str, Collection[int]],
) -> None:
    """Checks that every field a cell reads exists in the types that it reads in this batch.

    Args:
        schema: the schema of the graphs.
        plan: the plan of the pass, which knows who reads whom.
        cells: op type -> cell.
        has: field -> op types that have it from earlier passes.

    Raises:
        SchemaError: if a field is absent.
    """
    for reader, read in plan.read_types:
        if reader in cells:
            fields = cells[read].fields if read in cells else {}
            if not {*cells[reader].read_fields} <= fields.keys():
                given = [name for name, types in has.items() if read in types]
                _require_fields(schema, cells[reader], read, [*fields, *given])


def _check_widths(cell: Cell, widths: dict[str, int]) -> None:
    for name, width in cell.fields.items():
        if widths.setdefault(name, width) != width:
            raise ShapeError(
                f"{describe(cell)} has the field '{name}' with width {width}, but another cell "
                f"gives it {widths[name]}. Give both the same width."
            )


def _check_arity(schema: Schema, item: Pass, op_type: int, cell: Cell) -> None:
    node_type = schema.types[op_type]
    if _reads_inputs(item):
        if cell.arity is not None and cell.arity != node_type.arity:
            number = "any number" if node_type.arity is None else node_type.arity
            raise ConfigError(
                f"{describe(cell)} needs {cell.arity} children, but type '{node_type.name}' has "
                f"{number}. Choose another cell."
            )
    elif cell.arity:
        raise ConfigError(
            f"{describe(cell)} needs {cell.arity} children, but in {type(item).__name__} a node "
            "has any number of them. Choose another cell."
        )


def _reads_inputs(item: Pass) -> bool:
    """True if the children of a pass are the inputs, whose number and types the schema declares."""
    return isinstance(item, Up) and item.relation is None


def _require_fields(schema: Schema, cell: Cell, read: int, fields: Iterable[str]) -> None:
    for name in cell.read_fields:
        if name not in fields:
            raise SchemaError(
                f"{describe(cell)} reads field '{name}', but its children of type "
                f"'{schema.types[read].name}' have only {_quoted(fields) or 'no field'}. "
                f"Give that type's cell the field '{name}'."
            )


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f"'{name}'" for name in sorted(names))
