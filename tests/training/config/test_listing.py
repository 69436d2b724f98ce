"""`graphfold list`: every choice, and what it is."""

from __future__ import annotations

from pathlib import Path

import pytest
from training.tiny_runs import run

import graphfold.layers
from graphfold.datasets.splits.split_records import SPLITS
from graphfold.layers.heads.automatic import HEADS
from graphfold.metrics import builtin_metrics
from graphfold.training.config.available import list_choices
from graphfold.training.config.folder import config_folder


@pytest.fixture(scope="module")
def choices() -> dict[str, dict[str, str]]:
    return {item.title: dict(item.names) for item in list_choices()}


def test_every_option_of_every_group_is_named(choices: dict[str, dict[str, str]]) -> None:
    files = [path for path in config_folder().glob("*/*.yaml") if not path.stem.startswith("_")]
    assert len(files) > 50
    assert all(path.stem in choices[path.parent.name] for path in files)


def test_what_values_may_name_is_what_the_code_has(choices: dict[str, dict[str, str]]) -> None:
    assert list(choices["splits"]) == list(SPLITS)
    for task in ("regression", "binary", "multiclass"):
        assert list(choices[f"metrics of {task}"]) == list(builtin_metrics(task))
    assert set(choices["heads"]) == {head.__name__ for head in HEADS}
    for kind in ("heads", "readouts", "cells"):
        assert all(hasattr(graphfold.layers, name) for name in choices[kind])
    listed = [name for kind in ("heads", "readouts", "cells") for name in choices[kind]]
    exported = [n for n in graphfold.layers.__all__ if n.endswith(("Head", "Readout", "Cell"))]
    assert sorted(listed) == sorted(set(exported) - {"Head", "Readout"})


def test_every_choice_says_what_it_is(choices: dict[str, dict[str, str]]) -> None:
    assert [(kind, n) for kind, names in choices.items() for n in names if not names[n]] == []
    assert choices["readouts"]["MeanReadout"].endswith("Options: field='h', over='nodes'.")
    assert choices["metrics of regression"]["rmse"].endswith("Lower is better.")
    assert choices["metrics of regression"]["r2"].endswith("Higher is better.")


def test_a_folder_of_ones_own_is_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "mine.yaml").write_text("# A model of mine.\n_target_: x.Y\n")
    assert run("list", "--config-dir", tmp_path) == 0
    assert "A model of mine." in capsys.readouterr().out
    assert run("list", "--config-dir", tmp_path / "none") == 2
    assert "no such folder" in capsys.readouterr().err
