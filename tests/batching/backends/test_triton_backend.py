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
from engine_cells import SCHEMA, SIZE, make_batch, make_network, make_x, random_dag
from layers.cells_table import CASES, Case
from layers.test_cell_contracts import diamond, values_and_gradients
from thinned import every

from graphfold.batching import Network, Up
from graphfold.batching.backends import torch_program, triton
from graphfold.batching.backends.fused_kernel import Launcher
from graphfold.batching.backends.triton import TritonBackend
from graphfold.batching.engine.compiled import choice, programs
from graphfold.dag import GraphBuilder
from graphfold.errors import EngineError
from graphfold.layers import ChildSumTreeLSTMCell, LeafCell, TreeFCCell

needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="triton is not installed"
)
DAG = random_dag(4, 0)


@pytest.fixture
def _interpreted(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Only this backend, without NumPy's warnings about unused rows."""
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
    actual = values_and_gradients(case, dag, network)
    torch.testing.assert_close(actual, want, rtol=1e-10, atol=1e-10)
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
    actual = states_and_gradients(network.to(dtype), DAG, {n: v.to(dtype) for n, v in x.items()})
    for name, value in want.items():
        assert actual[name].dtype == dtype
        scale = max(float(value.detach().abs().max()), 1.0)
        torch.testing.assert_close(actual[name].double(), value, rtol=0, atol=limit * scale)


@needs_triton
@pytest.mark.usefixtures("_interpreted")
def test_large_values_are_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    before = Launcher.launches
    want = states_and_gradients(tree_lstm(), DAG, make_x(DAG))
    few = Launcher.launches - before
    monkeypatch.setattr(triton, "MAX_EXPRESSIONS", 2)
    monkeypatch.setattr(programs, "_OF_FORM", {})
    before = Launcher.launches
    actual = states_and_gradients(tree_lstm(), DAG, make_x(DAG))
    assert Launcher.launches - before > few
    torch.testing.assert_close(actual, want, rtol=1e-12, atol=1e-12)


@needs_triton
@pytest.mark.usefixtures("_interpreted")
def test_a_group_takes_few_launches() -> None:
    """Forward launches one kernel before each product and one after it."""
    network, x, batch = tree_lstm(), make_x(DAG), make_batch(DAG, tree_lstm())
    with torch.no_grad():
        network(batch, x)
        before = Launcher.launches
        network(batch, x)
    assert 0 < Launcher.launches - before <= 3 * len(batch.schedule.passes[0].groups)


@needs_triton
@pytest.mark.usefixtures("_interpreted")
@pytest.mark.parametrize("num_parents", [1, torch_program.MAX_READERS, 20])
def test_gradients_of_readers_are_added_up(num_parents: int) -> None:
    """Gradients of few readers are added up in the kernel, those of many before it."""
    builder = GraphBuilder(SCHEMA)
    words = [builder.node("word") for _ in range(3)]
    for _ in range(num_parents):
        node = builder.node("phrase")
        builder.inputs(node, words[:2], weight=[1.0, 1.0])
    builder.inputs(builder.node("phrase"), [node], weight=[1.0])
    builder.output(node)
    builder.finish()
    dag = builder.build()
    network = tree_lstm()
    actual = states_and_gradients(network, dag, make_x(dag))
    network.run = "reference"
    want = states_and_gradients(network, dag, make_x(dag))
    torch.testing.assert_close(actual, want, rtol=1e-10, atol=1e-10)


@needs_triton
@pytest.mark.usefixtures("_interpreted")
def test_backward_of_a_simple_cell_takes_a_kernel_and_a_product(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One launch adds the readers' gradients, the upstream gradient and the derivative of relu."""
    length = 6
    builder = GraphBuilder(SCHEMA)
    words = [builder.node("word"), builder.node("word")]
    for _ in range(length):
        words.append(builder.node("pair"))
        builder.inputs(words[-1], words[-3:-1], weight=[1.0, 1.0])
    builder.output(words[-1])
    builder.finish()
    dag = builder.build()
    cells = {"word": LeafCell(SIZE, 4), "pair": TreeFCCell(4)}
    network = make_network([Up()], [cells])
    x, batch = make_x(dag), make_batch(dag, network)
    network(batch, x)["h"].sum().backward()
    loss = network(batch, x)["h"].sum()
    before = Launcher.launches
    loss.backward()
    assert Launcher.launches - before == length


@pytest.mark.parametrize("count", [0, 1, 2])
def test_parts_of_a_gradient_have_one_kind_even_if_absent(count: int) -> None:
    """A kernel of Triton is made for the kinds of its first arguments."""
    like = torch.zeros(0, dtype=torch.float64)
    values, reader, ptr = torch.ones(3, 2).double(), torch.tensor([0, 2]), torch.tensor([0, 1, 2])
    upstream = torch.full((2, 2), 5.0).double() if count else None
    pulled = torch_program.Pulled(upstream, [(values, reader, ptr, None)] * count, most=1)
    actual = torch_program.few(pulled, like, 2, 2)
    assert (actual.upstream.dtype, actual.values.dtype) == (torch.float64, torch.float64)
    assert (actual.reader.dtype, actual.ptr.dtype) == (torch.int64, torch.int64)
    assert (actual.has_upstream, actual.most) == (int(count > 0), int(count == 1))
    if count == 2:  # parts of two kinds are added up before
        assert actual.upstream.tolist() == [[7.0, 7.0]] * 2


def test_elsewhere_it_is_refused() -> None:
    network = tree_lstm(backend="triton")
    with pytest.raises(EngineError, match="backend=triton cannot run: .* Use backend=auto"):
        states_and_gradients(network, DAG, make_x(DAG))
