"""torch.compile does not change networks and models; torch.jit.script is refused."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

import graphfold.blocks as gb
from graphfold.batching import Batch, Cell, Children, Network, Up, build_schedule
from graphfold.dag import GraphBuilder, NodeType, Schema
from graphfold.errors import EngineError

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")


class SumCell(Cell):
    """h = tanh(W (x + the sum over children))."""

    def __init__(self) -> None:
        super().__init__()
        self.fields = {"h": 3}
        self.linear = nn.Linear(3, 3)

    def forward(self, x: Tensor, children: Children) -> dict[str, Tensor]:
        return {"h": torch.tanh(self.linear(x + children.sum("h")))}


@pytest.fixture
def network_and_batch() -> tuple[Network, Batch, dict[str, Tensor]]:
    builder = GraphBuilder(Schema((NodeType("node", None),)))
    leaves = [builder.node("node") for _ in range(3)]
    builder.output(builder.node("node", leaves))
    builder.finish()
    dag = builder.build()
    network = Network(dag.schema, (Up(), {"node": SumCell()}))
    return network, Batch(dag, build_schedule(dag, network.passes)), {"node": torch.ones(4, 3)}


@pytest.fixture
def clean_compiler() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def refuse_to_compile(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> object:
    raise AssertionError(f"torch compiles a part of the network: {graph.code}")


def gradients(states: Tensor, module: nn.Module) -> list[Tensor]:
    return [states, *torch.autograd.grad(states.square().sum(), list(module.parameters()))]


@pytest.mark.usefixtures("clean_compiler")
def test_a_network_runs_as_it_is(network_and_batch):
    network, batch, x = network_and_batch
    want = gradients(network(batch, x)["h"], network)
    compiled = torch.compile(network, backend=refuse_to_compile)
    assert all(map(torch.equal, gradients(compiled(batch, x)["h"], network), want))


@pytest.mark.usefixtures("clean_compiler")
def test_code_around_a_network_is_compiled(network_and_batch):
    network, batch, x = network_and_batch
    graphs: list[str] = []

    def count(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> object:
        graphs.append(graph.code)
        return graph.forward

    def doubled(batch: Batch, x: dict[str, Tensor]) -> Tensor:
        return network(batch, x)["h"] * 2

    want = network(batch, x)["h"] * 2
    assert torch.equal(torch.compile(doubled, backend=count)(batch, x), want)
    assert not any("tanh" in code for code in graphs)


@pytest.mark.usefixtures("clean_compiler")
def test_block_models_run_as_they_are():
    model = gb.CompiledModel(gb.Map(gb.Scalar()) >> gb.Sum())
    want = model([[1.0, 2.0], [3.0]])
    compiled = torch.compile(model, backend=refuse_to_compile)
    assert torch.equal(compiled([[1.0, 2.0], [3.0]]), want)


def test_scripts_are_refused_in_words(network_and_batch):
    network, *_ = network_and_batch
    block_model = gb.CompiledModel(gb.Map(gb.Scalar()) >> gb.Sum())
    for module in (network, SumCell(), block_model):
        message = re.escape(f"{type(module).__name__} cannot be a script of torch.jit")
        with pytest.raises(EngineError, match=message):
            torch.jit.script(module)
