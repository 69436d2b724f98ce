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
from fusion_checks import WIDTH, joint_of, traced_graph, twin
from interpreted_kernels import OPERATIONS
from torch import Tensor

from graphfold.batching import Network, Up
from graphfold.batching.engine.programs import fused
from graphfold.batching.engine.programs.fused import choose, is_close, is_wanted
from graphfold.batching.engine.programs.fusion import Region, find_region
from graphfold.batching.engine.programs.trace import _trace
from graphfold.batching.engine.programs.triton_ops import is_computable
from graphfold.batching.engine.programs.triton_source import BLOCK, build
from graphfold.dag import GraphBuilder, NodeType, Schema
from graphfold.errors import EngineError
from graphfold.layers import LeafLSTMCell, NaryTreeLSTMCell

needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")
CPU, CUDA = torch.device("cpu"), torch.device("cuda", 0)


@needs_triton
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


#: As signatures say it.
POINTERS = {torch.float32: "*fp32", torch.float64: "*fp64", torch.bool: "*i1"}


def compile_for_hopper(region: Region) -> bytes:
    """The machine code of a region's kernel for a device of compute capability 9."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, compile

    kernel = build(region).__globals__["kernel"]
    tensors = [*region.inputs, *region.outputs]
    names = [parameter.name for parameter in kernel.params]
    kinds = dict(zip(names, [POINTERS[n.meta["val"].dtype] for n in tensors], strict=False))
    signature = {name: kinds.get(name, "i32") for name in names} | {"BLOCK": "constexpr"}
    source = ASTSource(kernel, signature, constexprs={(names.index("BLOCK"),): BLOCK})
    code: bytes = compile(source, target=GPUTarget("cuda", 90, 32)).asm["cubin"]
    return code


@needs_triton
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_every_operation_compiles_for_a_device(dtype):
    def function(a: Tensor, b: Tensor, c: Tensor) -> list[Tensor]:
        return [operation(a, b, c) for operation in OPERATIONS.values()]

    graph = traced_graph(function, *(torch.rand(7, 2, dtype=dtype) for _ in range(3)))
    seed = next(node for node in graph.nodes if is_computable(node))
    region = find_region(graph, seed)
    assert len(region.outputs) >= len(OPERATIONS) - 2  # what is copied is the same again
    assert compile_for_hopper(region)


@needs_triton
@pytest.mark.parametrize("arity", [2, 3])
def test_a_cell_compiles_for_a_device(arity):
    codes = []

    def compile_and_stand_in(region: Region):
        codes.append(compile_for_hopper(region))
        return twin(region)

    program = _trace(joint_of(NaryTreeLSTMCell(WIDTH, WIDTH, arity)))(compile_and_stand_in)
    program.backward.without(frozenset())
    assert len(codes) == 2


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


@needs_triton
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
