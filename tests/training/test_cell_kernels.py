"""Kernels of cells are settled when a run begins, and kept with it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from training.tiny_runs import listops, read_json, run, train

from graphfold.batching.engine.programs.fusion import choice
from graphfold.batching.kernels import c_compiler
from graphfold.errors import EngineError
from graphfold.training.cell_kernels import available_kernels, describe_kernels, settle_kernels
from graphfold.training.run_folder import RunFolder
from graphfold.training.trained import TrainedModel

CPU, CUDA = torch.device("cpu"), torch.device("cuda", 0)


def config_of(fuse: bool | None = None, **more: Any) -> dict[str, Any]:
    return {"model": {"fuse": fuse}, "trainer": {"precision": "32-true"}, **more}


def fuse_of(config: Mapping[str, Any]) -> bool | None:
    fuse: bool | None = config["model"]["fuse"]
    return fuse


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with a C compiler."""
    monkeypatch.setattr(choice, "can_compile", lambda: True)
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without."""
    monkeypatch.setattr(choice, "can_compile", lambda: False)
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)


@pytest.mark.usefixtures("quick")
def test_where_nothing_is_said_there_are_kernels() -> None:
    for fuse, settled in ((None, True), (True, True), (False, False)):
        assert fuse_of(settle_kernels(config_of(fuse), CPU)) is settled
    assert fuse_of(settle_kernels(config_of(), CUDA)) is None
    assert settle_kernels({**config_of(), "model": {}}, CPU)["model"] == {}


@pytest.mark.usefixtures("quick")
def test_there_are_none_for_runs_of_other_kinds() -> None:
    assert fuse_of(settle_kernels(config_of(deterministic=True), CPU)) is False
    kinds = {"bf16-mixed": False, "16": False, "16-true": False, "64-true": True, 64: True}
    for precision, settled in kinds.items():
        config = config_of(trainer={"precision": precision})
        assert fuse_of(settle_kernels(config, CPU)) is settled
    for engine, settled in (("autograd", False), ("fast", True)):
        config = config_of() | {"model": {"fuse": None, "engine": engine}}
        assert fuse_of(settle_kernels(config, CPU)) is settled


@pytest.mark.usefixtures("bare")
def test_without_a_compiler_there_are_none() -> None:
    assert fuse_of(settle_kernels(config_of(), CPU)) is False
    with pytest.raises(EngineError, match="fuse=True needs a C compiler"):
        settle_kernels(config_of(fuse=True), CPU)
    with pytest.warns(UserWarning, match="goes on without them: fuse=True needs a C compiler"):
        assert fuse_of(available_kernels(config_of(fuse=True), CPU)) is False


@pytest.mark.usefixtures("quick")
def test_what_can_be_had_is_kept() -> None:
    for fuse in (None, False, True):
        assert available_kernels(config_of(fuse), CPU) == config_of(fuse)


def test_what_is_said() -> None:
    assert describe_kernels(config_of(True)) == "kernels for cells: compiled here"
    assert describe_kernels(config_of(False)) == "kernels for cells: none"
    assert describe_kernels(config_of()) == ""
    assert describe_kernels({"model": {}}) == ""


@pytest.mark.parametrize("command", ["false", "gcc '"])
def test_a_compiler_that_fails_compiles_nothing(
    monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    c_compiler.can_compile.cache_clear()
    monkeypatch.setenv("CC", command)
    assert not c_compiler.can_compile()
    c_compiler.can_compile.cache_clear()


@pytest.mark.skipif(not c_compiler.can_compile(), reason="there is no C compiler")
def test_a_run_keeps_its_kernels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = train(tmp_path / "run", *listops(), "model.fuse=null")
    assert fuse_of(RunFolder(folder).read_config()) is True
    assert TrainedModel.load(folder / "checkpoints" / "best.ckpt").model.network.fuse is True
    path = tmp_path / "scores.json"
    assert run("evaluate", folder, "--json", path) == 0
    assert read_json(path) == read_json(folder / "metrics.json")
    monkeypatch.setattr(choice, "can_compile", lambda: False)  # another machine
    capsys.readouterr()
    assert run("evaluate", folder, "--json", path) == 0
    assert "Last digits may differ" in capsys.readouterr().err
    assert read_json(path) == pytest.approx(read_json(folder / "metrics.json"), abs=1e-4)
