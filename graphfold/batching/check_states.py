"""Checks of what a cell returns and reads; messages begin with the line of its code."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping

from torch import Tensor

from graphfold.batching.cell import Cell, State
from graphfold.errors import KindError, SchemaError, ShapeError, did_you_mean, kind_of


def as_mapping(found: State, cell: Cell, method: str) -> State:
    """The result of a method of a cell; raises KindError unless it is a mapping."""
    if not isinstance(found, Mapping):
        raise KindError(
            f"{place_of(cell, method)}{describe(cell)}.{method} returns {kind_of(found)}, but the "
            "engine needs a mapping of names to tensors. Return {'name': tensor}, or {}."
        )
    return found


def check_state(cell: Cell, state: State, size: int) -> None:
    """Raises ShapeError unless `state` holds just the cell's fields, [size, width] each.

    Raises:
        KindError: if it is no mapping of tensors.
    """
    if not isinstance(state, Mapping):
        raise _no_state(cell, f"returns {kind_of(state)}")
    if state.keys() != cell.fields.keys():
        _refuse_names(cell, state)
    for name, width in cell.fields.items():
        if not isinstance(state[name], Tensor):
            raise _no_state(cell, f"returns {kind_of(state[name])} for '{name}'")
        if state[name].shape != (size, width):
            raise ShapeError(
                f"{place_of(cell)}{describe(cell)} returns '{name}' of shape "
                f"{list(state[name].shape)} for {size} nodes; its fields say [{size}, {width}]. "
                "Return one row per node."
            )


def _no_state(cell: Cell, fault: str) -> KindError:
    fields = ", ".join(f"'{name}': [group_size, {width}]" for name, width in cell.fields.items())
    return KindError(
        f"{place_of(cell)}{describe(cell)} {fault}, but the engine needs a mapping of every field "
        f"to a tensor. Return {{{fields}}}."
    )


def _refuse_names(cell: Cell, state: State) -> None:
    """Raises ShapeError for fields that are declared or returned, and not both."""
    for name in cell.fields.keys() - state.keys():
        raise ShapeError(
            f"{place_of(cell)}{describe(cell)} declares the field '{name}' but returns only "
            f"{', '.join(map(str, state)) or 'nothing'}. Return every field."
        )
    for name in state.keys() - cell.fields.keys():
        raise ShapeError(
            f"{place_of(cell)}{describe(cell)} returns the field '{name}', which its fields do not "
            "declare. Add it to fields with its width, or leave it out."
        )


def place_of(cell: Cell, method: str = "forward") -> str:
    """ "file:line: " of a method of a cell, to begin a message with; "" if it is not of Python."""
    code = getattr(inspect.unwrap(getattr(cell, method)), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}: " if code is not None else ""


def unknown_field(cell: Cell, field: object, names: Iterable[str]) -> SchemaError:
    """The error of a cell that reads a field which its children do not have."""
    known = sorted(names)
    return SchemaError(
        f"{place_of(cell)}{describe(cell)} reads field '{field}', but its children have only "
        f"{', '.join(map(repr, known)) or 'no field'}."
        f"{did_you_mean(str(field), known)} Correct the name, or give the cell of the children "
        "that field."
    )


def describe(cell: Cell) -> str:
    """The cell's name with its widths, for messages."""
    widths = ", ".join(f"{name}={width}" for name, width in cell.fields.items())
    return f"{type(cell).__name__}({widths})"
