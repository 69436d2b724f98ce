"""Frames: tables from Python, read by columns and returned with columns of predictions."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, time
from typing import Any, NamedTuple

from graphfold.errors import DataError

#: The type of the values of a column -> its name in Arrow.
ARROW_TYPES = {float: "float64", int: "int64", str: "string"}


class NewColumn(NamedTuple):
    """A column that is added to a table. Its type does not depend on the values.

    Args:
        name: its name.
        of: the type of the values, `float`, `int` or `str`.
        is_list: whether there is a list of them in each row, one for each node.
        values: one value for each row; None is a missing one.
    """

    name: str
    of: type
    is_list: bool = False
    values: Sequence[Any] = ()

    @property
    def arrow_type(self) -> Any:
        """Its type in Arrow."""
        import pyarrow

        of = pyarrow.type_for_alias(ARROW_TYPES[self.of])
        return pyarrow.list_(of) if self.is_list else of


def with_reason(columns: Sequence[NewColumn], taken: Sequence[str]) -> list[NewColumn]:
    """The columns and `reason`; names that a table already has get _2, _3 and so on."""
    used, free = set(taken), []
    for column in (*columns, NewColumn("reason", str)):
        name, number = column.name, 1
        while name in used:
            number += 1
            name = f"{column.name}_{number}"
        used.add(name)
        free.append(column._replace(name=name))
    return free


class Frame(NamedTuple):
    """A table.

    Args:
        names: the names of its columns.
        values: column name -> its values; None is a missing one.
        add: returns a table of the same kind with further columns at the end.
    """

    names: Sequence[str]
    values: Callable[[str], Sequence[Any]]
    add: Callable[[Sequence[NewColumn]], Any]

    def items(self, names: Sequence[str] | None) -> Iterator[Any]:
        """The records, row by row, as `Adapter.record_of` takes them.

        Args:
            names: the columns that are read, see `Adapter.item_columns`.
        """
        if names is not None and len(names) == 1:
            return iter(self.values(names[0]))
        chosen = {name: map(_plain, self.values(name)) for name in names or self.names}
        return (dict(zip(chosen, row, strict=True)) for row in zip(*chosen.values(), strict=True))


def read_frame(data: Any, verb: str) -> Frame | None:
    """The frame of a table; None if the data are no table.

    A DataFrame of pandas or polars, an Arrow table, anything else that gives itself to Arrow
    (`__arrow_c_stream__`), or a mapping from names to columns.

    Args:
        data: the table, or anything else.
        verb: the method that was called, for messages.

    Raises:
        DataError: if a name occurs twice, or the values of a mapping are no columns.
    """
    pandas, arrow = sys.modules.get("pandas"), sys.modules.get("pyarrow")
    if pandas is not None and isinstance(data, pandas.DataFrame):
        return _of_pandas(pandas, data)
    if arrow is not None and isinstance(data, arrow.Table | arrow.RecordBatch):
        return _of_arrow(data)
    if isinstance(data, Mapping):
        return _of_mapping(data, verb)
    if hasattr(data, "__arrow_c_stream__") and hasattr(data, "columns"):
        return _of_exporter(data)
    return None


def read_list(data: Any, verb: str) -> Iterable[Any]:
    """The items of a list, a column, or another iterable of records.

    Args:
        data: the list.
        verb: the method that was called, for messages.

    Raises:
        DataError: if it is one record, or iterating over it gives names, or has no order.
    """
    if isinstance(data, str | bytes | bytearray) or not isinstance(data, Iterable):
        raise one_record(data, verb)
    module = type(data).__module__
    if module.startswith(_ONE_RECORD):
        name = f"{module.partition('.')[0]} {type(data).__name__}"
        raise DataError(f"{verb} takes a list, not one record. Put the {name} into a list.")
    if isinstance(data, set | frozenset):
        raise DataError("a set has no order, so its predictions have none. Give a list.")
    pandas = sys.modules.get("pandas")
    if pandas is not None and isinstance(data, pandas.Series):
        return _values(pandas, data)
    if hasattr(data, "to_pylist"):  # a column of Arrow, whose items are its own scalars
        return data.to_pylist()  # type: ignore[no-any-return]
    if any(hasattr(data, name) for name in ("keys", "columns", "groups")):
        raise DataError(
            f"{verb} cannot read a {module}.{type(data).__name__}: to go through it gives names, "
            "not records. Give a list, a DataFrame, or a mapping from names to columns."
        )
    return data


def one_record(record: Any, verb: str) -> DataError:
    """The error about a record that is in no list."""
    return DataError(f"{verb} takes a list, not one record. Write {verb}([{record!r}]).")


#: Modules of objects that are one record although they are iterable.
_ONE_RECORD = ("rdkit.",)


def _of_pandas(pandas: Any, frame: Any) -> Frame:
    names = [str(name) for name in frame.columns]
    _refuse_twice("DataFrame", names)

    def add(columns: Sequence[NewColumn]) -> Any:
        extended = frame.copy()
        for column in columns:
            dtype = _pandas_type(pandas, column)
            extended[column.name] = pandas.Series(column.values, frame.index, dtype=dtype)
        return extended

    return Frame(names, lambda name: _values(pandas, frame.iloc[:, names.index(name)]), add)


def _values(pandas: Any, series: Any) -> list[Any]:
    """The values of a pandas column as plain values; None where one is missing."""
    pairs = zip(series.tolist(), pandas.isna(series).tolist(), strict=True)
    return [None if is_missing else value for value, is_missing in pairs]


def _pandas_type(pandas: Any, column: NewColumn) -> Any:
    if column.is_list:
        return object
    if column.of is str:
        return pandas.Series([""]).dtype  # pandas 3 has a type of text, those before have objects
    # Integers with missing values have a special type.
    return "Int64" if column.of is int and None in column.values else ARROW_TYPES[column.of]


def _of_arrow(table: Any) -> Frame:
    import pyarrow

    if isinstance(table, pyarrow.RecordBatch):
        table = pyarrow.Table.from_batches([table])
    _refuse_twice("table", table.column_names)

    def add(columns: Sequence[NewColumn]) -> Any:
        extended = table
        for column in columns:
            array = pyarrow.array(column.values, column.arrow_type)
            extended = extended.append_column(column.name, array)
        return extended

    return Frame(table.column_names, lambda name: table.column(name).to_pylist(), add)


def _of_exporter(frame: Any) -> Frame:
    """A DataFrame of polars, or of another library that exchanges tables by way of Arrow."""
    import pyarrow

    table = _of_arrow(pyarrow.table(frame))
    polars = sys.modules.get("polars")
    if polars is not None and isinstance(frame, polars.DataFrame):
        return table._replace(add=lambda columns: polars.from_arrow(table.add(columns)))
    return table


def _of_mapping(data: Mapping[Any, Any], verb: str) -> Frame:
    lists = {str(name): _column(value) for name, value in data.items()}
    columns = {name: values for name, values in lists.items() if values is not None}
    if len(columns) < len(lists):
        raise one_record(data, verb)
    if len({*map(len, columns.values())}) > 1:
        lengths = ", ".join(f"'{name}' has {len(c)} values" for name, c in columns.items())
        raise DataError(f"the columns are not equally long: {lengths}. Give a value for every row.")
    return Frame(
        [*columns], columns.__getitem__, lambda more: {**data, **{c.name: c.values for c in more}}
    )


def _plain(value: Any) -> Any:
    """A cell as a plain value: times are text, arrays are lists."""
    if isinstance(value, date | time):
        return value.isoformat()
    return value.tolist() if hasattr(value, "tolist") else value


def _column(values: Any) -> list[Any] | None:
    """The values of a column; None for other objects."""
    for method in ("to_pylist", "tolist", "to_list"):
        if hasattr(values, method):
            listed = getattr(values, method)()
            return listed if isinstance(listed, list) else None
    return [*values] if isinstance(values, list | tuple) else None


def _refuse_twice(kind: str, names: Sequence[str]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise DataError(f"the {kind} has the column '{twice[0]}' twice. Rename one of the two.")
