"""What a message shows of the input, and what it suggests."""

from __future__ import annotations

import ast
import pickle
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import graphfold
from graphfold.errors import (
    GraphfoldError,
    RecordError,
    add_note,
    did_you_mean,
    readable,
    some_of,
    write_note,
)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain \u00e9 \u65e5", "plain \u00e9 \u65e5"),
        ("a\rb\x00\u00a0\u2028", "a\\rb\\x00\\xa0\\u2028"),
        ("\udce9", "\\udce9"),
    ],
)
def test_what_cannot_be_seen_is_escaped(text, shown):
    assert readable(text) == shown


def test_of_long_text_the_middle_is_left_out():
    shown = readable("a" * 1000 + "b" * 1000, most=25)
    assert shown == "a" * 10 + " ... " + "b" * 10
    assert readable(shown, most=25) == shown


@pytest.mark.parametrize("make", [GraphfoldError, RecordError])
def test_long_quotations_are_shortened(make):
    long = "x" * 100_000
    error = make(f"f.csv:3: the option 'a' is '{long}', which is not one of graphfold's: '{long}'")
    assert error.message.count("x" * 197 + "...'") == 2
    assert error.message.startswith("f.csv:3: the option 'a' is 'x")
    assert len(error.message) < 600
    assert pickle.loads(pickle.dumps(error)).message == error.message


@pytest.mark.parametrize(
    ("name", "hint"),
    [("smils", " Did you mean 'SMILES'?"), ("SST", " Did you mean 'sst'?"), ("xyz", "")],
)
def test_upper_case_does_not_hide_the_likely_name(name, hint):
    assert did_you_mean(name, ["sst", "SMILES"]) == hint


def test_notes_survive_a_process():
    error = GraphfoldError("a. b.", line=3)
    add_note(error, "in example 7")
    copy = pickle.loads(pickle.dumps(error))
    assert (copy.message, copy.line, copy.__notes__) == ("a. b.", 3, ["in example 7"])


def test_where_python_shows_no_notes_the_message_does():
    error, other = GraphfoldError("a. b."), OSError(2, "gone")
    for note in ("in f", "in example 7"):
        write_note(error, note)
        write_note(other, note)
    assert str(error) == "a. b.\nin f\nin example 7"
    assert str(other) == "[Errno 2] gone"
    assert error.__notes__ == other.__notes__ == ["in f", "in example 7"]


def raised_texts() -> Iterator[tuple[str, str]]:
    """The file and the fixed words of every error that is raised in the package."""
    package = Path(graphfold.__file__).parent
    for path in sorted(package.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Raise):
                words = (n.value for n in ast.walk(node) if isinstance(n, ast.Constant))
                text = "".join(word for word in words if isinstance(word, str))
                yield str(path.relative_to(package)), text


def test_no_message_calls_null_none():
    """A config says `null`; where none is an option's own word, a message writes `key=none`."""
    texts = list(raised_texts())
    assert len(texts) > 300
    wrong = [f"{path}: {text}" for path, text in texts if re.search(r"\bor none\b", text)]
    assert wrong == []


def test_of_many_names_the_first_are_shown() -> None:
    assert some_of(["a", "b"]) == "a, b"
    assert some_of([f"t{n}" for n in range(217)]) == "t0, t1, t2, t3, t4, t5 and 211 more"
