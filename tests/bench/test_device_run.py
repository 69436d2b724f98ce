"""What is checked and measured of a GPU, tried on the CPU."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest
import torch
from torch import Tensor
from training.tiny_runs import MOLECULES, write_corpora

from graphfold.batching.engine.eager import EagerReader
from graphfold.batching.native.library import why_missing
from graphfold.bench import device_checks, device_run, device_speed, measure
from graphfold.bench.device_calls import count_calls, find_waits, launches
from graphfold.bench.device_checks import Check, Plan, checks, fast, problems, reference
from graphfold.bench.device_run import run_device
from graphfold.bench.device_speed import Sizes
from graphfold.training.verify import distance

CPU = torch.device("cpu")
HAS_NATIVE = why_missing(torch.float32) is None
TINY = Sizes(sst=(6, 4), treefc=(2, 4), molecules=((5,), 6))


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name, value in (
        (measure, "SECONDS", 0.0),
        (measure, "SECONDS_PER_TURN", 0.0),
        (measure, "TURNS", 2),
        (device_speed, "EPOCHS", 2),
        (device_speed, "WORKERS", (0,)),
        (device_run, "checks", lambda device: islice(checks(device), 3)),
    ):
        monkeypatch.setattr(module, name, value)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_corpora(tmp_path)
    (tmp_path / "lipophilicity").mkdir(exist_ok=True)
    lines = [f"{smiles},{number}" for number, smiles in enumerate(MOLECULES * 3)]
    text = "\n".join(["smiles,exp", *lines]) + "\n"
    (tmp_path / "lipophilicity" / "Lipophilicity.csv").write_text(text)
    return tmp_path


def test_every_check_passes_on_a_cpu() -> None:
    found = list(checks(CPU))
    assert [check for check in found if not check.passed] == []
    names = {check.name.partition(": ")[0] for check in found}
    assert names == {"up", "any number of children", "up, then down", "rounds"}
    assert len({check.name for check in found}) == len(found)


@pytest.mark.parametrize("name", problems())
def test_every_weight_and_input_has_a_gradient_to_compare(name: str) -> None:
    want = reference(problems()[name])
    assert all(bool(tensor.any()) for tensor in want)
    wrong = [*want[:-1], want[-1] * 1.001]
    assert distance(wrong, want) > 1e-5


def test_an_engine_whose_gradients_are_off_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = problems()["up"]
    want = reference(problem)
    right = EagerReader.rows

    def wrong(self: EagerReader, field: str) -> Tensor:
        rows = right(self, field)
        if rows.requires_grad:
            rows.register_hook(lambda gradient: gradient * 1.001)
        return rows

    monkeypatch.setattr(EagerReader, "rows", wrong)
    assert distance(fast(problem, Plan(), CPU), want) > 1e-5


def test_nan_is_no_pass() -> None:
    assert not Check("x", float("nan"), 1.0).passed
    assert Check("x", 0.0, 0.0).passed


def test_nan_is_null_in_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_run, "checks", lambda device: [Check("x", float("nan"), 1.0)])
    monkeypatch.setattr(device_run, "workloads", lambda *args: {})
    monkeypatch.setattr(device_run, "waits_of_a_step", lambda *args: [])
    assert run_device(CPU, (), tmp_path / "device.json") == 1
    (row,) = json.loads((tmp_path / "device.json").read_text(), parse_constant=pytest.fail)
    assert (row["error"], row["passed"]) == (None, False)


def test_compiled_cells_are_checked_where_there_are_some() -> None:
    def compiled(device: str) -> set[str]:
        return {label for label, plan, _ in device_checks._plans(torch.device(device)) if plan.fuse}

    assert compiled("cuda") == set()
    assert compiled("cpu") == ({"float64, compiled", "float32, compiled"} if HAS_NATIVE else set())


@pytest.mark.usefixtures("quick")
def test_a_run_writes_checks_and_rows(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "device.json"
    settings = [f"data.root={root}", f"data.cache_dir={root / 'cache'}"]
    assert run_device(CPU, settings, path, TINY) == 0
    rows = json.loads(path.read_text())
    assert all(row["passed"] for row in rows if row["benchmark"] == "check")
    assert all(row.keys() >= {"cpu", "isa", "torch", "products"} for row in rows)
    speeds = [row for row in rows if row["benchmark"] != "check"]
    assert {r["benchmark"] for r in speeds} == {"treefc", "sst", "sst_epoch", "molecules"}
    assert all(row["examples_per_second"] > 0 for row in speeds)
    steps = [r["variant"] for r in speeds if r["benchmark"] == "sst"]
    assert steps == (
        ["graphfold", "untraced", "cat_levels"] if HAS_NATIVE else ["graphfold", "cat_levels"]
    )
    (epoch,) = [row for row in speeds if row["benchmark"] == "sst_epoch"]
    assert epoch["examples_per_second"] == pytest.approx(12 / epoch["seconds_per_epoch"])
    (tree,) = [
        row
        for row in speeds
        if (row["shape"], row["phase"], row["variant"]) == ("random", "train", "graphfold")
    ]
    assert tree["ms_per_tree"] == pytest.approx(1e3 / tree["examples_per_second"])
    out = capsys.readouterr().out
    assert "3 checks against the reference on the CPU, 0 failed" in out
    assert "sst_epoch, float32: seconds per epoch" in out


@pytest.mark.usefixtures("quick")
def test_a_missing_corpus_is_named_and_the_rest_measured(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (root / "sst" / "train.txt").unlink()
    path = tmp_path / "device.json"
    settings = [f"data.root={root}", f"data.cache_dir={root / 'cache'}"]
    assert run_device(CPU, settings, path, TINY) == 1
    out = capsys.readouterr().out
    assert "sst: not measured. " in out
    found = {row["benchmark"] for row in json.loads(path.read_text())}
    assert found == {"check", "treefc", "molecules"}


def test_launches_and_waits_are_counted_by_name() -> None:
    names = [
        "cudaLaunchKernel",
        "cuLaunchKernelEx",
        "cudaLaunchKernelExC",
        "aten::mm",
        "cudaStreamSynchronize",
        "cudaMemcpyAsync",
        "cudaDeviceSynchronize",
    ]
    assert count_calls(names) == {"kernel_launches": 3, "waits": 1}
    assert count_calls([]) == {"kernel_launches": 0, "waits": 0}


def test_a_cpu_has_no_launches() -> None:
    def never() -> None:
        raise AssertionError("called")

    assert launches(never, CPU) == {}
    assert find_waits(never, CPU) == []


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
def test_the_script_needs_a_cuda_device() -> None:
    script = Path(__file__).parents[2] / "scripts" / "bench_gpu.py"
    found = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert found.returncode == 2
    (line,) = found.stderr.splitlines()
    assert line == "bench_gpu: this machine has no CUDA device. Run it on one that has."


@pytest.mark.gpu
def test_every_check_passes_on_a_gpu() -> None:
    assert [check for check in checks("cuda") if not check.passed] == []
