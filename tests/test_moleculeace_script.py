"""The script that tables an experiment over a folder of sets."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from types import ModuleType

import pytest
from load_script import load_script


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script, with a stand-in for `graphfold` that writes an error of seed / 10."""
    module = load_script("moleculeace", monkeypatch)

    def graphfold(words: list[str]) -> int:
        given = dict(word.split("=", 1) for word in words if "=" in word)
        if "broken" in given["data.path"]:
            return 2
        run = Path(given["hydra.run.dir"])
        run.mkdir(parents=True)
        (run / "metrics.json").write_text(json.dumps({"test/rmse": int(given["seed"]) / 10}))
        return 0

    monkeypatch.setattr(module, "graphfold", graphfold)
    return module


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "a.csv").touch()
    (tmp_path / "b.csv").touch()
    (tmp_path / "published.csv").write_text("set,forest,other\na,0.5,0.7\nb,0.7,0.8\n")
    return tmp_path


def test_the_table_has_means_over_seeds_and_sets(
    script: ModuleType, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = folder / "table.txt"
    words = ["x", str(folder), "--seeds", "1", "3", "--runs", str(folder / "runs")]
    assert script.main([*words, "--output", str(output), "trainer.max_epochs=1"]) == 0
    rows = list(csv.reader(output.read_text().splitlines()))
    assert rows == [
        ["set", "graphfold", "deviation", "forest", "other"],
        ["a", "0.200", "0.141", "0.500", "0.700"],
        ["b", "0.200", "0.141", "0.700", "0.800"],
        ["mean", "0.200", "0.141", "0.600", "0.750"],
    ]
    assert "mean  0.200" in capsys.readouterr().out
    (folder / "runs" / "x" / "a" / "seed_1" / "metrics.json").write_text('{"test/rmse": 9}')
    assert script.main([*words, "--sets", "a"]) == 0  # what is there is not trained again
    assert "a     4.650" in capsys.readouterr().out


def test_a_run_that_fails_leaves_a_gap(
    script: ModuleType, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "broken.csv").touch()
    (folder / "published.csv").unlink()
    assert script.main(["x", str(folder), "--runs", str(folder / "runs")]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["set", "graphfold", "deviation"]
    assert [line.split() for line in lines[1:]] == [
        ["a", "0.100"],
        ["b", "0.100"],
        ["broken"],
        ["mean"],
    ]
