"""Options that several commands share."""

from __future__ import annotations

import pytest

from graphfold.cli import parse_arguments


@pytest.mark.parametrize(
    "words",
    [
        ["evaluate", "RUN", "--set", "a=1", "b=[x,y]", "--split", "val"],
        ["evaluate", "--set", "a=1", "b=[x,y]", "RUN", "--split", "val"],
        ["evaluate", "--set", "a=1", "RUN", "--set", "b=[x,y]", "--split", "val"],
    ],
)
def test_set_takes_one_setting_or_several(words: list[str]) -> None:
    args = parse_arguments(words)
    assert args.settings == ["a=1", "b=[x,y]"]
    assert str(args.run_path) == "RUN"
    assert args.split == "val"


def test_the_run_behind_set_may_have_an_equals_sign_in_its_path() -> None:
    args = parse_arguments(["evaluate", "--set", "a=1", "runs/lr=0.1"])
    assert args.settings == ["a=1"]
