"""Finds places in JSON values."""

import pytest

from graphfold.datasets.readers.json_documents import ABSENT, JsonPath, join_path
from graphfold.errors import ConfigError

VALUE = {"a": {"two words": [10, {"b.c": "ü"}]}, "Execution Time": 1.5, "ключ": 0}


@pytest.mark.parametrize(
    ("path", "found", "name"),
    [
        ("$.a['two words'][0]", 10, "two words"),
        ("$.a[\"two words\"][1]['b.c']", "ü", "b.c"),
        ("Execution Time", 1.5, "Execution Time"),
        ("$.ключ", 0, "ключ"),
        ("$.a.x", ABSENT, "x"),
        ("$.a['two words'][2]", ABSENT, "two words"),
        ("$.a[0]", ABSENT, "a"),
    ],
)
def test_find(path: str, found: object, name: str) -> None:
    assert JsonPath(path).find(VALUE) == found
    assert JsonPath(path).name == name


@pytest.mark.parametrize("path", ["$", "", "$a", "$.a[", "$.a[*]", "$..a"])
def test_paths_that_cannot_be_read(path: str) -> None:
    with pytest.raises(ConfigError, match="the path"):
        JsonPath(path)


def test_joined_paths_can_be_read() -> None:
    for key in ("a", "two words", "b.c", "ключ"):
        assert JsonPath(join_path("$.x", key)).steps == ("x", key)
