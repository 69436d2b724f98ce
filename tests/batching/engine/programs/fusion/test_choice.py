"""Where kernels are wanted, and which program is chosen."""

from __future__ import annotations

import logging
from importlib.util import find_spec

import pytest
import torch
from engine_cells import make_batch
from fusion_checks import joint_of, twin

from graphfold.batching import Network, Up
from graphfold.batching.engine.programs.fusion import c_source, choice, triton_source
from graphfold.batching.engine.programs.fusion.choice import (
    choose,
    is_close,
    is_quick,
    is_wanted,
    kernels_for,
)
from graphfold.batching.engine.programs.fusion.regions import Kernels, Region
from graphfold.batching.engine.programs.trace import _trace
from graphfold.batching.engine.programs.trial import Trial
from graphfold.batching.kernels import products
from graphfold.dag import GraphBuilder, NodeType, Schema
from graphfold.errors import EngineError
from graphfold.layers import LeafLSTMCell

needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")
CPU, CUDA = torch.device("cpu"), torch.device("cuda", 0)


# --- Where kernels are wanted


def test_kernels_are_tried_on_cuda_only_unless_asked_for():
    assert is_wanted(None, CUDA)
    assert not is_wanted(None, CPU)
    assert not is_wanted(False, CUDA)


def test_kernels_for_other_devices_are_refused():
    with pytest.raises(EngineError, match="for CUDA and for CPUs, but the model is on 'mps'"):
        is_wanted(True, torch.device("mps"))


def test_kernels_without_triton_are_refused(monkeypatch):
    monkeypatch.setattr(choice, "find_spec", lambda name: None)
    with pytest.raises(EngineError, match="fuse=True needs Triton, .* Run pip install triton"):
        is_wanted(True, CUDA)


def test_kernels_without_a_compiler_are_refused(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setattr(choice, "can_compile", lambda: False)
    with pytest.raises(
        EngineError, match="needs a C compiler on a CPU, and none that works was found"
    ):
        is_wanted(True, CPU)
    assert is_wanted(None, CUDA)


@pytest.mark.parametrize("works", [False, True])
def test_kernels_are_quick_where_they_can_be_compiled(monkeypatch, works):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setattr(choice, "can_compile", lambda: works)
    assert is_quick(CPU) is works
    assert not is_quick(CUDA)
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert not is_quick(CPU)


@pytest.mark.parametrize("quick", [False, True])
def test_who_builds_kernels(monkeypatch, quick):
    monkeypatch.setattr(products, "are_quick", lambda dtype: quick)
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    assert kernels_for(CUDA, torch.float32) == (triton_source.build, False)
    assert kernels_for(CPU, torch.float32) == (c_source.build, quick)
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert kernels_for(CPU, torch.float32) == (triton_source.build, False)


def test_a_network_says_so_in_its_first_pass(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setattr(choice, "can_compile", lambda: False)
    schema = Schema((NodeType("leaf", 0),))
    builder = GraphBuilder(schema)
    builder.output(builder.node("leaf"))
    builder.finish()
    network = Network(schema, [Up()], [{"leaf": LeafLSTMCell(2, 2)}], fuse=True)
    with pytest.raises(EngineError, match="Install one .*, or name it in"):
        network(make_batch(builder.build(), network), {"leaf": torch.rand(1, 2)})


# --- Which program is chosen; regions are computed by torch here


@pytest.fixture
def joint(monkeypatch):
    """A cell for which kernels are tried as if it were on CUDA."""
    monkeypatch.setattr(choice, "is_wanted", lambda fuse, device: fuse is not False)
    monkeypatch.setattr(choice, "kernels_for", lambda device, dtype: Kernels(twin, packs=False))
    return joint_of(LeafLSTMCell(4, 4))


def chosen(joint, fuse: bool | None) -> str:
    """The program that is chosen."""
    make = _trace(joint)
    plain = make(None)
    return "plain" if choose(joint, plain, make, fuse) is plain else "fused"


@pytest.mark.parametrize(("seconds", "name"), [((2.0, 1.0), "fused"), ((1.0, 2.0), "plain")])
def test_the_faster_program_is_chosen(joint, monkeypatch, caplog, seconds, name):
    times = iter(seconds * choice.MEASURED_TURNS)
    monkeypatch.setattr(choice, "_microseconds", lambda trial, program: next(times))
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
    monkeypatch.setattr(choice, "kernels_for", lambda device, dtype: Kernels(build, packs=False))
    with caplog.at_level(logging.INFO):
        assert chosen(joint, None) == "plain"
    assert "LeafLSTMCell runs without kernels: " in caplog.text
    assert reason in caplog.text
    with pytest.warns(UserWarning, match=f"LeafLSTMCell runs without kernels: .*{reason}"):
        assert chosen(joint, True) == "plain"


@pytest.mark.parametrize("failures", range(choice.CHANCES + 1))
def test_kernels_may_fail_by_chance(joint, monkeypatch, failures):
    outcomes = iter([False] * failures + [True])
    monkeypatch.setattr(choice, "agrees", lambda *_: next(outcomes))
    if failures < choice.CHANCES:
        assert chosen(joint, True) == "fused"
        return
    with pytest.warns(UserWarning, match="kernels give other numbers"):
        assert chosen(joint, True) == "plain"


def test_each_trial_is_one_of_other_numbers(joint, monkeypatch):
    seen = []

    def agrees(of, program, same):
        seen.append(Trial(of, 2).cell()[0])
        return False

    monkeypatch.setattr(choice, "agrees", agrees)
    with pytest.warns(UserWarning, match="kernels give other numbers"):
        chosen(joint, True)
    assert len({tuple(numbers.flatten().tolist()) for numbers in seen}) == choice.CHANCES


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

    assert choice._microseconds(Trial(), "p") > 0  # type: ignore[arg-type]
    assert events == ["p", "wait", *["p"] * choice.MEASURED_RUNS, "wait"]
