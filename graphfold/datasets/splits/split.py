"""Split: the records of the parts train, val and test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from graphfold.datasets.corpora.corpus import PARTS
from graphfold.errors import ConfigError, DataError


class FileState(NamedTuple):
    """The state of a file that a split divides."""

    path: str
    content: str  # sha256 of what was read
    num_records: int  # usable ones


@dataclass(frozen=True, eq=False)
class Split:
    """Record numbers of the three parts; every record is in exactly one of them.

    A number counts the usable records of all files, in order.
    """

    train: Tensor  # [num_train] int64, increasing
    val: Tensor  # [num_val] int64, increasing
    test: Tensor  # [num_test] int64, increasing
    method: str
    files: tuple[FileState, ...] = ()
    notes: tuple[str, ...] = ()  # sentences for the user

    @staticmethod
    def of_parts(parts: Sequence[Any], method: str, notes: Sequence[str] = ()) -> Split:
        """A split from the record numbers of train, val and test, in any order.

        Args:
            parts: three arrays, tensors or lists of numbers.
            method: the name of the split.
            notes: sentences for the user.
        """
        train, val, test = (
            torch.from_numpy(np.sort(np.asarray(part, dtype=np.int64))) for part in parts
        )
        return Split(train, val, test, method, notes=tuple(notes))

    def part(self, name: str) -> Tensor:
        """The record numbers of "train", "val" or "test"."""
        if name not in PARTS:
            raise ConfigError(f"there is no part '{name}' of a split. Use {', '.join(PARTS)}.")
        numbers: Tensor = getattr(self, name)
        return numbers

    def sizes(self) -> dict[str, int]:
        """The number of records of each part."""
        return {name: len(self.part(name)) for name in PARTS}

    def to_dict(self) -> dict[str, Any]:
        """Plain strings and numbers, ready for JSON.

        `parts` has a digit for each record, 0 in train, 1 in val, 2 in test: of a million records a
        list of numbers would take forty times as much memory.
        """
        digits = np.full(sum(self.sizes().values()), ord("0"), np.uint8)
        for digit, name in enumerate(PARTS):
            digits[self.part(name).numpy()] += digit
        return {
            "parts": digits.tobytes().decode("ascii"),
            "method": self.method,
            "files": [state._asdict() for state in self.files],
            "notes": list(self.notes),
        }

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Split:
        """The split that `to_dict` (or JSON of it) describes.

        Raises:
            DataError: if it describes none.
        """
        try:
            train, val, test = _of_digits(data["parts"])
            files = tuple(FileState(**state) for state in data["files"])
            return Split(train, val, test, data["method"], files, tuple(data["notes"]))
        except (AttributeError, KeyError, TypeError, ValueError, RuntimeError) as error:
            raise DataError(
                f"the split of the run cannot be read ({error}). Restore its files, or train again."
            ) from error

    def check_files(self, files: Sequence[FileState]) -> None:
        """Refuses files that differ from the files of the split.

        Raises:
            DataError: if one of them changed, or there are more or fewer.
        """
        remedy = (
            "Put the file of the run back; or score this one as new data, with "
            "graphfold evaluate RUN --data PATH."
        )
        for then, now in zip(self.files, files, strict=False):
            if then.content != now.content:
                fault = "the file changed since the run split it"
            elif then.num_records != now.num_records:
                fault = (
                    f"{now.num_records} records are usable, but the run had "
                    f"{then.num_records}: they are not read as they were"
                )
            else:
                continue
            raise DataError(f"{now.path}: {fault}. {remedy}", path=now.path)
        if len(files) != len(self.files):
            raise DataError(
                f"the run split {len(self.files)} files, but now there are {len(files)}. "
                "Give the files of the run."
            )
        total = sum(file.num_records for file in files)
        numbers = torch.cat([self.train, self.val, self.test])
        if len(numbers) != total:
            raise DataError(
                f"the split of the run divides {len(numbers)} records, but there are {total}. "
                "Restore its files, or train again."
            )
        wrong = numbers[(numbers < 0) | (numbers >= total)]
        if len(wrong):
            raise DataError(
                f"the split of the run names record {int(wrong[0])}, but there are {total}, "
                "counted from 0. Restore its files, or train again."
            )


def _of_digits(parts: str) -> list[Tensor]:
    """The record numbers of train, val and test."""
    digits = np.frombuffer(parts.encode("ascii"), np.uint8) - ord("0")
    if (digits >= len(PARTS)).any():
        raise ValueError("a record is in none of the parts")
    return [torch.from_numpy(np.flatnonzero(digits == digit)) for digit in range(len(PARTS))]


def everything_is_test(num_records: int) -> Split:
    """A split with all records in test."""
    none = torch.empty(0, dtype=torch.int64)
    return Split(none, none, torch.arange(num_records), "all")
