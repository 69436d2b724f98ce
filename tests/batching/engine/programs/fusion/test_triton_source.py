"""Kernels, tested by interpreted_kernels.py in a process of its own, and where they are chosen."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from fusion_checks import WIDTH, joint_of, traced_graph, twin
from test_fused_numbers import OPERATIONS
from torch import Tensor

from graphfold.batching.engine.programs.fusion.operations import is_computable
from graphfold.batching.engine.programs.fusion.regions import Kernels, Region, find_region
from graphfold.batching.engine.programs.fusion.triton_source import BLOCK, build
from graphfold.batching.engine.programs.trace import _trace
from graphfold.layers import NaryTreeLSTMCell

needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")
CPU, CUDA = torch.device("cpu"), torch.device("cuda", 0)


@needs_triton
def test_kernels_in_the_interpreter():
    # Triton reads the variable when it is imported, and torch may have imported it here.
    command = [sys.executable, "-m", "pytest", "-q", "--show-capture=no", "-p", "no:cacheprovider"]
    found = subprocess.run(
        [*command, str(Path(__file__).with_name("test_fused_numbers.py"))],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        cwd=Path(__file__).parents[5],
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

    program = _trace(joint_of(NaryTreeLSTMCell(WIDTH, WIDTH, arity)))(
        Kernels(compile_and_stand_in, packs=False)
    )
    program.backward.without()
    assert len(codes) == 2


def test_importing_the_package_leaves_triton_alone():
    code = (
        "import sys, graphfold.batching.engine.programs.fusion.choice, graphfold.layers; "
        "sys.exit('triton' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
