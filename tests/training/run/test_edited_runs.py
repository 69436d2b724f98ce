"""A run that is continued with a changed config, or with a damaged last.ckpt."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from training.tiny_runs import run, train, write_molecules


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    own = ["data=smiles", f"data.path={write_molecules(folder / 'm.csv')}", "model=dmpnn"]
    own += ["data.target_columns=['a b']", "model.hidden_size=4", "model.run=eager"]
    return train(folder / "run", *own, "trainer.max_epochs=1", "data.num_workers=0")


@pytest.fixture
def copied(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


def test_a_config_that_was_edited_no_longer_fits(
    copied: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (copied / "config.yaml").read_text()
    assert "hidden_size: 4" in text
    (copied / "config.yaml").write_text(text.replace("hidden_size: 4", "hidden_size: 6"))
    assert run("train", f"resume={copied}", "trainer.max_epochs=2") == 2
    error = capsys.readouterr().err
    assert "its progress cannot be taken up" in error
    assert "--debug" not in error


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("optimizer", {}),
        ("lr_scheduler", 3),
        ("generators", [{"python": 1}]),
        ("step", None),
    ],
)
def test_damaged_progress_is_refused(
    key: str, value: Any, copied: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = copied / "checkpoints" / "last.ckpt"
    content = torch.load(path, weights_only=True)
    node = content["progress"]
    *above, last = key.split(".")
    for part in above:
        node = node[int(part) if part.isdecimal() else part]
    node[last] = value
    torch.save(content, path)
    assert run("train", f"resume={copied}", "trainer.max_epochs=2") == 2
    error = capsys.readouterr().err
    assert "--debug" not in error
    assert "progress" in error


def test_a_damaged_spec_is_refused_by_all_that_reads_it(
    copied: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in (copied / "checkpoints").iterdir():
        content = torch.load(path, weights_only=True)
        torch.save({**content, "spec": json.dumps({"source": {}})}, path)
    for command in (["train", f"resume={copied}", "trainer.max_epochs=2"], ["evaluate", copied]):
        assert run(*command) == 2
        assert "the feature spec of the run cannot be read" in capsys.readouterr().err


def test_data_with_another_target_are_refused(
    finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = str(finished.parent / "m.csv")
    assert run("evaluate", finished, "--data", table, "--set", "target_columns=[c]") == 2
    error = capsys.readouterr().err
    assert "the model predicts 'a b' of the graph, numbers, and the data have as" in error
    assert "'c' of the graph" in error
    words = ["--set", "target_columns=[active]", "--set", "task=classification"]
    assert run("evaluate", finished, "--data", table, *words) == 2
    assert "the model predicts 'a b'" in capsys.readouterr().err
    assert run("evaluate", finished, "--data", table, "--set", "target_columns=['a b',c]") == 0
