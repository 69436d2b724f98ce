"""`graphfold check-adapter` with a config of one's own."""

from __future__ import annotations

from pathlib import Path

import pytest
from training.tiny_runs import read_json, run, write_molecules

CONFIG = """defaults:
  - _base
adapter: smiles
path: {path}
target_columns: [c]
on_error: skip
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = write_molecules(tmp_path / "m.csv", num_rows=10, bad_rows=1)
    (tmp_path / "conf" / "data").mkdir(parents=True)
    (tmp_path / "conf" / "data" / "own.yaml").write_text(CONFIG.format(path=path))
    return tmp_path


def check(folder: Path, name: str, *more: str | Path) -> int:
    cache = ("--set", f"cache_dir={folder}/cache", "--json", folder / "card.json")
    return run("check-adapter", name, "--config-dir", folder / "conf", *cache, *more)


def test_a_config_names_adapter_file_and_options(folder: Path) -> None:
    assert check(folder, "own") == 0
    card = read_json(folder / "card.json")
    assert (card["records"], card["skipped"]) == (8, 2)  # one is no molecule, one not measured
    assert set(card["targets"]) == {"c"}


def test_another_file_and_other_settings_come_first(folder: Path) -> None:
    other = write_molecules(folder / "other.csv", num_rows=6)
    assert check(folder, "own", "--data", other, "--set", "target_columns=['a b']") == 0
    card = read_json(folder / "card.json")
    assert (card["records"], set(card["targets"])) == (6, {"a b"})
    assert check(folder, "own", "--on-error", "raise") == 2


def test_a_config_that_is_not_there(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(folder, "won") == 2
    assert "no data 'won'. Did you mean 'own'?" in capsys.readouterr().err


def test_the_most_frequent_labels_are_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trees = tmp_path / "t.txt"
    trees.write_text("(S (NP a) (VP (V b) (NP c)))\n(NP d)\n")
    card = tmp_path / "card.json"
    words = ("check-adapter", "brackets", "--data", trees, "--json", card)
    assert run(*words, "--set", f"cache_dir={tmp_path}/cache") == 0
    assert "type:word/label: 2 different: NP 3, V 1\n" in capsys.readouterr().out
    assert read_json(card)["frequent"]["type:phrase/label"] == {"S": 1, "VP": 1}
