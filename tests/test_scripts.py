"""What the set-up and the checks of a change do when a step fails, with stand-ins for the steps."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def program(path: Path, script: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def run(folder: Path, script: str) -> subprocess.CompletedProcess[str]:
    """A script of ours in a folder, with what lies in its bin before all other programs."""
    (folder / script).parent.mkdir(exist_ok=True)
    shutil.copy(ROOT / script, folder / script)
    environment = {**os.environ, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}
    return subprocess.run(
        [folder / script], env=environment, capture_output=True, text=True, check=False
    )


@pytest.fixture
def ci(tmp_path: Path) -> Path:
    """A folder where make notes what it is asked for, and fails if there is a file of that name."""
    script = (
        'echo "$1${ATEN_CPU_CAPABILITY:+ with $ATEN_CPU_CAPABILITY: $2}" >>calls; ! test -e "$1"'
    )
    program(tmp_path / "bin" / "make", script)
    program(tmp_path / ".venv" / "bin" / "python", "echo AVX512")
    return tmp_path


STEPS = ["setup", "setup-scatter", "test", "test-slow", "lint", "docs"]
AGAIN = "test with avx2: TESTS=tests/batching tests/layers"


def test_ci_runs_everything(ci, monkeypatch):
    monkeypatch.delenv("ATEN_CPU_CAPABILITY", raising=False)
    done = run(ci, ".ci/run")
    assert done.returncode == 0
    assert (ci / "calls").read_text().splitlines() == [*STEPS, AGAIN]
    assert done.stdout.splitlines()[-1] == "ci: all passed"


@pytest.mark.parametrize(
    ("step", "code"),
    [("setup", 1), ("setup-scatter", 0), ("test", 1), ("test-slow", 1), ("lint", 1), ("docs", 1)],
)
def test_ci_says_what_failed(step, code, ci, monkeypatch):
    monkeypatch.delenv("ATEN_CPU_CAPABILITY", raising=False)
    (ci / step).touch()
    done = run(ci, ".ci/run")
    assert done.returncode == code
    calls = (ci / "calls").read_text().splitlines()
    assert calls == (["setup"] if step == "setup" else [*STEPS, AGAIN])
    said = {
        "setup": "",
        "setup-scatter": "ci: no torch-scatter; the tests of the backend 'scatter' are skipped",
        "test": "ci: failed: test test-with-avx2",
        "test-slow": "ci: failed: test-slow",
        "lint": "ci: failed: lint",
        "docs": "ci: failed: docs",
    }
    assert said[step] in done.stdout


#: Stands for the Python of .venv: what can be imported, and what becomes of it with an install.
PYTHON = """
echo "$*" >>calls
case "$*" in
    *"import torch") test -e torch ;;
    *"import torch_scatter") test -e works ;;
    *--no-cache-dir*) ! test -e anew_fails && touch works ;;
    *"install "*) ! test -e fails && { test -e stale || touch works; } ;;
esac
"""


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    program(tmp_path / ".venv" / "bin" / "python", PYTHON)
    (tmp_path / "torch").touch()
    return tmp_path


def installs(folder: Path) -> list[str]:
    lines = (folder / "calls").read_text().splitlines()
    return [line for line in lines if line.startswith("-m pip")]


@pytest.mark.parametrize(
    ("there", "code", "num_installs"),
    [(["works"], 0, 0), ([], 0, 1), (["stale"], 0, 2), (["fails"], 1, 2),
     (["stale", "anew_fails"], 1, 3)],
)  # fmt: skip
def test_torch_scatter_is_built(there, code, num_installs, venv):
    for name in there:
        (venv / name).touch()
    done = run(venv, "scripts/setup_scatter.sh")
    assert done.returncode == code
    assert len(installs(venv)) == num_installs
    if code:
        assert "cannot be built here (.venv/torch-scatter.log says why)" in done.stderr
        assert "uninstall" in installs(venv)[-1]
    else:
        assert done.stdout.endswith("done: the backend 'scatter' can be chosen\n")


@pytest.mark.parametrize("outcome", ["no GPU", "tests fail", "tests pass"])
def test_a_gpu_is_checked_by_tests_and_then_measured(outcome: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    fails = {"no GPU": "-c", "tests fail": "-m pytest"}.get(outcome, "none")
    program(
        tmp_path / "python",
        f'echo "$@" >> {log}; case "$*" in *"{fails}"*) echo "no device" >&2; exit 1;; esac',
    )
    done = subprocess.run(
        [ROOT / "scripts/gpu_check.sh", tmp_path / "found"],
        env={**os.environ, "PYTHON": str(tmp_path / "python")},
        capture_output=True,
        text=True,
        check=False,
    )
    calls = log.read_text().splitlines()
    assert done.returncode == (outcome != "tests pass")
    measured = [call.split()[2] for call in calls if call.startswith("-m benchmarks")]
    assert measured == ([] if outcome == "no GPU" else ["sst", "treefc", "molecules"])
    assert sum("pytest -q -m gpu" in call for call in calls) == bool(measured)
