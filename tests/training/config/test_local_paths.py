"""Options that name a place on this machine refuse addresses; nothing is written for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from training.tiny_runs import run

import graphfold
from graphfold.datasets.data_module import DataModule
from graphfold.errors import ConfigError
from graphfold.options import is_address

ADDRESSES = ("s3://bucket/x", "memory://x", "file:///tmp/x", "hf://datasets/x", "abfs+s://x")

#: Every option of `graphfold train` whose value is a path.
OPTIONS = (
    *("hydra.run.dir", "hydra.sweep.dir", "resume", "init_from", "+model.encoder_from"),
    *("data.path", "data.root", "data.cache_dir", "data.vectors"),
)


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("address", ADDRESSES)
def test_an_address_is_told_from_a_path(address: str) -> None:
    assert is_address(address)
    assert is_address(Path(address))


@pytest.mark.parametrize("path", ["x", "a/b:c/d", "/s3:/x", "./s3", "C:/x", "C:\\x", "a:b", 3])
def test_a_path_is_no_address(path: Any) -> None:
    assert not is_address(path)


@pytest.mark.parametrize("option", OPTIONS)
def test_training_refuses_an_address_where_a_path_is_read(
    option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["data=smiles", "data.target_columns=[c]", "model=gcn", "data.path=x.csv"]
    several = ["-m"] if "sweep" in option else []
    assert run("train", *several, *words, f"{option}=s3://bucket/x") == 2
    key = option.lstrip("+")
    error = capsys.readouterr().err
    assert f"{key} is 's3://bucket/x', but it must be a path on this machine (no address)" in error
    assert not [path for path in tmp_path.rglob("*") if path.name.startswith("s3")]


@pytest.mark.parametrize("path", [["x.csv", "s3://b/x"], {"train": "x.csv", "test": ["s3://b/x"]}])
def test_a_list_and_a_mapping_of_paths_hold_no_address(path: Any) -> None:
    with pytest.raises(ConfigError, match=r"data.path is .*but it must be a path on this machine"):
        DataModule(adapter="smiles", target_columns=["c"], path=path)


def test_a_search_and_a_run_from_python_refuse_an_address(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("tune", "hydra.run.dir=s3://b/t", "optimizer.lr=0.1,0.2") == 2
    assert "hydra.run.dir is 's3://b/t', but it must be" in capsys.readouterr().err
    with pytest.raises(ConfigError, match=r"the run folder is 's3:/b/r', but it must be a path"):
        graphfold.train({"trainer.max_epochs": 1}, folder="s3://b/r")
    assert not (tmp_path / "s3:").exists()


@pytest.mark.parametrize(
    "words",
    [
        ["evaluate", "s3://b/run"],
        ["evaluate", "run", "--data", "s3://b/x.csv"],
        ["verify", "--json", "s3://b/x.json"],
        ["check-adapter", "smiles", "--data", "s3://b/x.csv"],
        ["draw", "run", "x.csv", "--output", "s3://b/x"],
        ["train", "--config-dir", "s3://b/x"],
    ],
)
def test_options_of_commands_refuse_an_address(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*words) == 2
    assert "it must be a path on this machine (no address)" in capsys.readouterr().err
    assert not [*tmp_path.iterdir()]
