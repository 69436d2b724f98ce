"""Checks that cells fit the schema and each other, before anything runs."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torch import nn

from graphfold.batching.cell import Cell, makes_tables
from graphfold.batching.check_states import describe, place_of
from graphfold.batching.engine.field_sources import FieldSources
from graphfold.batching.scheduling.passes import Pass, Up
from graphfold.batching.scheduling.schedule import PassSchedule
from graphfold.dag import Schema
from graphfold.errors import (
    ConfigError,
    KindError,
    SchemaError,
    ShapeError,
    did_you_mean,
    kind_of,
)

#: The methods that a cell may define, and what they are called with.
METHODS = {
    "forward": ("x", "children"),
    "before": ("x",),
    "before_edges": ("edge",),
    "initial": ("x",),
    "after": ("state",),
}


def split_steps(
    schema: Schema, steps: Sequence[object]
) -> tuple[tuple[Pass, ...], list[Mapping[str, Any]]]:
    """The passes of a network, and the cells of each by type name.

    Args:
        schema: the schema of the graphs.
        steps: pairs of a pass and its cells, or of a pass and one cell for all types.

    Raises:
        KindError: if a step is no such pair.
        ConfigError: if cells are for a type that the schema lacks.
    """
    passes, cells = list[Pass](), list[Mapping[str, Any]]()
    for step in steps:
        if not isinstance(step, (tuple, list)) or len(step) != 2 or not isinstance(step[0], Pass):
            raise KindError(
                f"a network takes pairs of a pass and its cells, but this is {_kind_of_step(step)}."
                " Give (Up(), {'TYPE': cell}) for each pass; there are Up, Down and Rounds."
            )
        passes.append(step[0])
        cells.append(_by_type(schema, step[1]))
    return tuple(passes), cells


def _kind_of_step(step: object) -> str:
    is_pair = isinstance(step, (tuple, list)) and len(step) == 2
    return f"{kind_of(step[0])} and {kind_of(step[1])}" if is_pair else kind_of(step)  # type: ignore[index]


def _by_type(schema: Schema, cells: object) -> Mapping[str, Any]:
    """The cells of a pass by type name."""
    types = [node_type.name for node_type in schema.types]
    if isinstance(cells, Cell):
        return dict.fromkeys(types, cells)
    if not isinstance(cells, (Mapping, nn.ModuleDict)):
        raise KindError(
            f"the cells of a pass are {kind_of(cells)}, but a mapping of type names to cells is "
            "needed. Give {'TYPE': cell}, or one cell for all types."
        )
    for name in cells.keys() - set(types):
        raise ConfigError(
            f"cells names the type '{name}', which the schema lacks."
            f"{did_you_mean(str(name), types)} It has: {', '.join(types)}."
        )
    return cells  # type: ignore[return-value]


def check_interface(cell: object, type_name: str) -> None:
    """Raises KindError unless an object is a cell that follows the interface.

    Args:
        cell: the object.
        type_name: the type of nodes that it is for.
    """
    kind = type(cell).__name__
    if not isinstance(cell, Cell):
        is_class = isinstance(cell, type) and issubclass(cell, Cell)
        raise KindError(
            f"type '{type_name}' has {kind_of(cell)} for its cell, but an object of a subclass of "
            f"Cell is needed. {f'Make one: {cell.__name__}(...).' if is_class else 'Give one.'}"  # type: ignore[attr-defined]
        )
    if "_modules" not in vars(cell):
        raise KindError(
            f"{place_of(cell, '__init__')}{kind} does not call super().__init__(), which every "
            "module needs. Call it first in __init__."
        )
    fields = getattr(cell, "fields", None)
    if not isinstance(fields, Mapping) or not all(
        isinstance(name, str) and isinstance(width, int) for name, width in fields.items()
    ):
        raise KindError(
            f"{place_of(cell)}the fields of {kind} are {fields!r}, but a mapping of names to "
            "widths is needed. Set fields, such as fields = {'h': 8}."
        )
    if isinstance(cell.reads, str):
        raise KindError(
            f"{place_of(cell)}{kind} reads {cell.reads!r}, but a tuple of names is needed. Set "
            f"reads = ({cell.reads!r},)."
        )
    for method, arguments in METHODS.items():
        _check_signature(cell, method, arguments)


def _check_signature(cell: Cell, method: str, arguments: Sequence[str]) -> None:
    own = getattr(cell, method)
    if getattr(own, "__func__", None) is getattr(Cell, method):
        return
    try:
        signature = inspect.signature(own)
    except (TypeError, ValueError):  # of code that is not of Python
        return
    try:
        signature.bind(*arguments)
    except TypeError as error:
        raise KindError(
            f"{place_of(cell, method)}{describe(cell)}.{method} takes "
            f"({', '.join(signature.parameters)}), but it is called with ({', '.join(arguments)}). "
            f"Define {method}(self, {', '.join(arguments)})."
        ) from error


def check_cells(
    schema: Schema, passes: Sequence[Pass], cells: Sequence[Mapping[int, Sequence[Cell]]]
) -> dict[str, int]:
    """Checks cells against schema and passes, before any data.

    Args:
        schema: the schema of the graphs.
        passes: the passes.
        cells: for each pass, op type -> its cells: one, or one for each round.

    Returns:
        The width of every field.

    Raises:
        SchemaError: if there is no such relation, or a declared input lacks a field that is read.
        ShapeError: if two cells disagree about the width of a field.
        ConfigError: if a cell needs another number of children than its nodes have, or encodes the
            edges of several relations at once.
    """
    widths: dict[str, int] = {}
    has: dict[int, set[str]] = {}
    for item, by_type in zip(passes, cells, strict=True):
        for relation in item.relations:
            schema.relation(relation)
        pairs = [(op_type, cell) for op_type, own in by_type.items() for cell in own]
        for op_type, cell in pairs:
            has.setdefault(op_type, set()).update(cell.fields)
            _check_widths(cell, widths)
            _check_arity(schema, item, op_type, cell)
            if len(item.relations) > 1 and makes_tables(cell):
                raise ConfigError(
                    f"{describe(cell)} has before_edges, which encodes the edges of one relation, "
                    f"but the pass follows {', '.join(item.relations)}. Encode them in forward, "
                    f"from children['{item.relations[0]}'].edge."
                )
        if _reads_inputs(item):
            for op_type, cell in pairs:
                for name in schema.types[op_type].inputs or ():
                    read = schema.type_index(name)
                    if read in has:
                        _require_fields(schema, cell, read, has[read])
    return widths


def check_reads(schema: Schema, plan: PassSchedule, sources: FieldSources) -> None:
    """Checks that every field in `Cell.reads` exists in the types that are read in this batch.

    Args:
        schema: the schema of the graphs.
        plan: the plan of the pass, which knows who reads whom.
        sources: of the fields in the pass.

    Raises:
        SchemaError: if a field is absent.
    """
    for number, cells in enumerate(sources.cells_by_round):
        fields = sources.of_children(number)
        for reader, read in plan.read_types:
            if reader in cells:
                _require_fields(schema, cells[reader], read, fields.get(read, frozenset()))


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
    """True if a pass follows inputs, whose number and types the schema declares."""
    return isinstance(item, Up) and item.relation is None


def _require_fields(schema: Schema, cell: Cell, read: int, fields: Iterable[str]) -> None:
    for name in cell.read_fields:
        if name not in fields:
            raise SchemaError(
                f"{describe(cell)} reads field '{name}', but its children of type "
                f"'{schema.types[read].name}' have only {_quoted(fields) or 'no field'}."
                f"{did_you_mean(name, fields)} Give that type's cell the field '{name}'."
            )


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f"'{name}'" for name in sorted(names))
