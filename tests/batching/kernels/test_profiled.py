"""Kernels of ours are listed in profiles, and cost nothing but a question elsewhere."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch

from graphfold.batching.kernels import profiled as module
from graphfold.batching.kernels.profiled import profiled
from graphfold.batching.kernels.tanh import FEW_NUMBERS, tanh


@pytest.fixture
def names(monkeypatch) -> list[str]:
    """What is listed while a profiler runs."""
    found: list[str] = []
    monkeypatch.setattr(module, "_profiler_enabled", lambda: True)
    monkeypatch.setattr(module, "record_function", lambda name: nullcontext(found.append(name)))
    return found


def test_kernels_are_listed(names):
    double = profiled("double", lambda x, *, by=2: x * by)
    assert [double(3), double(3, by=4)] == [6, 12]
    assert names == ["graphfold::double"] * 2


@pytest.mark.skipif(
    torch.backends.cpu.get_cpu_capability() not in ("AVX2", "AVX512"),
    reason="tanh is torch's on this processor",
)
def test_tanh_is_listed(names):
    x = torch.rand(FEW_NUMBERS)
    torch.testing.assert_close(tanh(x), torch.tanh(x))
    assert names == ["graphfold::tanh"]


def test_nothing_is_recorded_without_a_profiler(monkeypatch):
    monkeypatch.setattr(module, "record_function", None)
    assert profiled("double", lambda x: 2 * x)(3) == 6
