"""Settings of all tests: hypothesis profiles and where the real corpora are."""

from __future__ import annotations

import builtins
import importlib.util
import io
import os
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, settings
from torch import Tensor

from graphfold.batching import Batch, Network, States
from graphfold.batching.backends.triton import TritonBackend
from graphfold.batching.cell import NodeInput
from graphfold.batching.engine.compiled import choice, programs
from graphfold.batching.native.library import cache_folder

# The machines that run the tests differ in speed by much, so time is no reason to fail.
settings.register_profile(
    "default",
    deadline=None,
    max_examples=10,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("ci", settings.get_profile("default"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")

# Test graphs are small: a second thread has nothing to do but wait.
torch.set_num_threads(1)


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--share` and `--seed` choose some of the tests, so that each round looks at other ones."""
    parser.addoption("--share", type=float, default=1.0, help="share of the tests to run")
    parser.addoption("--seed", default="0", help="text that decides which tests these are")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out all but the share of the tests that the seed chooses, each for itself.

    Also those on a GPU whose own tensors lie on the CPU.
    """
    share, seed = config.getoption("--share"), config.getoption("--seed")
    left_out = [
        item
        for item in items
        if random.Random(f"{seed} {item.nodeid}").random() >= share
        or {"gpu", "on_cpu"} <= {mark.name for mark in item.iter_markers()}
    ]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        gone = set(left_out)
        items[:] = [item for item in items if item not in gone]


without_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="triton is not installed"
)


@pytest.fixture(
    scope="module",
    params=[
        ("native", "cpu"),
        ("torch", "cpu"),
        pytest.param(("triton", "cpu"), marks=[pytest.mark.slow, without_triton]),
        pytest.param(("torch", "cuda"), marks=pytest.mark.gpu),
        pytest.param(("triton", "cuda"), marks=[pytest.mark.gpu, without_triton]),
    ],
    ids="-".join,
)
def backend(request: pytest.FixtureRequest) -> Iterator[str]:
    """The tests of a module run once per backend; with `-m gpu`, networks run on a CUDA device.

    On a CPU Triton's interpreter runs its kernels, slowly.
    """
    name, device = request.param
    with pytest.MonkeyPatch.context() as patch, np.errstate(all="ignore"):
        patch.setattr(choice, "BACKENDS", {name: choice.BACKENDS[name]})
        if (name, device) == ("triton", "cpu"):
            patch.setenv("TRITON_INTERPRET", "1")
            patch.setattr(TritonBackend, "devices", ("cpu",))
        if device != "cpu":
            patch.setattr(Network, "forward", _forward_on(torch.device(device)))
        yield name


def _forward_on(device: torch.device) -> Callable[..., States]:
    """A network's `forward` that computes on a device what tests hold on the CPU."""
    forward = Network.forward

    def moved(tensors: NodeInput) -> NodeInput:
        if isinstance(tensors, Tensor):
            return tensors.to(device)
        return {name: tensor.to(device) for name, tensor in tensors.items()}

    def forward_there(
        self: Network,
        batch: Batch,
        x: Mapping[str, NodeInput],
        shared: Mapping[str, Tensor] | None = None,
    ) -> States:
        self.to(device)
        there = {name: moved(tensors) for name, tensors in x.items()}
        shared = {name: tensor.to(device) for name, tensor in (shared or {}).items()}
        states = forward(self, batch.to(device), there, shared)
        return _Fetched(states._fields, states._row, states._has, states._sparse)

    return forward_there


class _Fetched(States):
    """States whose fields come to the CPU when they are asked for."""

    def __getitem__(self, field: str) -> Tensor:
        return super().__getitem__(field).cpu()


@pytest.fixture(autouse=True)
def _process_as_before() -> Iterator[None]:
    """What commands choose for their process, threads and precision, is undone after each test.

    Warnings about cells that run as they are come once in a process, and here once in a test.
    """
    choice._SAID.clear()
    threads, precision = torch.get_num_threads(), torch.get_float32_matmul_precision()
    yield
    torch.set_num_threads(threads)
    torch.set_float32_matmul_precision(precision)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often `open` has opened each file, by its path."""
    counts: Counter[str] = Counter()
    original = builtins.open

    def open_and_count(file: Any, *arguments: Any, **options: Any) -> Any:
        counts[str(file)] += 1
        return original(file, *arguments, **options)

    monkeypatch.setattr(builtins, "open", open_and_count)
    monkeypatch.setattr(io, "open", open_and_count)  # that of pathlib
    return counts


@pytest.fixture
def own_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests that change the compiler: cells of other tests have no part in what it makes."""
    monkeypatch.setattr(programs, "_OF_FORM", {})


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What tests pack goes with them; the compiled library is that of the user."""
    native = cache_folder()
    base = tmp_path_factory.mktemp("cache")
    (base / "graphfold").mkdir()
    if native is not None:
        native.mkdir(parents=True, exist_ok=True)
        (base / "graphfold" / "native").symlink_to(native)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(base))
        yield


@pytest.fixture(scope="session")
def data_root() -> Path:
    """The folder of the real corpora; skips the test where there is none."""
    root = Path(
        os.environ.get("GRAPHFOLD_DATA") or Path(__file__).parents[2] / "shared" / "data"
    ).expanduser()
    if not root.is_dir():
        pytest.skip(f"no corpora at {root}; set GRAPHFOLD_DATA to their folder")
    return root
