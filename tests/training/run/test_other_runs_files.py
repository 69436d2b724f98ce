"""Files of another run, or changed ones, in the folder of a run that is continued."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from training.tiny_runs import run, train, write_molecules


def overrides(folder: Path, *more: str) -> list[str]:
    small = ["model=dmpnn", "model.hidden_size=4", "model.fuse=false", "trainer.max_epochs=1"]
    own = ["data=smiles", f"data.path={folder}/m.csv", "data.target_columns=['a b']"]
    return [*own, *small, "data.num_workers=0", *more]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run, one with another seed, one with another split, and an ensemble of two."""
    folder = tmp_path_factory.mktemp("runs")
    write_molecules(folder / "m.csv")
    kinds = {"one": [], "seed": ["seed=5"], "split": ["data.seed=5"], "two": ["ensemble=2"]}
    for name, more in kinds.items():
        train(folder / name, *overrides(folder, *more))
    return folder


@pytest.fixture
def copies(runs: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(runs, tmp_path / "runs"))


@pytest.mark.parametrize("name", ["best.ckpt", "last.ckpt"])
@pytest.mark.parametrize(
    ("other", "message"), [("seed", "holds seed 5"), ("split", "the data or the split of another")]
)
def test_a_checkpoint_of_another_run_is_refused(
    name: str, other: str, message: str, copies: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(copies / other / "checkpoints" / name, copies / "one" / "checkpoints" / name)
    assert run("train", f"resume={copies}/one", "trainer.max_epochs=2") == 2
    error = capsys.readouterr().err
    assert message in error or "the data or the split of another" in error
    assert "so it is not the file that this run wrote" in error


@pytest.mark.parametrize("name", ["best.ckpt", "last.ckpt"])
@pytest.mark.parametrize("other", ["two/members/1/checkpoints", "one/checkpoints"])
def test_a_member_replaced_by_another_one_is_refused_and_named(
    name: str, other: str, copies: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two equal members would halve the deviation of an ensemble without a word."""
    shutil.copy(copies / other / name, copies / "two" / "members" / "2" / "checkpoints" / name)
    assert run("train", f"resume={copies}/two") == 2
    error = capsys.readouterr().err
    assert f"members/2/checkpoints/{name}: holds the weights of member 1" in error


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("model.cells.0._every_.hidden_size", 6, "in the model of config.yaml. Restore config"),
        ("seed", 7, "holds seed 1, and config.yaml seed 7"),
        ("optimizer._target_", "torch.optim.LBFGS", "LBFGS"),
    ],
)
def test_a_config_that_was_edited_no_longer_fits(
    key: str, value: Any, message: str, copies: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = copies / "one" / "config.yaml"
    config = yaml.safe_load(path.read_text())
    if key.startswith("model.cells"):
        text = json.dumps(config["model"]).replace('"hidden_size": 4', f'"hidden_size": {value}')
        config["model"] = json.loads(text.replace('"size": 4', f'"size": {value}'))
    else:
        node: Any = config
        *above, last = key.split(".")
        for part in above:
            node = node[part]
        node[last] = value
    path.write_text(yaml.safe_dump(config, sort_keys=False))
    assert run("train", f"resume={copies}/one", "trainer.max_epochs=2") == 2
    error = capsys.readouterr().err
    assert message in error
    assert "--debug" not in error


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("optimizer", [3]),
        ("optimizer", {}),
        ("optimizer.state.1.exp_avg", "x"),
        ("optimizer.state.1.exp_avg", torch.zeros(1, 2, 3)),
        ("optimizer.param_groups", -1),
        ("lr_scheduler", 3),
        ("generators", [{"python": 1}]),
        ("callbacks", 3),
        ("callbacks.AverageWeights.mean", {"x": torch.zeros(1)}),
        ("history", 3),
        ("history.0.epoch", math.inf),
        ("history", ["x"]),
        ("best", "x"),
        ("epoch", "x"),
        ("epoch", math.inf),
        ("epoch", [[]]),
        ("step", None),
    ],
)
def test_damaged_progress_is_told(
    key: str, value: Any, copies: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = copies / "one" / "checkpoints" / "last.ckpt"
    content = torch.load(path, weights_only=True)
    node = content["progress"]
    *above, last = key.split(".")
    for part in above:
        node = node[int(part) if part.isdecimal() else part]
    node[last] = value
    torch.save(content, path)
    assert run("train", f"resume={copies}/one", "trainer.max_epochs=2") == 2
    error = capsys.readouterr().err
    assert "--debug" not in error
    assert "progress" in error


@pytest.mark.parametrize(
    "change",
    [
        {"source": {"types": [3]}},
        {"source": {}},
        {"scalers": None},
        {"vocabularies": 3},
        {"inputs": [1]},
        {"words": {"x": 1}},
    ],
)
def test_a_damaged_spec_is_told_by_all_that_reads_it(
    change: dict[str, Any], copies: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in (copies / "one" / "checkpoints").iterdir():
        content = torch.load(path, weights_only=True)
        content["spec"] = json.dumps({**json.loads(content["spec"]), **change})
        torch.save(content, path)
    commands = [
        ["train", f"resume={copies}/one", "trainer.max_epochs=2"],
        ["train", *overrides(copies), f"init_from={copies}/one", f"hydra.run.dir={copies}/new"],
        ["evaluate", str(copies / "one")],
    ]
    for command in commands:
        assert run(*command) == 2
        assert "the feature spec of the run cannot be read" in capsys.readouterr().err


def test_data_with_another_target_are_refused(
    copies: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table, folder = str(copies / "m.csv"), str(copies / "one")
    assert run("evaluate", folder, "--data", table, "--set", "target_columns=[c]") == 2
    error = capsys.readouterr().err
    assert "the model predicts 'a b' of the graph, numbers, and the data have as" in error
    assert "'c' of the graph" in error
    assert run("evaluate", folder, "--set", "target_columns=['a b ']") == 2
    assert "--debug" not in capsys.readouterr().err
    words = ["--set", "target_columns=[active]", "--set", "task=classification"]
    assert run("evaluate", folder, "--data", table, *words) == 2
    assert "the model predicts 'a b'" in capsys.readouterr().err
    assert run("evaluate", folder, "--data", table, "--set", "target_columns=['a b',c]") == 0
