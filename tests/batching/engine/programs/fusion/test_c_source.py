"""Kernels in C: what only they have. Their numbers are tested in test_fused_numbers.py."""

from __future__ import annotations

import pytest
import torch
from fusion_checks import traced_graph
from torch import Tensor

from graphfold.batching.engine.programs.fusion.c_source import BLOCK, FEW_ELEMENTS, build, write
from graphfold.batching.engine.programs.fusion.operations import is_computable
from graphfold.batching.engine.programs.fusion.regions import Region, find_region
from graphfold.batching.kernels import c_compiler
from graphfold.batching.kernels.c_compiler import find_compiler
from graphfold.errors import EngineError

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="there is no C compiler")


def function(x: Tensor, y: Tensor) -> Tensor:
    return torch.tanh(x) * y + torch.exp(y)


def region_of(width: int) -> Region:
    graph = traced_graph(function, torch.rand(7, width), torch.rand(7, width))
    return find_region(graph, next(node for node in graph.nodes if is_computable(node)))


@pytest.mark.parametrize("width", [1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK - 1, 150])
def test_the_last_block_of_a_row_is_whole(width):
    x, y = torch.randn(3, width), torch.randn(3, width)
    place = torch.full((5, width), 7.0)
    (found,) = build(region_of(width))(x, y, out_0=place[1:4])
    torch.testing.assert_close(found, function(x, y), rtol=1e-6, atol=1e-6)
    assert torch.equal(place[[0, 4]], torch.full((2, width), 7.0))


@pytest.mark.parametrize("num_threads", [1, 2])
def test_threads_give_the_same_bits(num_threads):
    width = 10
    x, y = torch.randn(2, FEW_ELEMENTS // width + 5, width)
    (alone,) = build(region_of(width))(x[:3], y[:3])
    torch.set_num_threads(num_threads)
    (found,) = build(region_of(width))(x, y)
    torch.testing.assert_close(found, function(x, y), rtol=1e-6, atol=1e-6)
    assert torch.equal(found[:3], alone)


@pytest.mark.parametrize(
    ("dtype", "low", "high"), [(torch.float32, -86.8, 88.72), (torch.float64, -707.9, 709.78)]
)
def test_exp_up_to_the_largest_and_smallest_numbers(dtype, low, high):
    x = torch.linspace(low, high, 4002, dtype=dtype).view(-1, 2)
    graph = traced_graph(lambda x: torch.exp(x) * 1, torch.rand(7, 2, dtype=dtype))
    (found,) = build(find_region(graph, next(n for n in graph.nodes if is_computable(n))))(x)
    want = torch.exp(x)
    assert found.isfinite().all()
    assert ((found - want) / want).abs().max() < 4 * torch.finfo(dtype).eps


def test_equal_sources_are_compiled_once(monkeypatch):
    assert write(region_of(6)) == write(region_of(6))
    first = build(region_of(6))
    monkeypatch.setattr(c_compiler, "find_compiler", lambda: None)
    assert build(region_of(6)) is first
    with pytest.raises(EngineError, match="no C compiler was found"):
        build(region_of(9))
