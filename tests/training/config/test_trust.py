"""One rule of trust for all that reads a stored run: what it may name, and what only its user."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from training.tiny_runs import listops, read_json, run, train

import graphfold
from graphfold.errors import CheckpointError
from graphfold.training.config.trust import refuse_unregistered, third_party
from graphfold.training.run.checkpoint import Checkpoint


@pytest.mark.parametrize(
    "target",
    [
        "os.system",
        "subprocess.Popen",
        "builtins.eval",
        "torch.load",
        "torch.nn.functional.relu",
        "torch.hub.load",
        "torch.nn.modules.module.functools.partial",
        "graphfold.recipe.train",
        "graphfold.training.Loop",
        "graphfold.files.whole_file",
        "graphfold.blocks.compile",
        "graphfold.blocks.models.tree_lstm.torch.nn.Linear",
        "graphfold.blocks.models.tree_lstm._with_rows",
        "graphfold.layers.graph_model.nn.Linear",
        "graphfold.datasets.storage.reading.ProcessPoolExecutor",
        "graphfold_evil.Cell",
        "functools.partial",
        "lightning.pytorch.callbacks.LambdaCallback",
        "lightning.pytorch.callbacks.ModelCheckpoint",
        "lightning.pytorch.loggers.WandbLogger",
        "${oc.env:HOME}",
        "",
        3,
    ],
)
def test_a_checkpoint_may_not_name(target: Any) -> None:
    node = {"cells": [{"word": {"_target_": target, "args": "rm -rf /"}}]}
    with pytest.raises(CheckpointError, match=r"model\.cells\[0\]\.word names .*--trust"):
        refuse_unregistered(node, (), "model")


@pytest.mark.parametrize(
    "target",
    [
        "graphfold.layers.GCNCell",
        "graphfold.layers.molecules.convolutions.GCNCell",
        "graphfold.batching.Rounds",
        "graphfold.blocks.BlockModel",
        "graphfold.blocks.models.tree_lstm",
        "torch.nn.Linear",
        "torch.optim.Adam",
        "torch.optim.lr_scheduler.StepLR",
        "graphfold.training.Trainer",
        "graphfold.training.EarlyStopping",
        "graphfold.training.AverageWeights",
        "graphfold.training.TensorBoardLogger",
        "graphfold.training.WandbLogger",
    ],
)
def test_a_checkpoint_may_name(target: str) -> None:
    refuse_unregistered({"_target_": target}, ())
    assert third_party({"_target_": target}) == []


def test_a_trusted_package_may_be_named() -> None:
    node = {"_target_": "my_cells.Cell"}
    with pytest.raises(CheckpointError, match=r"If you trust the package 'my_cells', add --trust"):
        refuse_unregistered(node, ("my_cell",))
    refuse_unregistered(node, ("my_cells",))
    assert third_party(node) == ["my_cells"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tmp_path_factory.mktemp("trust") / "run", *listops("trainer.max_epochs=1"))


@pytest.fixture
def foreign(finished: Path, tmp_path: Path) -> Path:
    """A run folder that came from elsewhere."""
    return Path(shutil.copytree(finished, tmp_path / "foreign"))


def change_config(folder: Path, **sections: Any) -> None:
    path = folder / "config.yaml"
    config = {**yaml.safe_load(path.read_text()), **sections}
    path.write_text(yaml.safe_dump(config, sort_keys=False))  # the order of files matters


def write_package(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package that leaves a trace when it is imported, with a cell like graphfold's."""
    (folder / "evilpkg.py").write_text(
        "from pathlib import Path\n"
        f"Path({str(folder / 'imported')!r}).touch()\n"
        "from graphfold.datasets.readers.listops import ListOpsAdapter as Base\n"
        "from graphfold.layers import LeafLSTMCell, NaryTreeLSTMCell\n"
        "class Reader(Base):\n    pass\n"
    )
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "evilpkg", raising=False)
    return folder / "imported"


@pytest.mark.parametrize("section", ["optimizer", "lr_scheduler", "trainer"])
@pytest.mark.parametrize("has_last", [True, False])
def test_resuming_runs_no_program_that_a_config_names(
    section: str, has_last: bool, foreign: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    touched = foreign / "touched"
    stored = yaml.safe_load((foreign / "config.yaml").read_text())[section]
    change_config(
        foreign,
        **{section: {**stored, "_target_": "subprocess.Popen", "args": ["touch", str(touched)]}},
    )
    if not has_last:
        (foreign / "checkpoints" / "last.ckpt").unlink()
    assert run("train", f"resume={foreign}") == 2
    assert f"{section} names 'subprocess.Popen'" in capsys.readouterr().err
    assert not touched.exists()


@pytest.mark.parametrize("group", ["callbacks", "logger"])
def test_resuming_makes_no_callback_and_no_logger_of_strangers(
    group: str, foreign: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change_config(foreign, **{group: {"x": {"_target_": "evilpkg.Thing"}}})
    assert run("train", f"resume={foreign}") == 2
    assert "If you trust the package 'evilpkg', add --trust evilpkg" in capsys.readouterr().err


def test_a_checkpoint_does_not_vouch_for_itself(
    foreign: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    imported = write_package(tmp_path, monkeypatch)
    path = foreign / "checkpoints" / "best.ckpt"
    stored = Checkpoint.load(path)
    cells = stored.config["model"]["cells"][0]
    for cell in cells.values():
        cell["_target_"] = cell["_target_"].replace("graphfold.layers", "evilpkg")
    stored.packages.append("evilpkg")
    path.write_bytes(stored.encode())
    assert run("train", f"resume={foreign}") == 2
    assert "add --trust evilpkg" in capsys.readouterr().err
    assert not imported.exists()
    assert run("train", f"resume={foreign}", "--trust", "evilpkg") == 0
    assert imported.exists()


def test_the_rule_is_the_same_for_all_that_reads_a_run(
    foreign: Path,
    finished: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    imported = write_package(tmp_path, monkeypatch)
    best = Checkpoint.load(foreign / "checkpoints" / "best.ckpt")
    cache = finished.parent / "cache"
    files = [next(cache.rglob(state["path"])) for state in best.split["files"]]
    parts = {p: str(f) for f in files for p in ("train", "val", "test") if p in f.name}
    own = {"adapter": "evilpkg.Reader", "path": parts, "seed": 1, "batch_size": 8}
    change_config(foreign, data=own)
    for path in (foreign / "checkpoints").iterdir():
        stored = Checkpoint.load(path)
        stored.config["data"] = own
        path.write_bytes(stored.encode())
    words: list[list[Any]] = [
        ["train", f"resume={foreign}"],
        ["evaluate", foreign],
        ["predict", foreign, next(iter(parts.values()))],
        ["verify", foreign, "--policy", "depth", "--examples", "2"],
    ]
    for command in words:
        assert run(*command) == 2
        assert "add --trust evilpkg" in capsys.readouterr().err
    with pytest.raises(CheckpointError, match="add --trust evilpkg"):
        graphfold.load(foreign)
    assert not imported.exists()
    for command in words:
        assert run(*command, "--trust", "evilpkg") == 0
    assert graphfold.load(foreign, trust=["evilpkg"]).predict(["1\t( ( ( [MAX 1 ) 0 ) ] )"])


def test_a_foreign_run_does_not_choose_the_cache_folder(
    foreign: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere, own = tmp_path / "elsewhere", tmp_path / "own"
    for path in (foreign / "checkpoints").iterdir():
        stored = Checkpoint.load(path)
        stored.config["data"]["cache_dir"] = str(elsewhere)
        path.write_bytes(stored.encode())
    data = yaml.safe_load((foreign / "config.yaml").read_text())["data"]
    change_config(foreign, data={**data, "cache_dir": str(elsewhere)})
    assert run("evaluate", foreign, "--set", f"cache_dir={own}", "--json", tmp_path / "e.json") == 0
    assert own.is_dir()
    assert read_json(tmp_path / "e.json") == read_json(foreign / "metrics.json")
    assert run("evaluate", foreign) == 0
    assert run("train", f"resume={foreign}") == 0
    assert run("verify", foreign, "--policy", "depth", "--examples", "2") == 0
    assert not elsewhere.exists()
