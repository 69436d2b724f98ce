"""Files of features from elsewhere: their rows, and the numbers in them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from graphfold.datasets.features.feature_sources import FeatureSource
from graphfold.datasets.files.table_columns import MISSING_CELLS, TableTarget
from graphfold.datasets.files.tables import open_table
from graphfold.datasets.files.text_files import open_bytes
from graphfold.errors import ConfigError, DataError, RecordError, first_line, shortened

Array = NDArray[Any]

#: The largest number of single precision.
_LARGEST = float(np.finfo(np.float32).max)

#: The features of one level of a record: where they come from, for messages, and column ->
#: [num_rows, *shape] float32; of a graph one row, else a row for each node or edge.
FeatureRow: TypeAlias = tuple[str, dict[str, Array]]


def feature_rows(source: FeatureSource, file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The key of each row of a file, or its number from 1 on, and its value for each column.

    - `.npz`: an array for each record; of graphs also one array with a row for each;
    - `.npy`: a row for each record; of nodes and edges [num_records, most, *shape], where rows of
      NaN fill what a record does not need;
    - a table, see `open_table`: cells are numbers, or lists of them as JSON or of Parquet.

    Raises:
        DataError: if the file cannot be read, or lacks a column.
        ConfigError: if it has no place for the key, or for several columns.
    """
    if file.suffix.lower() in (".npz", ".npy"):
        names = [*(source.columns or [f"{source.level}_features"])]
        if len(names) > 1 or (source.key and file.suffix.lower() == ".npy"):
            raise ConfigError(
                f"data.features_from: {file.name} has arrays without names of columns, and .npy "
                "none of records. Leave columns and key out, or give a table."
            )
        yield from ((key, {names[0]: array}) for key, array in _arrays(file, source))
        return
    table = open_table(file)
    names = [*(source.columns or (name for name in table.columns if name != source.key))]
    indices = table.find([*names, *([source.key] if source.key else [])], "data.features_from")
    for number, row in enumerate(table.rows(), start=1):
        if row.fault is not None:
            raise DataError.in_file(file, f"{row.fault}. Correct the row.", row.line)
        cells = [row.cells[index] for index in indices]
        yield (cells.pop() if source.key else str(number)), dict(zip(names, cells, strict=True))


def _arrays(file: Path, source: FeatureSource) -> Iterator[tuple[str, Array]]:
    open_bytes(file).close()
    try:
        rows = np.load(file, mmap_mode="r")
        if not isinstance(rows, np.ndarray):
            if source.level != "graph" or len(rows.files) > 1 or source.key:
                yield from ((name, rows[name]) for name in rows.files)
                return
            rows = rows[rows.files[0]]
        for number, row in enumerate(np.atleast_1d(rows), start=1):
            yield str(number), (row if source.level == "graph" else _without_filling(row))
    except (OSError, ValueError, EOFError, LookupError, BadZipFile) as error:
        raise DataError.in_file(
            file, f"cannot be read as arrays of numbers ({first_line(error)}). Write it again."
        ) from error


def _without_filling(row: Array) -> Array:
    """The rows before those of NaN at the end."""
    (used,) = np.nonzero(~np.isnan(row.reshape(len(row), -1)).all(axis=1))
    return row[: int(used.max(initial=-1)) + 1]


def _numbers(value: Any, what: str) -> Array:
    """The numbers in a cell or an array, as float32.

    Args:
        value: the cell or the array.
        what: its name, for messages.

    Raises:
        RecordError: if one of them is missing or not finite.
    """
    text = value.strip() if isinstance(value, str) else None
    if value is None or text in MISSING_CELLS:
        raise RecordError(f"{what} is missing", "Fill the cell, or set data.on_error=skip.")
    try:
        if text is not None:
            value = json.loads(text) if text.startswith("[") else TableTarget.number(text)
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError, RecursionError):
        array = np.array(np.nan)
    for place in np.argwhere(~(np.abs(array) <= _LARGEST)).tolist()[:1]:
        shown = f"{array[(*place,)]} at {place}" if place else f"'{shortened(text or str(value))}'"
        raise RecordError(f"{what} is {shown}, which is not a finite number")
    return array.astype(np.float32)


def with_shapes(
    source: FeatureSource, rows: Iterator[tuple[str, Mapping[str, Any]]]
) -> FeatureSource:
    """The source with the shapes of the first values that are not empty."""
    shapes: dict[str, Any] = source.shapes
    for _, values in rows:
        for name, value in values.items():
            with suppress(RecordError):  # `records` reports it
                array = _numbers(value, name)
                if shapes.setdefault(name) is None and array.size:
                    shapes[name] = [*array.shape[source.level != "graph" :]]
        if None not in shapes.values():
            break
    return replace(source, columns={name: shape or [] for name, shape in shapes.items()})


def read_row(source: FeatureSource, values: Mapping[str, Any], where: str) -> FeatureRow:
    """The numbers of the features of a record.

    Args:
        source: their source, with the shapes of its columns.
        values: column -> its cell or array.
        where: where they come from, for messages; empty for the table of the record.

    Raises:
        RecordError: if a number is missing or not finite, or a shape is another.
    """
    checked = {}
    for name, shape in source.shapes.items():
        array, shape = _numbers(values[name], f"the feature '{name}'{where}"), shape or ()
        if source.level == "graph":
            array = array[None]
        elif not array.size:  # a list of nothing has no shape
            array = array.reshape(0, *shape)
        if array.shape[1:] != shape or not array.ndim:
            raise RecordError(
                f"the feature '{name}'{where} has the shape {[*array.shape[1:]]} for each "
                f"{source.level}, but {[*shape]} is needed"
            )
        checked[name] = array
    return where, checked
