"""Columns of a table, and how their cells are read: targets, weights of records.

Of two classes one is the positive one: areas under curves, F1 and recall are about it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from graphfold.dag import Column
from graphfold.dag.schema import ABOVE, BELOW, RECORD_WEIGHT, TASKS, Task, bound_column
from graphfold.errors import ConfigError, DataError, RecordError, did_you_mean, shortened

#: The largest number of single precision.
_LARGEST = float(np.finfo(np.float32).max)

#: A class, for all targets or target -> its class; None for the second of the names.
Positive: TypeAlias = str | int | Mapping[str, str | int | bool] | None


def class_name(value: object) -> str:
    """The name of a class as a config or JSON may write it: true and 1.0 are `true` and `1`."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # 1 and 1.0 are one number to JSON
    return str(value).lower() if isinstance(value, bool) else str(value)


def positive_of(positive: Positive, target: str) -> str | None:
    """The name of the positive class of a target, as the option gives it; None without one."""
    if isinstance(positive, Mapping):
        return class_name(positive[target]) if target in positive else None
    return None if positive is None else class_name(positive)


def refuse_unknown_targets(option: str, value: object, targets: Sequence[str]) -> None:
    """Raises ConfigError if an option is a mapping with a key that is no target."""
    for name in value if isinstance(value, Mapping) else ():
        if name not in targets:
            raise ConfigError(
                f"data.{option} names '{name}', which is no target.{did_you_mean(name, targets)} "
                f"The targets are: {', '.join(targets) or 'none'}."
            )


#: Spreadsheets and programs write these in any case, and mean the same.
_TRUTH = frozenset({"true", "false", "yes", "no"})


def find_class(name: str, names: Sequence[str]) -> str | None:
    """The class of a name; None for none. `TRUE` and `true` are one class."""
    folded = name.casefold()
    if name in names or folded not in _TRUTH:
        return name if name in names else None
    return next((other for other in names if other.casefold() == folded), None)


def inferred_classes(cells: Iterable[str], target: str) -> list[str]:
    """The classes of a target by its cells, in alphabetical order without regard to case.

    Of two the one that negates the other comes first, such as `inactive` before `active`, so that
    the positive one is last.

    Raises:
        DataError: if two of them differ in case alone, and are no words of truth.
    """
    by_name: dict[str, str] = {}
    for cell in sorted(cells):
        first = by_name.setdefault(cell.casefold(), cell)
        if first != cell and cell.casefold() not in _TRUTH:
            raise DataError(
                f"the classes '{first}' and '{cell}' of '{target}' differ in case alone. Write "
                f"them alike, or set data.class_names={{{target}: [...]}} if both are meant."
            )
    names = [by_name[folded] for folded in sorted(by_name)]
    return names[::-1] if len(names) == 2 and _negates(names[1], names[0]) else names


def _negates(name: str, other: str) -> bool:
    """True for `inactive` and `active`, `non-toxic` and `toxic`, `-` and `+`."""
    prefixed = rf"(in|un|non|not|no|-)[ _-]*{re.escape(other.lstrip('+'))}"
    return re.fullmatch(prefixed, name, re.IGNORECASE) is not None


def positive_last(names: Sequence[str], positive: Positive, target: str) -> tuple[str, ...]:
    """The names of the classes of a target, the positive one last: it has the code 1.

    Raises:
        ConfigError: if the positive class is not one of two.
    """
    name = positive_of(positive, target)
    if name is None:
        return tuple(names)
    if len(names) != 2:
        raise ConfigError(
            f"data.positive is '{name}', but '{target}' has {len(names)} classes, of which none "
            "is the positive one. Leave it out."
        )
    last = find_class(name, names)
    if last is None:
        raise ConfigError(
            f"data.positive is '{name}', but the classes of '{target}' are "
            f"{' and '.join(names)}.{did_you_mean(name, names)} Name one of them; of several "
            "targets with different classes, data.positive={TARGET: CLASS}."
        )
    return (names[1] if last == names[0] else names[0], last)


def listed(names: Sequence[str] | str) -> tuple[str, ...]:
    """The names of an option that takes one name or a list of them."""
    return (names,) if isinstance(names, str) else tuple(names)


def checked_class_names(
    class_names: Mapping[str, Any], targets: Sequence[str] | None
) -> dict[str, tuple[str, ...]]:
    """Target -> the names of its classes, as an option gives them.

    Args:
        class_names: the option.
        targets: the names of the targets; None while they are open.

    Raises:
        ConfigError: if it has less than two names, or those of an unknown target.
    """
    for name, cells in class_names.items():
        if isinstance(cells, str) or not isinstance(cells, Sequence) or len({*cells}) < 2:
            raise ConfigError(
                f"class_names gives '{name}' {cells!r}. Give a list of two or more different names."
            )
    if targets is not None:
        refuse_unknown_targets("class_names", class_names, targets)
    return {name: tuple(map(str, cells)) for name, cells in class_names.items()}


#: Cells of a value that was not measured.
MISSING_CELLS = frozenset({"", "NaN", "nan", "NA", "None"})

#: A model has weights for every class.
MOST_CLASSES = 100_000

# What Python's float() would also take, such as "1_000", is other text here.
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


@dataclass(frozen=True)
class TableTarget:
    """One target column.

    Args:
        name: the name of the column.
        task: "regression": finite numbers; "classification": whole numbers 0 .. num_classes-1.
        num_classes: how many classes; None for 2. Only for classification.
        unit: the unit of the values, if any.
        class_names: the names of the classes in the cells, in order; empty for 0, 1, ...
        bounded: whether a cell may be a bound, such as `>5` or `<=5`. Only for regression.

    Raises:
        ConfigError: if the task is unknown, or the number of classes or bounds do not fit it.
    """

    name: str
    task: Task = "regression"
    num_classes: int | None = None
    unit: str | None = None
    class_names: tuple[str, ...] = ()
    bounded: bool = False

    def __post_init__(self) -> None:
        if self.task not in TASKS:
            raise ConfigError(
                f"there is no task '{self.task}'.{did_you_mean(self.task, TASKS)} Use one of "
                f"{', '.join(TASKS)}."
            )
        is_count = self.num_classes is None or 2 <= self.num_classes <= MOST_CLASSES
        if not is_count or (self.num_classes is not None and self.task == "regression"):
            raise ConfigError(
                f"num_classes={self.num_classes} does not fit task={self.task}. Leave it out for "
                f"regression, and set it to 2 or more, up to {MOST_CLASSES}, for classification."
            )
        if self.bounded and self.task != "regression":
            raise ConfigError(
                "bounded_targets=true is for numbers. Leave it out, or set data.task=regression."
            )
        count = len(self.class_names)
        if count and (self.task == "regression" or self.num_classes not in (None, count)):
            raise ConfigError(
                f"class_names gives '{self.name}' {count} classes, which does not fit "
                f"task={self.task} and num_classes={self.num_classes}. Correct one of them."
            )

    @property
    def column(self) -> Column:
        """The column of the schema: float32, or int64 codes of the classes with their names."""
        if self.task == "regression":
            return Column(self.name, "float32", unit=self.unit, task=self.task)
        size, names = len(self.class_names) or self.num_classes or 2, self.class_names
        return Column(self.name, "int64", unit=self.unit, size=size, names=names, task=self.task)

    @property
    def features(self) -> tuple[Column, ...]:
        """The features of the graph beside it: its bound (0, `ABOVE` or `BELOW`) if it has any."""
        return (Column(bound_column(self.name), "int64", size=3),) if self.bounded else ()

    def values(self, cell: str) -> dict[str, float | int | None]:
        """The values of all its columns; see `parse`."""
        if not self.bounded:
            return {self.name: self.parse(cell)}
        text = cell.strip()
        bound = {">": ABOVE, "<": BELOW}.get(text[:1], 0)
        value = self.parse(text[1:].removeprefix("=") if bound else text)
        if bound and value is None:
            raise self.refuse(text, "is a bound without a number", "Correct the cell, or empty it")
        return {self.name: value, bound_column(self.name): bound}

    def parse(self, cell: str) -> float | int | None:
        """The value of a cell; None if it was not measured.

        Raises:
            RecordError: if the cell is no finite number, or not one of the classes.
        """
        cell = cell.strip()
        if cell in MISSING_CELLS:
            return None
        if self.class_names:
            if cell not in self.class_names and self.is_number(cell):
                cell = class_name(float(cell))  # 1.0 is the class 1
            name = find_class(cell, self.class_names)
            if name is None:
                fault = f"is not one of the classes {', '.join(self.class_names)}"
                raise self.refuse(cell, fault, "Correct the cell or class_names")
            return self.class_names.index(name)
        if cell.startswith(("<", ">")) and self.task == "regression":
            remedy = "Set data.bounded_targets=true, correct the cell, or empty it"
            raise self.refuse(cell, "is a bound", remedy)
        value = self.number(cell)
        if value is None:
            raise self.refuse(cell, "is not a finite number", "Correct the cell, or empty it")
        if self.task == "regression":
            return value
        classes = self.num_classes or 2
        if value not in range(classes):
            fault = f"is not one of the classes 0 .. {classes - 1}"
            raise self.refuse(cell, fault, "Correct the cell or num_classes")
        return int(value)

    @staticmethod
    def is_number(cell: str) -> bool:
        """True if a cell is a number, not text."""
        return _NUMBER.fullmatch(cell.strip()) is not None

    @staticmethod
    def number(cell: str) -> float | None:
        """The number in a cell; None if the cell is no number, or beyond single precision."""
        number = float(cell) if TableTarget.is_number(cell) else math.inf
        return number if abs(number) <= _LARGEST else None

    def refuse(self, cell: str, fault: str, remedy: str) -> RecordError:
        """The RecordError about a bad cell; the caller raises it.

        Args:
            cell: the text of the cell.
            fault: the fault, after "which".
            remedy: what to do.
        """
        return RecordError(
            f"target '{self.name}' is '{shortened(cell)}', which {fault}",
            f"{remedy}, or set data.on_error=skip.",
        )


@dataclass(frozen=True)
class TableWeight:
    """A column of weights: numbers from 0 on.

    Args:
        name: the name of the column.
    """

    name: str

    @property
    def features(self) -> tuple[Column, ...]:
        """The column of the schema."""
        return (Column(RECORD_WEIGHT, "float32", role="weight"),)

    def values(self, cell: str) -> dict[str, float | int | None]:
        """The weight.

        Raises:
            RecordError: if the cell is no number from 0 on.
        """
        value = TableTarget.number(cell)
        if value is None or value < 0:
            raise RecordError(
                f"weight '{self.name}' is '{shortened(cell)}', which is no number from 0 on",
                "Give the record a weight, or set data.on_error=skip.",
            )
        return {RECORD_WEIGHT: value}
