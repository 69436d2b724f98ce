"""Kernels, tested by interpreted_kernels.py in a process of its own, and where they are chosen."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from engine_cells import make_batch
from fusion_checks import joint_of, twin

from graphfold.batching import Network, Up
from graphfold.batching.engine.programs import fused
from graphfold.batching.engine.programs.fused import choose, is_close, is_wanted
from graphfold.batching.engine.programs.fusion import Region
from graphfold.batching.engine.programs.trace import _trace
from graphfold.dag import GraphBuilder, NodeType, Schema
from graphfold.errors import EngineError
from graphfold.layers import LeafLSTMCell

CPU, CUDA = torch.device("cpu"), torch.device("cuda", 0)


@pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")
def test_kernels_in_the_interpreter():
    # Triton reads the variable when it is imported, and torch may have imported it here.
    command = [sys.executable, "-m", "pytest", "-q", "--show-capture=no", "-p", "no:cacheprovider"]
    found = subprocess.run(
        [*command, str(Path(__file__).with_name("interpreted_kernels.py"))],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        cwd=Path(__file__).parents[4],
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stdout[-5000:] + found.stderr[-1000:]
    assert " passed" in found.stdout


def test_importing_the_package_leaves_triton_alone():
    code = (
        "import sys, graphfold.batching.engine.programs.fused, graphfold.layers; "
        "sys.exit('triton' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# --- Where kernels are wanted


def test_kernels_are_tried_on_cuda_only_unless_asked_for():
    assert is_wanted(None, CUDA)
    assert not is_wanted(None, CPU)
    assert not is_wanted(False, CUDA)


@pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")
def test_kernels_that_cannot_run_are_refused(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    assert is_wanted(True, CUDA)
    with pytest.raises(EngineError, match="fuse=True writes kernels for CUDA, but .* on 'cpu'"):
        is_wanted(True, CPU)


def test_kernels_without_triton_are_refused(monkeypatch):
    monkeypatch.setattr(fused, "find_spec", lambda name: None)
    with pytest.raises(EngineError, match="fuse=True needs Triton, which is not installed"):
        is_wanted(True, CUDA)


def test_a_network_says_so_in_its_first_pass(monkeypatch):
    monkeypatch.setattr(fused, "find_spec", lambda name: None)
    schema = Schema((NodeType("leaf", 0),))
    builder = GraphBuilder(schema)
    builder.output(builder.node("leaf"))
    builder.finish()
    network = Network(schema, [Up()], [{"leaf": LeafLSTMCell(2, 2)}], fuse=True)
    with pytest.raises(EngineError, match="Run pip install triton"):
        network(make_batch(builder.build(), network), {"leaf": torch.rand(1, 2)})


# --- Which program is chosen; regions are computed by torch here


@pytest.fixture
def joint(monkeypatch):
    """A cell for which kernels are tried as if it were on CUDA."""
    monkeypatch.setattr(fused, "is_wanted", lambda fuse, device: fuse is not False)
    monkeypatch.setattr(fused, "build", twin)
    return joint_of(LeafLSTMCell(4, 4))


def chosen(joint, fuse: bool | None) -> str:
    """The program that is chosen."""
    make = _trace(joint)
    plain = make(None)
    return "plain" if choose(joint, plain, make, fuse) is plain else "fused"


@pytest.mark.parametrize(("seconds", "name"), [((2.0, 1.0), "fused"), ((1.0, 2.0), "plain")])
def test_the_faster_program_is_chosen(joint, monkeypatch, caplog, seconds, name):
    times = iter(seconds * fused.MEASURED_TURNS)
    monkeypatch.setattr(fused, "_microseconds", lambda trial, program: next(times))
    with caplog.at_level(logging.INFO):
        assert chosen(joint, None) == name
    assert f"LeafLSTMCell takes {seconds[0]:.0f} µs" in caplog.text


def test_kernels_that_are_asked_for_are_not_measured(joint):
    assert chosen(joint, True) == "fused"
    assert chosen(joint, False) == "plain"


def wrong(region: Region):
    twin_of = twin(region)
    return lambda *inputs, **places: [t.mul_(1 + 1e-6) for t in twin_of(*inputs, **places)]


def broken(region: Region):
    raise RuntimeError("no compiler\nat all")


@pytest.mark.parametrize(
    ("build", "reason"), [(wrong, "kernels give other numbers"), (broken, "no compiler")]
)
def test_kernels_that_fail_leave_the_plain_program(joint, monkeypatch, caplog, build, reason):
    monkeypatch.setattr(fused, "build", build)
    with caplog.at_level(logging.INFO):
        assert chosen(joint, None) == "plain"
    assert "LeafLSTMCell runs without kernels: " in caplog.text
    assert reason in caplog.text
    with pytest.raises(EngineError, match=f"LeafLSTMCell cannot be fused .*{reason}.*fuse unset"):
        chosen(joint, True)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
def test_closeness_is_relative_to_the_largest_number(dtype, tolerance):
    nan, inf = float("nan"), float("inf")
    one = torch.tensor([100.0, 1e-3, nan, inf], dtype=dtype)
    for factor, expected in ((0.9, True), (2.0, False)):
        other = one + torch.tensor([0, 100 * tolerance * factor, 0, 0], dtype=dtype)
        assert is_close(one, other) is expected
    assert not is_close(one, one.flip(0))
    assert is_close(one[:0], one[:0])


def test_measuring_ends_with_the_device(joint, monkeypatch):
    events: list[object] = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: events.append("wait"))

    class Trial:
        device = CUDA

        def program(self, program: object) -> None:
            events.append(program)

    assert fused._microseconds(Trial(), "p") > 0  # type: ignore[arg-type]
    assert events == ["p", "wait", *["p"] * fused.MEASURED_RUNS, "wait"]
