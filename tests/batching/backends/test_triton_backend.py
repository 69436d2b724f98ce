"""The backend of Triton, by its interpreter on a CPU, against one node at a time.

The tests that run once per backend run on it, too; those on a CPU are slow.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from compiled_checks import states_and_gradients
from engine_cells import make_batch, make_network, make_x, random_dag
from layers.cells_table import CASES, Case
from layers.test_cell_contracts import diamond, values_and_gradients
from thinned import every

from graphfold.batching import Network, Up
from graphfold.batching.backends import triton
from graphfold.batching.backends.fused_kernel import Launcher
from graphfold.batching.backends.triton import TritonBackend
from graphfold.batching.engine.compiled import choice
from graphfold.errors import EngineError
from graphfold.layers import ChildSumTreeLSTMCell

needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="triton is not installed"
)
DAG = random_dag(4, 0)


@pytest.fixture
def _interpreted(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Only this backend, and no complaints of NumPy about rows that nobody reads."""
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setattr(TritonBackend, "devices", ("cpu",))
    monkeypatch.setattr(choice, "BACKENDS", {"triton": TritonBackend()})
    with np.errstate(all="ignore"):
        yield


def tree_lstm(size: int = 3, **options: object) -> Network:
    torch.manual_seed(0)
    cells = {name: ChildSumTreeLSTMCell(size, size) for name in make_x(DAG)}
    return make_network([Up()], [cells], **options)


@needs_triton
@pytest.mark.usefixtures("_interpreted")
@pytest.mark.parametrize("case", every(4, CASES, id=lambda case: case.name))
def test_cells_are_those_of_the_reference(case: Case) -> None:
    dag = diamond(case)
    want = values_and_gradients(case, dag, case.network("reference"))
    network = case.network()
    found = values_and_gradients(case, dag, network)
    torch.testing.assert_close(found, want, rtol=1e-10, atol=1e-10)
    assert set(network.execution.values()) == {"compiled (triton)"}


@needs_triton
@pytest.mark.usefixtures("_interpreted")
@pytest.mark.parametrize(
    ("dtype", "limit"), [(torch.float32, 1e-6), (torch.float16, 2e-2), (torch.bfloat16, 1e-1)]
)
def test_other_dtypes(dtype: torch.dtype, limit: float) -> None:
    network = tree_lstm()
    x = make_x(DAG)
    want = states_and_gradients(network, DAG, x)
    found = states_and_gradients(network.to(dtype), DAG, {n: v.to(dtype) for n, v in x.items()})
    for name, value in want.items():
        assert found[name].dtype == dtype
        scale = max(float(value.detach().abs().max()), 1.0)
        torch.testing.assert_close(found[name].double(), value, rtol=0, atol=limit * scale)


@needs_triton
@pytest.mark.usefixtures("_interpreted")
def test_what_is_large_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    before = Launcher.launches
    want = states_and_gradients(tree_lstm(), DAG, make_x(DAG))
    few = Launcher.launches - before
    monkeypatch.setattr(triton, "MAX_EXPRESSIONS", 2)
    monkeypatch.setattr(choice, "_OF_FORM", {})
    before = Launcher.launches
    found = states_and_gradients(tree_lstm(), DAG, make_x(DAG))
    assert Launcher.launches - before > few
    torch.testing.assert_close(found, want, rtol=1e-12, atol=1e-12)


@needs_triton
@pytest.mark.usefixtures("_interpreted")
def test_a_group_takes_few_launches() -> None:
    """In forward, one for what a product reads and one for what is made of it."""
    network, x, batch = tree_lstm(), make_x(DAG), make_batch(DAG, tree_lstm())
    with torch.no_grad():
        network(batch, x)
        before = Launcher.launches
        network(batch, x)
    assert 0 < Launcher.launches - before <= 3 * len(batch.schedule.passes[0].groups)


def test_elsewhere_it_is_refused() -> None:
    network = tree_lstm(backend="triton")
    with pytest.raises(EngineError, match="backend=triton cannot run: .* Use backend=auto"):
        states_and_gradients(network, DAG, make_x(DAG))
