"""Checkpoints know the names of their files, and the run folder where these are."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from training.tiny_runs import listops, read_json, run, train, write_molecules

import graphfold
from graphfold.training.run.checkpoint import Checkpoint
from graphfold.training.run.places import split_without_places, with_places, without_places


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("private")
    (folder / "secret").mkdir()
    table = write_molecules(folder / "secret" / "m.csv")
    own = ["data=smiles", f"data.path={table}", "data.target_columns=['a b']", "ensemble=2"]
    return train(folder / "run", *own, "model=kernel", "data.num_workers=0")


def test_no_checkpoint_names_a_folder_of_the_machine(finished: Path) -> None:
    paths = sorted(finished.rglob("*.ckpt"))
    assert len(paths) == 5
    for path in paths:
        stored = Checkpoint.load(path)
        texts = repr((stored.config, stored.spec, stored.split))
        assert str(finished.parent) not in texts
        assert "secret" not in texts
        assert stored.config["data"]["path"] == "m.csv"
        assert stored.split["files"][0]["path"] == "m.csv"
        assert str(finished.parent).encode() not in path.read_bytes()


@pytest.mark.parametrize("name", ["", "checkpoints/best.ckpt"])
def test_a_run_is_scored_from_any_folder(
    name: str, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("evaluate", finished / name, "--json", "found.json") == 0
    assert read_json(tmp_path / "found.json") == read_json(finished / "metrics.json")
    assert run("evaluate", finished / "members" / "2" / "checkpoints" / "best.ckpt") == 0


def test_a_checkpoint_alone_is_told_where_its_data_are(
    finished: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    alone = shutil.copy(finished / "checkpoints" / "best.ckpt", tmp_path / "best.ckpt")
    monkeypatch.chdir(tmp_path)
    assert graphfold.load(alone).predict(["CCO"])
    assert run("evaluate", alone) == 2
    error = capsys.readouterr().err
    assert "m.csv" in error
    assert "--debug" not in error
    table = finished.parent / "secret" / "m.csv"
    assert run("evaluate", alone, "--set", f"path={table}", "--json", "found.json") == 0
    assert read_json(tmp_path / "found.json") == read_json(finished / "metrics.json")
    shutil.copy(table, tmp_path / "m.csv")
    assert run("evaluate", alone) == 0


@pytest.mark.parametrize("content", ["", "data: 3", "!!x", "data: {}", "\x00", "[1]"])
def test_a_damaged_config_of_the_folder_names_no_place(
    content: str, finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = Path(shutil.copytree(finished, tmp_path / "run"))
    (copy / "config.yaml").write_text(content)
    assert run("evaluate", copy) == 2
    assert "m.csv" in capsys.readouterr().err


def test_places_of_every_form_are_left_out() -> None:
    data = {
        "path": {"train": ["/a/b.csv", "c/*.csv"], "test": None},
        "root": "/r",
        "cache_dir": "/c",
        "vectors": "/v/glove.txt",
        "seed": 3,
    }
    config = {"data": data, "init_from": "/x/run", "name": "a/b"}
    assert without_places(config) == {
        "data": {
            "path": {"train": ["b.csv", "*.csv"], "test": None},
            "root": None,
            "cache_dir": None,
            "vectors": "glove.txt",
            "seed": 3,
        },
        "init_from": "run",
        "name": "a/b",
    }
    split = {"train": [1], "files": [{"path": "/a/b.csv", "content": "x"}]}
    assert split_without_places(split)["files"] == [{"path": "b.csv", "content": "x"}]
    assert with_places(config, Path("/nowhere/at/all/best.ckpt")) == config


def test_a_run_on_made_data_is_scored_where_it_lies(tmp_path: Path) -> None:
    folder = train(tmp_path / "run", *listops("trainer.max_epochs=1"))
    assert Checkpoint.load(folder / "checkpoints" / "best.ckpt").config["data"]["cache_dir"] is None
    moved = folder.rename(tmp_path / "moved")
    assert run("evaluate", moved, "--json", tmp_path / "x.json") == 0
    assert read_json(tmp_path / "x.json") == read_json(moved / "metrics.json")
