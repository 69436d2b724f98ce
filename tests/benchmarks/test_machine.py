"""One machine as another: the libraries of a process are kept to an instruction set."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from training.tiny_runs import write_corpora

from benchmarks import machine
from benchmarks.machine import FLAGS, VARIABLES, keep_to
from graphfold.errors import ConfigError

has_avx2 = pytest.mark.skipif(
    not torch.cpu._is_avx2_supported(),  # type: ignore[no-untyped-call]
    reason="this CPU has no AVX2",
)


def cpu_with(flags: set[str], folder: Path) -> Path:
    """A stand-in for /proc/cpuinfo of a CPU with these flags."""
    path = folder / "cpuinfo"
    path.write_text(f"processor : 0\nmodel name : a CPU\nflags\t\t: fpu {' '.join(flags)}\n\n")
    return path


@pytest.mark.parametrize("name", VARIABLES)
def test_missing_instructions_are_named(name, tmp_path, monkeypatch):
    before = dict(os.environ)
    monkeypatch.setattr(machine, "CPU_INFO", cpu_with(FLAGS[name] - {"fma"}, tmp_path))
    with pytest.raises(ConfigError, match=f"--isa is '{name}', but this CPU does not have fma"):
        keep_to(name)
    monkeypatch.setattr(machine, "CPU_INFO", tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="does not have .*Use another one, or native"):
        keep_to(name)
    assert dict(os.environ) == before


@pytest.mark.slow
@has_avx2
def test_rows_of_the_command_say_what_torch_uses(tmp_path):
    root, path = write_corpora(tmp_path / "data"), tmp_path / "rows.json"
    words = ["predict", "--isa", "avx2", "--hidden-size", "4", "--json", str(path)]
    settings = [f"data.root={root}", f"data.cache_dir={tmp_path}/cache"]
    environment = {k: v for k, v in os.environ.items() if k not in VARIABLES["avx2"]}
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", *words, *settings],
        env={**environment, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert ", avx2, torch " in done.stdout.splitlines()[0]
    rows = json.loads(path.read_text())
    assert {row["isa"] for row in rows} == {"avx2"}
