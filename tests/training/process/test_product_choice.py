"""The kernel of a run: fast and accurate enough, measured once per machine."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from graphfold.training.process import product_choice
from graphfold.training.process.product_choice import choose_products, load_kernels
from graphfold.training.process.products import Kernel


class Machine:
    """Stands in for the probe; counts how often it is asked."""

    def __init__(self, speed: float = 2.0, error: float = 1e-6, has_onednn: bool = True) -> None:
        self.kernels = [Kernel("default", 1.0, 5e-7)]
        self.kernels += [Kernel("onednn", speed, error)] * has_onednn
        self.probes = 0

    def probe(self) -> list[Kernel]:
        self.probes += 1
        return self.kernels


@pytest.fixture
def on(monkeypatch: pytest.MonkeyPatch):
    """Puts the tests on another machine."""

    def put(machine: Machine) -> Machine:
        monkeypatch.setattr(product_choice, "probe_kernels", machine.probe)
        return machine

    return put


@pytest.mark.parametrize(
    ("machine", "chosen"),
    [
        (Machine(), "onednn"),
        (Machine(speed=1.05), "default"),
        (Machine(error=2e-3), "default"),
        (Machine(has_onednn=False), "default"),
    ],
)
def test_auto_takes_the_fastest_that_is_accurate(on, machine: Machine, chosen: str) -> None:
    on(machine)
    assert choose_products("auto").name == chosen


def test_the_accuracy_is_what_is_asked_for(on) -> None:
    on(Machine(error=2e-3))
    assert choose_products("auto", max_error=1e-2).name == "onednn"


def test_default_needs_no_probe(on) -> None:
    machine = on(Machine())
    assert choose_products("default").name == "default"
    assert machine.probes == 0


def test_a_wanted_kernel_is_used_though_it_is_slow(on) -> None:
    on(Machine(speed=0.5))
    assert choose_products("onednn").name == "onednn"


@pytest.mark.parametrize(
    ("machine", "fault"),
    [
        (Machine(error=2e-3), "has a relative error of 2e-03 here, so PyTorch's default is used"),
        (Machine(has_onednn=False), "is not to be had here, so PyTorch's default is used"),
    ],
)
def test_a_wanted_kernel_that_does_not_do_is_replaced_with_a_warning(
    on, machine: Machine, fault: str
) -> None:
    on(machine)
    with pytest.warns(UserWarning, match=f"products=onednn: this kernel {fault}"):
        assert choose_products("onednn").name == "default"


def test_a_machine_is_measured_once_for_each_number_of_threads(on, tmp_path: Path) -> None:
    machine = on(Machine())
    for threads in (1, 2, 1, 2):
        torch.set_num_threads(threads)
        assert load_kernels(tmp_path / "new") == machine.kernels
    assert machine.probes == 2


@pytest.mark.parametrize("damage", [b"", b"{}", b"[]", b'{"kernels": [{"x": 1}]}', b"\xff"])
def test_a_damaged_cache_is_written_anew(on, tmp_path: Path, damage: bytes) -> None:
    machine = on(Machine())
    load_kernels(tmp_path)
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    path.write_bytes(damage)
    assert load_kernels(tmp_path) == machine.kernels
    assert path.read_bytes() == whole


def test_a_cache_that_cannot_be_written_is_done_without(on, tmp_path: Path) -> None:
    machine = on(Machine())
    (tmp_path / "file").write_text("")
    for _ in range(2):
        assert load_kernels(tmp_path / "file") == machine.kernels
    assert machine.probes == 2
