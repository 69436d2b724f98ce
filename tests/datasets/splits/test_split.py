"""A split is saved with the run, and refuses other files than it was made for."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from graphfold.datasets.splits.split import FileState, Split, everything_is_test
from graphfold.datasets.splits.split_ways import random_split
from graphfold.errors import ConfigError, DataError

FRACTIONS = (0.8, 0.1, 0.1)


def test_splits_are_saved_as_json():
    split = replace(random_split(30, FRACTIONS, 0), files=(FileState("f", "abc", 30),))
    back = Split.from_dict(json.loads(json.dumps(split.to_dict())))
    assert back.to_dict() == split.to_dict()
    back.check_files([FileState("elsewhere/f", "abc", 30)])


@pytest.mark.parametrize("parts", ["0031", "00/1", "00é1", [0, 0, 1]])
def test_a_damaged_split_is_refused(parts):
    stored = {**everything_is_test(4).to_dict(), "parts": parts}
    with pytest.raises(DataError, match=r"the split of the run cannot be read \(.*Restore its"):
        Split.from_dict(stored)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ([FileState("f", "abd", 30)], r"f: the file changed since the run split it\. Put the file"),
        ([FileState("f", "abc", 29)], r"f: 29 records are usable, but the run had 30: they are no"),
        ([], r"the run split 1 files, but now there are 0"),
    ],
)
def test_a_stored_split_refuses_other_files(files, message):
    split = replace(random_split(30, FRACTIONS, 0), files=(FileState("f", "abc", 30),))
    with pytest.raises(DataError, match=message):
        split.check_files(files)


def test_unknown_part():
    with pytest.raises(ConfigError, match=r"no part 'dev' of a split\. Use train, val, test"):
        random_split(10, FRACTIONS, 0).part("dev")
