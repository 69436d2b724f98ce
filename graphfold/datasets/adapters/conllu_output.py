"""CoNLL-U as it stands in a file, with the columns that were predicted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from graphfold.datasets.files.text_files import open_bytes

#: Target of words -> the column, from 0, that holds it.
COLUMN_OF: Mapping[str, int] = {
    "form": 1,
    "lemma": 2,
    "upos": 3,
    "xpos": 4,
    "feats": 5,
    "deprel": 7,
}

#: The comment before a sentence without a prediction.
ERROR = "# graphfold_error = "

_BOM = "\ufeff"


def raw_sentences(path: Path) -> Iterator[str]:
    """The text of each sentence of a file with the blank lines after it, byte for byte.

    Blank lines before the first sentence belong to it. Bytes that are not UTF-8 are surrogates, so
    that encoding with "surrogateescape" gives them back.
    """
    with open_bytes(path) as file:
        lines = (line.decode("utf-8", "surrogateescape") for line in file)
        text, has_words = "", False
        for is_blank, block in groupby(enumerate(lines), lambda item: _is_blank(*item)):
            if not is_blank and has_words:
                yield text
                text = ""
            has_words = has_words or not is_blank
            text += "".join(line for _, line in block)
    if has_words:
        yield text


def _is_blank(number: int, line: str) -> bool:
    """True for the lines that part sentences, as the reader sees them."""
    line = line.removeprefix(_BOM) if number == 0 else line
    return not line.removesuffix("\n").removesuffix("\r").strip(" \t")


def with_columns(text: str, values: Mapping[str, Sequence[Any]]) -> str:
    """A sentence whose words have new cells; comments, multiword tokens and empty nodes stay.

    Args:
        text: the lines of the sentence.
        values: target in `COLUMN_OF` -> the cell of each word, in order; None leaves it as it is.
    """
    lines, number = text.split("\n"), 0
    for place, line in enumerate(lines):
        cells = line.split("\t")
        if not cells[0].lstrip(_BOM).isdecimal():
            continue
        for target, column in values.items():
            if column[number] is not None:
                cells[COLUMN_OF[target]] = str(column[number])
        lines[place] = "\t".join(cells)
        number += 1
    return "\n".join(lines)


def with_fault(text: str, reason: str) -> str:
    """A sentence as it stands, after a comment that says why there is no prediction."""
    mark = _BOM if text.startswith(_BOM) else ""
    lines = text.removeprefix(mark).split("\n")
    place = next((n for n, line in enumerate(lines) if line.strip(" \t\r")), 0)
    end = "\r" if lines[place].endswith("\r") else ""
    lines.insert(place, ERROR + " ".join(reason.split()) + end)
    return mark + "\n".join(lines)
