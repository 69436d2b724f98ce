"""TableTarget: one target column of a table, and how its cells are read."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, get_args

from graphfold.dag import Column
from graphfold.dag.schema import ABOVE, BELOW, bound_column
from graphfold.datasets.positive_class import class_name
from graphfold.datasets.readers.json_documents import finite_number
from graphfold.errors import ConfigError, RecordError, did_you_mean, shortened

#: Cells of a value that was not measured.
MISSING_CELLS = frozenset({"", "NaN", "nan", "NA", "None"})

#: A model has weights for every class.
MOST_CLASSES = 100_000

Task = Literal["regression", "classification"]

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
        if self.task not in get_args(Task):
            raise ConfigError(
                f"there is no task '{self.task}'.{did_you_mean(self.task, get_args(Task))} "
                f"Use one of {', '.join(get_args(Task))}."
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
        """The column of the schema: float32, or int64 codes of the classes."""
        if self.task == "regression":
            return Column(self.name, "float32", unit=self.unit)
        size = len(self.class_names) or self.num_classes or 2
        return Column(self.name, "int64", unit=self.unit, size=size)

    @property
    def features(self) -> tuple[Column, ...]:
        """The columns of the schema that go with it: 0, `ABOVE` or `BELOW` if it is bounded."""
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
            if cell not in self.class_names:
                fault = f"is not one of the classes {', '.join(self.class_names)}"
                raise self.refuse(cell, fault, "Correct the cell or class_names")
            return self.class_names.index(cell)
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
        """Tells numbers from text."""
        return _NUMBER.fullmatch(cell.strip()) is not None

    @staticmethod
    def number(cell: str) -> float | None:
        """The number of a cell; None if it is none, or beyond single precision."""
        return finite_number(float(cell)) if TableTarget.is_number(cell) else None

    def refuse(self, cell: str, fault: str, remedy: str) -> RecordError:
        """The error of a cell, which is raised by who reads it.

        Args:
            cell: what stands there.
            fault: what is wrong with it, after "which".
            remedy: what to do.
        """
        return RecordError(
            f"target '{self.name}' is '{shortened(cell)}', which {fault}",
            f"{remedy}, or set data.on_error=skip.",
        )
