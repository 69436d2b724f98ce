"""The part of a given split that a row of a table belongs to, as one of its columns says."""

from __future__ import annotations

from collections.abc import Mapping

from graphfold.errors import RecordError, shortened

#: The feature of whole graphs that holds the part: "train", "val" or "test".
PART = "part of the split"

#: The words of tables, in lower case -> part.
WORDS: Mapping[str, str] = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("val", "valid", "validation", "dev"), "val"),
    **dict.fromkeys(("test", "testing"), "test"),
}


def read_part(cell: str, column: str) -> str:
    """The part that a cell names; raises RecordError if it names none."""
    part = WORDS.get(cell.strip().lower())
    if part is None:
        raise RecordError(
            f"'{shortened(cell)}' in the split column '{column}' is no part",
            f"Write one of {', '.join(WORDS)}, or set data.on_error=skip.",
        )
    return part
