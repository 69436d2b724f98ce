"""The torch backend: which backend runs, in which dtypes and where, and without a compiler."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from compiled_checks import states_and_gradients
from engine_cells import SIZE, make_batch, make_network, make_x, message_cells, random_dag, rounds
from torch import Tensor
from training.tiny_runs import listops, read_json

from graphfold.batching import Network, Pass, Up
from graphfold.batching.backends.native import NativeBackend
from graphfold.batching.backends.torch_memory import TorchBackend
from graphfold.batching.backends.torch_program import add_by_kind, one_hot
from graphfold.batching.compiler.values import Unwritable
from graphfold.dag import TypedDAG
from graphfold.errors import ConfigError, EngineError
from graphfold.layers import ChildSumTreeLSTMCell, GCNCell

DAG = random_dag(4, 0)
CPU = torch.device("cpu")


def networks() -> dict[str, Network]:
    """Trees, and rounds of message passing."""
    torch.manual_seed(0)
    return {"trees": make_network(), "rounds": make_network([rounds(2)], [message_cells()])}


def run(network: Network, dag: TypedDAG = DAG) -> dict[str, Tensor]:
    dtype = next(network.parameters()).dtype
    return states_and_gradients(network, dag, {n: x.to(dtype) for n, x in make_x(dag).items()})


def dtype_network(kind: str) -> Network:
    """Trees, or rounds, of cells that compute in any dtype."""
    torch.manual_seed(0)
    passes: list[Pass] = [Up()] if kind == "trees" else [rounds(2)]
    make = (lambda: ChildSumTreeLSTMCell(SIZE, SIZE)) if kind == "trees" else lambda: GCNCell(SIZE)
    return make_network(passes, [{name: make() for name in make_x(DAG)}], backend="torch")


@pytest.mark.parametrize("kind", ["trees", "rounds"])
def test_a_network_takes_the_named_backend(kind: str) -> None:
    network, actual = networks()[kind], {}
    for name in ("torch", "native", "auto"):
        network.backend = name
        actual[name] = run(network)
        by = "torch" if name == "torch" else "native"
        assert set(network.execution.values()) == {f"compiled ({by})"}
        assert f"compiled ({by})" in repr(network)
    torch.testing.assert_close(actual["torch"], actual["native"], rtol=1e-10, atol=1e-10)


def test_an_unknown_backend() -> None:
    with pytest.raises(
        ConfigError, match=r"no backend 'c'\. Use one of auto, native, triton, torch"
    ):
        make_network(backend="c")


@pytest.mark.parametrize("kind", ["trees", "rounds"])
@pytest.mark.parametrize(("dtype", "limit"), [(torch.bfloat16, 1e-1), (torch.float32, 1e-4)])
def test_other_dtypes(kind: str, dtype: torch.dtype, limit: float) -> None:
    network = dtype_network(kind)
    want = {name: value.detach() for name, value in run(network.double()).items()}
    actual = {name: value.detach() for name, value in run(network.to(dtype)).items()}
    assert set(network.execution.values()) == {"compiled (torch)"}
    for name, value in want.items():
        assert actual[name].dtype == dtype
        scale = max(float(value.abs().max()), 1.0)
        torch.testing.assert_close(actual[name].double(), value, rtol=0, atol=limit * scale)


def test_reasons_why_a_backend_does_not_run() -> None:
    native, by_torch, gpu = NativeBackend(), TorchBackend(), torch.device("cuda", 0)
    assert native.why_not(gpu, torch.float32) == (
        "native code runs on CPUs, and the batch is on cuda:0"
    )
    assert "not torch.bfloat16" in str(native.why_not(CPU, torch.bfloat16))
    assert by_torch.why_not(gpu, torch.bfloat16) is None
    assert by_torch.why_not(torch.device("mps"), torch.float32) == (
        "the backend 'torch' runs on cpu and cuda, not on mps"
    )
    assert "not torch.complex64" in str(by_torch.why_not(CPU, torch.complex64))


def test_a_backend_that_cannot_run_here_is_refused() -> None:
    network = make_network(backend="native").bfloat16()
    with pytest.raises(EngineError, match=r"backend=native cannot run: .*Use backend=auto \("):
        run(network)


@pytest.mark.usefixtures("own_programs")
def test_torch_runs_what_native_code_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    def unwritable(reason: str) -> Callable[..., None]:
        def write(*_: object) -> None:
            raise Unwritable(reason)

        return write

    network = make_network(run="compiled")
    want = run(network)
    monkeypatch.setattr(NativeBackend, "write_program", unwritable("it does something odd"))
    network.recompile()
    message = "Cell does not run as native code: it does something odd. It runs as operations of"
    with pytest.warns(UserWarning, match=message):
        actual = run(network)
    assert set(network.execution.values()) == {"compiled (torch)"}
    torch.testing.assert_close(actual, want, rtol=1e-10, atol=1e-10)
    monkeypatch.setattr(TorchBackend, "write_program", unwritable("it is odder still"))
    network.run = "auto"
    network.recompile()
    with pytest.warns(UserWarning, match="Cell is not compiled: it is odder still"):
        run(network)
    assert all(way.startswith("eager (") for way in network.execution.values())


@pytest.mark.usefixtures("own_programs")
def test_functions_of_torch_may_be_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch Geometric puts a function in Python in the place of one, which asks for sizes."""
    select, calls = torch.index_select, []

    def replaced(values: Tensor, dim: int, *rest: Tensor, **options: Tensor) -> Tensor:
        calls.append(dim < values.dim())
        return select(values, dim, *rest, **options)

    network = make_network(run="compiled", backend="torch")
    want = run(network)
    monkeypatch.setattr(torch, "index_select", replaced)
    network.recompile()
    torch.testing.assert_close(run(network), want, rtol=0, atol=0)
    assert set(calls) == {True}


@pytest.mark.gpu
@pytest.mark.parametrize("backend", ["torch", "triton"])
@pytest.mark.parametrize("kind", ["trees", "rounds"])
@pytest.mark.parametrize(
    ("dtype", "limit"), [(torch.float64, 1e-10), (torch.float32, 1e-4), (torch.bfloat16, 1e-1)]
)
def test_a_gpu_computes_what_the_cpu_does(
    kind: str, dtype: torch.dtype, limit: float, backend: str
) -> None:
    network = dtype_network(kind)
    want = {name: value.detach() for name, value in run(network.double()).items()}
    network.to("cuda", dtype).backend = backend
    batch = make_batch(DAG, network).to("cuda")
    x = {name: value.detach().to("cuda", dtype) for name, value in make_x(DAG).items()}
    states = network(batch, x)
    assert set(network.execution.values()) == {f"compiled ({backend})"}
    for name in states:
        assert states[name].device.type == "cuda"
        scale = max(float(want[name].abs().max()), 1.0)
        actual = states[name].detach().double().cpu()
        torch.testing.assert_close(actual, want[name], rtol=0, atol=limit * scale)


def test_no_graph_of_autograd_is_kept() -> None:
    network = make_network(backend="torch")
    states = network(make_batch(DAG, network), make_x(DAG))
    assert "_PassBackward" in str(states["h"].grad_fn.next_functions)  # type: ignore[union-attr]


def test_tensors_on_another_device_are_refused() -> None:
    """The device `meta` stands for any other device."""
    for way in ("auto", "eager", "reference"):
        network = make_network(run=way)
        batch, x = make_batch(DAG, network), make_x(DAG)
        with pytest.raises(EngineError, match=r"x\['word'\] is on meta, but the batch is on cpu"):
            network(batch, {**x, "word": x["word"].to("meta")})
        with pytest.raises(EngineError, match=r"shared\['s'\] is on meta, but the batch is on cpu"):
            network(batch, x, {"s": torch.ones(2, device="meta")})
    message = r"the parameter of PhraseCell is on meta, but .*: model\.to\(device\)"
    with pytest.raises(EngineError, match=message):
        make_network().to("meta")(batch, x)
    network = make_network()
    network.cells[0]["word"][0].linear.to("meta")
    with pytest.raises(
        EngineError, match=r"WordCell\.linear\.weight is on meta, but .*to\('cpu'\)"
    ):
        network(batch, x)


WITHOUT_COMPILER = """
import sys
from pathlib import Path
from graphfold.batching.native import library
library.FOLDER = Path("/nonexistent")  # an installed wheel has libraries there
from graphfold.cli import main
from graphfold.inference import predict_files
predict_files.SMALL_FILE = 0  # for few records cells are not compiled
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.slow
def test_training_and_prediction_without_a_compiler(tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "CC": "/nonexistent",
        "CXX": "/nonexistent",
        "PATH": "/nonexistent",
        "XDG_CACHE_HOME": str(tmp_path / "empty"),
    }

    def graphfold(*words: str | Path) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", WITHOUT_COMPILER, *map(str, words)]
        done = subprocess.run(
            command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done

    folder = tmp_path / "run"
    trained = graphfold(
        "train",
        *listops("model.run=auto", "trainer.max_epochs=1", "logger=none"),
        f"hydra.run.dir={folder}",
    )
    assert "cells: token, pair compiled (torch)" in trained.stdout
    warning = "NaryTreeLSTMCell do not run as native code: no C compiler was found: there is no"
    assert trained.stderr.count(warning) == 1
    told = tmp_path / "verify.json"
    graphfold("verify", folder, "--json", told)
    (row, *_) = read_json(told)["comparisons"]
    assert row["cells"] == "token, pair compiled (torch)"
    trees, output = tmp_path / "trees.txt", tmp_path / "predicted.json"
    trees.write_text("4\t( ( ( [MAX 2 ) 4 ) ] )\n" * 20)
    predicted = graphfold("predict", folder, trees, "--output", output)
    assert predicted.stderr.count(warning) == 1
    assert len(output.read_text().splitlines()) == 20
    assert not list((tmp_path / "empty").rglob("*.so"))


def test_a_product_with_ones_adds_up_by_kind() -> None:
    kind, rows = torch.tensor([2, 0, 2, 3, 2]), torch.randn(5, 3, dtype=torch.float64)
    table = torch.randn(4, 3, dtype=torch.float64)
    product = table.addmm(one_hot(kind, 4).to(rows.dtype), rows)
    add_by_kind(table, kind, rows)
    torch.testing.assert_close(product, table)


@pytest.mark.gpu
def test_tables_add_up_alike_on_a_gpu() -> None:
    kind, rows = torch.arange(6000, device="cuda") % 3, torch.randn(6000, 8, device="cuda")
    tables = [torch.zeros(3, 8, device="cuda") for _ in range(3)]
    for table in tables:
        add_by_kind(table, kind, rows)
    assert all(torch.equal(table, tables[0]) for table in tables)
    torch.testing.assert_close(tables[0].cpu(), rows.cpu().view(2000, 3, 8).sum(0))
