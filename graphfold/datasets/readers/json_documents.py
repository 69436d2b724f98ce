"""JSON documents of a file, one on a line or one after the other, and paths into their values.

A path is $.user.name, $['two words'] or $.items[0].
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from graphfold.datasets.files.text_files import read_lines, scan_lines
from graphfold.errors import ConfigError, DataError, RecordError

_STEP = re.compile(
    r"\.(?P<name>[^.\[\]]+)|\[(?P<index>\d+)\]|\['(?P<quoted>[^']*)'\]|\[\"(?P<double>[^\"]*)\"\]"
)

#: What `find` returns where there is nothing.
ABSENT = object()


class JsonPath:
    """A path from the root of a JSON value to one place in it.

    A part of JSONPath (RFC 9535): names after a dot, names in quotes and brackets, numbers of
    items. Text without `$` is the name of one key.

    Args:
        text: the path.

    Attributes:
        steps: the keys and the numbers of items on the way.
        name: the last key, without anything around it.

    Raises:
        ConfigError: if it is no such path.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        if not text.startswith("$"):
            self.steps: tuple[str | int, ...] = (text,)
        else:
            self.steps = _parse(text)
        if not self.steps or self.steps == ("",):
            raise ConfigError(f"the path '{text}' names no place in a record. Write $.key.")
        self.name = next((str(s) for s in reversed(self.steps) if isinstance(s, str)), text)

    def find(self, value: Any) -> Any:
        """The value at the place; `ABSENT` if the value has no such place."""
        for step in self.steps:
            if (isinstance(step, str) and isinstance(value, Mapping) and step in value) or (
                isinstance(step, int) and _is_list(value) and step < len(value)
            ):
                value = value[step]
            else:
                return ABSENT
        return value


def join_path(path: str, key: str) -> str:
    """The path of a key under another path."""
    return f"{path}.{key}" if re.fullmatch(r"\w+", key) else f"{path}[{json.dumps(key)}]"


def _parse(text: str) -> tuple[str | int, ...]:
    steps: list[str | int] = []
    position = 1
    while position < len(text):
        step = _STEP.match(text, position)
        if step is None:
            raise ConfigError(
                f"the path '{text}' cannot be read from '{text[position:]}' on. Write "
                "$.key, $['a key'] or $.list[0]."
            )
        index = step["index"]
        names = (step["name"], step["quoted"], step["double"])
        steps.append(int(index) if index else next(n for n in names if n is not None))
        position = step.end()
    return tuple(steps)


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


class Document(NamedTuple):
    """One JSON value of a file.

    Args:
        line: the 1-based line where it begins.
        value: the value; None under a fault.
        fault: why it cannot be read.
    """

    line: int
    value: Any
    fault: RecordError | None = None


def scan_documents(path: Path) -> Iterator[Document]:
    """The JSON values of a file, in order.

    Where the first line that is not blank is a JSON value, each line is one, and a bad line is a
    fault of its own; the file is read as a stream. Otherwise the file is read as a whole, and its
    values may have any layout.

    Raises:
        DataError: if the file cannot be opened, or a document of many lines cannot be read.
    """
    first = next((line for line in scan_lines(path) if line.text.strip()), None)
    if first is None:
        return
    if first.fault is None and parse_json(first.text)[1] is None:
        for line in scan_lines(path):
            if line.text.strip():
                value, fault = (None, line.fault) if line.fault else parse_json(line.text)
                yield Document(line.number, value, fault)
    else:
        yield from _whole(path)


def parse_json(text: str) -> tuple[Any, RecordError | None]:
    """The JSON value of a text, or why there is none.

    NaN and infinities are no JSON. Nor are escapes that are half a character, which no file can
    hold, and an object with one key twice, of which one value would be lost.
    """
    try:
        value = _DECODER.decode(text)
        _refuse_half_characters(text, value)
        return value, None
    except RecursionError:
        return None, RecordError("the JSON is nested too deeply")
    except ValueError as error:
        return None, RecordError(f"the text is no JSON value ({error})")


def finite_number(value: Any) -> float | None:
    """A JSON number that a column of float32 can hold; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if -_LARGEST <= value <= _LARGEST else None


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON number; write null")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        [(twice, _)] = Counter(key for key, _ in pairs).most_common(1)
        raise ValueError(f"the key '{twice}' stands twice in an object")
    return value


def _refuse_half_characters(text: str, value: Any) -> None:
    if "\\ud" not in text.lower():
        return
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        half = f"\\u{ord(error.object[error.start]):04x}"
        raise ValueError(f"{half} is half a character; write both halves") from None


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant, object_pairs_hook=_object)
_LARGEST = float(np.finfo(np.float32).max)


def _whole(path: Path) -> Iterator[Document]:
    yield from _documents("\n".join(line for _, line in read_lines(path)), path)


def _documents(text: str, path: Path) -> Iterator[Document]:
    """The JSON values of a text, one after the other, in linear time."""
    line, counted, position = 1, 0, 0
    while (position := _skip_blanks(text, position)) < len(text):
        line += text.count("\n", counted, position)
        counted = position
        try:
            value, end = _DECODER.raw_decode(text, position)
            _refuse_half_characters(text[position:end], value)
        except (ValueError, RecursionError) as error:
            at = error.lineno if isinstance(error, json.JSONDecodeError) else line
            raise DataError(
                f"{path}:{at}: is no JSON ({error}). Give one JSON value on each line, or whole "
                "documents one after the other.",
                path=str(path),
                line=at,
            ) from error
        yield Document(line, value)
        position = end


def _skip_blanks(text: str, position: int) -> int:
    while position < len(text) and text[position].isspace():
        position += 1
    return position
