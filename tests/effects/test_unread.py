"""Every option of data, split and training is read, or refused where it would not be."""

from __future__ import annotations

import re
from typing import Any

import pytest
from effects import unread
from effects.lab import Lab

from graphfold.datasets.data_module import DataModule
from graphfold.errors import ConfigError


def test_every_option_has_a_row():
    assert sorted([*unread.READ, *unread.UNREAD]) == unread.options()


@pytest.mark.parametrize(
    "row", [pytest.param(r, id=name) for name, r in sorted(unread.UNREAD.items())]
)
def test_an_option_that_is_not_read_is_refused(row, lab):
    if row.words:
        base, *overrides = row.words
        folder = f"hydra.run.dir={lab.folder}/refused"
        code, printed, errors = lab.command("train", *lab.base(base), *overrides, folder)
        assert code == 2
        assert re.search(row.message, errors)
        assert "training in" not in printed
        return
    lab.write("names.smi", "C one\nCC two\n")
    with pytest.raises(ConfigError, match=row.message):
        DataModule(
            **_in(lab, row.settings), cache_dir=lab.folder / "cache", num_workers=0
        ).prepare()


def _in(lab: Lab, value: Any) -> Any:
    """Settings with the folder of the lab in their paths."""
    if isinstance(value, dict):
        return {name: _in(lab, item) for name, item in value.items()}
    return value.replace("{lab}", str(lab.folder)) if isinstance(value, str) else value
