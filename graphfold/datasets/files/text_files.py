"""Text files line by line: plain or gzipped, UTF-8, with line numbers and readable faults."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, NamedTuple, TypeVar, cast

from graphfold.datasets.files import record_limit
from graphfold.errors import DataError, RecordError

Item = TypeVar("Item")

_GZIP = b"\x1f\x8b"
_BOM = b"\xef\xbb\xbf"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")


def open_bytes(path: Path) -> IO[bytes]:
    """Opens a file for reading its bytes, unpacked where its content is gzip.

    It is opened once, so that a pipe loses nothing.

    Raises:
        DataError: if there is no such file, it cannot be opened, or it is named .gz and is no gzip.
    """
    try:
        file = path.open("rb")
        magic = file.peek(len(_GZIP))[: len(_GZIP)]
        if magic and _GZIP.startswith(magic):  # a pipe may give one byte at first
            return cast(IO[bytes], _GzipFile(file))
        if path.suffix == ".gz" and magic:
            file.close()
            raise DataError.in_file(
                path, "is named .gz, but is not gzipped. Rename it, or download it again."
            )
        return file
    except FileNotFoundError as error:
        raise DataError.in_file(path, "no such file. Correct the path.") from error
    except IsADirectoryError as error:
        raise DataError.in_file(path, "is a folder, not a file. Name a file in it.") from error
    except OSError as error:
        reason = error.strerror or error
        raise DataError.in_file(path, f"cannot be opened ({reason}). Check the file.") from error


class _GzipFile(gzip.GzipFile):
    """A gzip file that also closes the file that it unpacks."""

    def __init__(self, file: io.BufferedReader) -> None:
        self._packed = file
        super().__init__(fileobj=file, mode="rb")

    def close(self) -> None:
        """Closes both."""
        super().close()
        self._packed.close()


class Line(NamedTuple):
    """One line of a text file.

    Args:
        number: its 1-based number.
        text: its characters, without LF or CR LF; U+FFFD replaces bytes that are not UTF-8.
        fault: the error about the first such byte; None without one.
    """

    number: int
    text: str
    fault: RecordError | None = None


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """The numbers and texts of `scan_lines`, for a file that must be UTF-8 throughout.

    Raises:
        DataError: also if a line is not UTF-8.
    """
    for number, text, fault in scan_lines(path):
        if fault is not None:
            raise DataError.in_file(
                path, f"{fault.fault}. Convert the file to UTF-8.", number
            ) from fault
        yield number, text


def scan_lines(path: Path) -> Iterator[Line]:
    """The lines of a text file.

    Only LF ends a line (with the CR before it, if any): U+2028 and its like stay in the text. A
    byte order mark is dropped. The file is read as a stream, in constant memory.

    Raises:
        DataError: if the file cannot be opened, is UTF-16 or is a broken gzip, or a line is longer
            than `record_limit.LONGEST_RECORD`.
    """
    return (line for line, _ in scan_raw_lines(path))


def scan_raw_lines(path: Path) -> Iterator[tuple[Line, bytes]]:
    """The lines of `scan_lines`, each with all of its bytes."""
    number = 0
    with open_bytes(path) as file:
        try:
            while raw := file.readline(record_limit.LONGEST_RECORD + 2):
                number += 1
                if len(raw) > record_limit.LONGEST_RECORD:
                    raise record_limit.too_long(path, number, "line")
                content = raw.removesuffix(b"\n").removesuffix(b"\r")
                if number == 1 and raw.startswith(_UTF16):
                    raise DataError.in_file(path, "is UTF-16. Convert the file to UTF-8.", 1)
                if number == 1:
                    content = content.removeprefix(_BOM)
                yield _decode(number, content), raw
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            fault = "ends too early" if isinstance(error, EOFError) else "is damaged"
            raise DataError.in_file(
                path,
                f"the gzip file {fault}, after {number} readable lines. Download or pack it again.",
            ) from error
        except OSError as error:  # of the disk; it names no file
            raise DataError.in_file(
                path,
                f"cannot be read after line {number} ({error.strerror or error}). Check "
                "the disk, or copy the file again.",
            ) from error


def text_lines(text: str) -> Iterator[Line]:
    """The lines of a text, as `scan_lines` gives them for a file with this text."""
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    for number, line in enumerate(lines, 1):
        line = line.removeprefix("\ufeff") if number == 1 else line
        yield Line(number, line.removesuffix("\r"))


def at_least_one(items: Iterable[Item], path: Path, what: str) -> Iterator[Item]:
    """Passes the items through.

    Args:
        items: the records of a file.
        path: that file, for the message.
        what: what one of them is, in the plural, for the message.

    Raises:
        DataError: at the end, if there was none.
    """
    count = 0
    for count, item in enumerate(items, 1):  # noqa: B007
        yield item
    if count == 0:
        raise DataError.in_file(path, f"holds no {what}. Give a file with at least one record.")


def _decode(number: int, raw: bytes) -> Line:
    try:
        return Line(number, raw.decode("utf-8"))
    except UnicodeDecodeError as error:
        fault = RecordError(
            f"byte {error.start + 1} of the line (0x{raw[error.start]:02x}) is not UTF-8",
            "Convert the file to UTF-8, or set data.on_error=skip.",
            line=number,
        )
        return Line(number, raw.decode("utf-8", "replace"), fault)
