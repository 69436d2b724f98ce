"""`graphfold doctor` says what a run depends on, and empties the cache."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest
import torch

from graphfold.cli import main
from graphfold.datasets.storage.cache import size_of


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache with a stored copy of 1.5 MB, and a data root with one corpus."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("GRAPHFOLD_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("GRAPHFOLD_CACHE_GB", "2")
    (tmp_path / "graphfold").mkdir()
    (tmp_path / "graphfold" / "a.graphs").write_bytes(b"0" * 1_500_000)
    (tmp_path / "data" / "esol").mkdir(parents=True)
    return tmp_path


def test_facts(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    lines = dict(line.split("  ", 1) for line in capsys.readouterr().out.splitlines())
    facts = {name.strip(): value.strip() for name, value in lines.items()}
    assert facts["python"].startswith(platform.python_version())
    assert facts["torch"] == torch.__version__
    assert facts["instruction set"] == torch.backends.cpu.get_cpu_capability()
    assert "CUDA" in facts["torch build"]
    assert facts["native library"]
    cache = facts["cache"].removeprefix(str(folder / "graphfold"))
    size = size_of(folder / "graphfold") / 1e6  # with the native library, if it was compiled now
    assert cache.endswith(f", {size:,.1f} MB; stored copies up to 2,000.0 MB)")
    assert facts["data root"] == f"{folder / 'data'} (1 folder)"


def test_clear_cache(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--clear-cache"]) == 0
    assert capsys.readouterr().out == f"{folder / 'graphfold'}: 1.5 MB freed\n"
    assert list((folder / "graphfold").iterdir()) == []


def test_overrides_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "seed=1"]) == 2
    assert "seed=1" in capsys.readouterr().err
