"""RecordLimit: the length beyond which a line or a record is refused."""

from __future__ import annotations

from pathlib import Path

from graphfold.errors import DataError

#: The longest line and the longest record, in characters. It bounds the memory that a damaged file
#: takes, or a small one that unpacks into gigabytes.
LONGEST_RECORD = 1 << 24


class RecordLimit:
    """Adds up the length of a record, line by line.

    Args:
        path: the file, for messages.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._line = self._length = 0

    def begin(self) -> None:
        """Begins with the next record."""
        self._length = 0

    def add(self, line: int, length: int) -> None:
        """Adds a line, by its 1-based number and its length.

        Raises:
            DataError: if the record has become too long.
        """
        if self._length == 0:
            self._line = line
        self._length += length + 1
        if self._length > LONGEST_RECORD:
            raise too_long(self.path, self._line, "record")


def too_long(path: Path, line: int, what: str) -> DataError:
    """The error about a line or a record that begins in `line`."""
    return DataError.in_file(
        path,
        f"the {what} that begins here has more than {LONGEST_RECORD:,} characters. "
        "Check the file: something does not end where it should, or it is damaged.",
        line,
    )
