"""Kernels of products: their setting, and what the probe measures of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from graphfold.training.process import products
from graphfold.training.process.products import (
    KERNELS,
    Kernel,
    probe_kernels,
    products_in_use,
    use_products,
)


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_is_in_use_until_another_is(name: str) -> None:
    use_products(name)
    assert products_in_use() == name


def test_a_precision_that_is_no_kernel_counts_as_default() -> None:
    torch.set_float32_matmul_precision("high")
    assert products_in_use() == "default"


def test_the_probe_measures_and_leaves_setting_and_generator_alone() -> None:
    use_products("onednn")
    state = torch.get_rng_state()
    default, *others = probe_kernels()
    assert products_in_use() == "onednn"
    assert torch.equal(torch.get_rng_state(), state)
    assert (default.name, default.speed) == ("default", 1.0)
    assert default.error < 1e-6
    assert all(kernel.name in KERNELS and kernel.speed > 0 for kernel in others)


def test_a_kernel_that_rounds_shows_in_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a CPU with AMX, where oneDNN multiplies numbers of bfloat16."""
    original: Callable[..., torch.Tensor] = torch.Tensor.__matmul__

    def rounded(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        if products_in_use() == "onednn" and left.dtype == torch.float32:
            left, right = left.bfloat16().float(), right.bfloat16().float()
        return original(left, right)

    monkeypatch.setattr(torch.Tensor, "__matmul__", rounded)
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    default, onednn = probe_kernels()
    assert default.error < 1e-6
    assert 1e-4 < onednn.error < 1e-2


@pytest.mark.parametrize(("has_onednn", "has_gpu"), [(False, False), (True, True)])
def test_without_onednn_or_beside_a_gpu_there_is_only_the_default(
    has_onednn: bool, has_gpu: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: has_onednn)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: has_gpu)
    assert [kernel.name for kernel in probe_kernels()] == ["default"]


def test_speed_is_relative_to_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(
        products, "_seconds", lambda _: 0.5 if products_in_use() == "onednn" else 1.0
    )
    assert [kernel.speed for kernel in probe_kernels()] == [1.0, 2.0]


def test_a_kernel_says_what_was_measured_of_it() -> None:
    assert str(Kernel("default")) == "default"
    assert (
        str(Kernel("onednn", 1.9, 9.1e-7))
        == "onednn (1.9 x the default's speed, relative error 9e-07)"
    )
