"""JSON documents: values that would be lost or could not be kept are faults of their line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from graphfold.datasets.readers.json_documents import (
    _documents,
    finite_number,
    parse_json,
    scan_documents,
)
from graphfold.errors import DataError

BAD = [
    ('{"a": 1, "b": {"c": 1, "c": 2}}', "'c' stands twice"),
    ('["\\ud800"]', r"\\ud800 is half a character"),
    ('{"x\\uDFFF": 1}', r"\\udfff is half a character"),
    ('{"a": NaN}', "NaN is no JSON number"),
    ("9" * 5_000, "no JSON value"),
]


@pytest.mark.parametrize(("text", "fault"), BAD)
def test_bad_values_are_faults_of_their_line(text: str, fault: str, tmp_path: Path) -> None:
    value, error = parse_json(text)
    assert value is None
    assert error is not None
    assert re.search(fault, error.fault)
    path = tmp_path / "r.jsonl"
    path.write_text(f'{{"a": "\\ud83c\\udf88 \\\\ud"}}\n{text}\n[]\n')
    good, bad, last = scan_documents(path)
    assert good.value == {"a": "\N{BALLOON} \\ud"}
    assert bad.fault is not None
    assert last == (3, [], None)


def test_a_document_of_many_lines_names_the_line(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_text('{\n"a": 1}\n\n{"b": 1,\n"b": 2}\n')
    with pytest.raises(DataError, match=r"r\.json:4: is no JSON \(the key 'b' stands twice"):
        list(scan_documents(path))


class CountsReading(str):
    """Counts the characters that are searched for line ends."""

    read = 0

    def count(self, what: str, begin: int = 0, end: int | None = None) -> int:  # type: ignore[override]
        end = len(self) if end is None else end
        self.read += end - begin
        return super().count(what, begin, end)


def test_documents_of_many_lines_take_linear_time() -> None:
    text = CountsReading('{\n"a": 1\n}\n\n' * 500)
    found = list(_documents(text, Path("r.json")))
    assert [document.line for document in found] == list(range(1, 2001, 4))
    assert [document.value for document in found] == [{"a": 1}] * 500
    assert text.read <= len(text)


def test_finite_numbers_fit_a_column() -> None:
    assert [finite_number(value) for value in (1, -2.5, 3e38)] == [1.0, -2.5, 3e38]
    for value in (10**400, -(10**400), 1e39, float("nan"), True, "1", None, []):
        assert finite_number(value) is None
