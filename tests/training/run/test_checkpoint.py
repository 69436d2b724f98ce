"""Checkpoints hold plain tensors and JSON, and the names of files without their places."""

from __future__ import annotations

import json
import os
import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from training.tiny_runs import QUICK, read_json, run, train, write_molecules

import graphfold
from graphfold.errors import CheckpointError
from graphfold.training.run.checkpoint import (
    FORMAT,
    SCHEMA_NUMBER,
    Checkpoint,
    split_without_places,
    with_places,
    without_places,
)


def make() -> Checkpoint:
    return Checkpoint(
        config={"seed": 1, "name": "ünï"},
        spec={"source": {}},
        split={"train": [0, 2]},
        packages=["mine"],
        state_dict={"weight": torch.arange(3.0)},
        training_records=torch.tensor([5, -7]),
        progress={"epoch": 3, "generators": [{"torch": torch.get_rng_state()}]},
    )


def test_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "x.ckpt"
    make().save(path)
    loaded = Checkpoint.load(path)
    assert loaded.config == make().config
    assert loaded.split == make().split
    assert loaded.packages == ["mine"]
    assert torch.equal(loaded.state_dict["weight"], torch.arange(3.0))
    assert loaded.progress["epoch"] == 3


def test_everything_but_tensors_is_json(tmp_path: Path) -> None:
    make().save(tmp_path / "x.ckpt")
    content = torch.load(tmp_path / "x.ckpt", weights_only=True)
    assert content["schema_number"] == SCHEMA_NUMBER
    for key in ("config", "spec", "split", "packages", "versions"):
        json.loads(content[key])


class Evil:
    """Runs a command when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("evil",)


def damaged(path: Path, kind: str) -> None:
    make().save(path)
    if kind == "empty":
        path.write_bytes(b"")
    elif kind == "cut":
        path.write_bytes(path.read_bytes()[:-200])
    elif kind == "text":
        path.write_text("hello")
    elif kind == "pickle":
        path.write_bytes(pickle.dumps({"format": FORMAT}))
    elif kind == "evil":
        torch.save({"format": FORMAT, "schema_number": SCHEMA_NUMBER, "config": Evil()}, path)
    elif kind == "list":
        torch.save([1, 2], path)
    elif kind in ("older", "newer"):
        number = SCHEMA_NUMBER + (1 if kind == "newer" else -1)
        torch.save({"format": FORMAT, "schema_number": number}, path)
    elif kind == "half":
        torch.save({"format": FORMAT, "schema_number": SCHEMA_NUMBER, "config": "{"}, path)
    elif kind == "folder":
        path.unlink()
        path.mkdir()


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("empty", "not a checkpoint"),
        ("cut", "not a checkpoint of graphfold, or damaged"),
        ("text", "not a checkpoint"),
        ("pickle", "not a checkpoint"),
        ("evil", "cannot be read as tensors and plain values"),
        ("list", "not a checkpoint of graphfold"),
        ("older", "another version of graphfold. Train again"),
        ("newer", "another version of graphfold. Train again"),
        ("half", "not a checkpoint of graphfold, or damaged"),
        ("folder", "cannot be read"),
    ],
)
def test_a_file_that_is_no_checkpoint(
    kind: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    damaged(tmp_path / "x.ckpt", kind)
    with pytest.raises(CheckpointError, match=message) as caught:
        Checkpoint.load(tmp_path / "x.ckpt")
    assert "x.ckpt" in caught.value.message
    assert not (tmp_path / "evil").exists()


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("private")
    (folder / "secret").mkdir()
    table = write_molecules(folder / "secret" / "m.csv")
    own = ["data=smiles", f"data.path={table}", "data.target_columns=['a b']", "ensemble=2"]
    return train(folder / "run", *own, *QUICK)


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


def test_a_run_is_scored_from_any_folder(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("evaluate", finished, "--json", "found.json") == 0
    assert read_json(tmp_path / "found.json") == read_json(finished / "metrics.json")
    assert run("evaluate", finished / "members" / "2" / "checkpoints" / "best.ckpt") == 0


def test_a_checkpoint_alone_needs_the_path_of_its_data(
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


def test_places_of_every_form_are_left_out() -> None:
    data = {
        "path": {"train": ["/a/b.csv", "c/*.csv"], "test": None},
        "root": "/r",
        "cache_dir": "/c",
        "vectors": "/v/glove.txt",
        "features_from": {"graph": ["a/b"], "node": "/f/*.npz"},
        "seed": 3,
    }
    config = {"data": data, "init_from": "/x/run", "name": "a/b"}
    assert without_places(config) == {
        "data": {
            "path": {"train": ["b.csv", "*.csv"], "test": None},
            "root": None,
            "cache_dir": None,
            "vectors": "glove.txt",
            "features_from": {
                "graph": {"file": None, "columns": {"a/b": None}, "key": None},
                "node": {"file": "*.npz", "columns": None, "key": None},
            },
            "seed": 3,
        },
        "init_from": "run",
        "name": "a/b",
    }
    split = {"train": [1], "files": [{"path": "/a/b.csv", "content": "x"}]}
    assert split_without_places(split)["files"] == [{"path": "b.csv", "content": "x"}]
    assert with_places(config, Path("/nowhere/at/all/best.ckpt")) == config


def test_a_run_on_made_data_is_scored_where_it_lies(listops_copy: Path, tmp_path: Path) -> None:
    best = Checkpoint.load(listops_copy / "checkpoints" / "best.ckpt")
    assert best.config["data"]["cache_dir"] is None
    assert run("evaluate", listops_copy, "--json", tmp_path / "x.json") == 0
    assert read_json(tmp_path / "x.json") == read_json(listops_copy / "metrics.json")
