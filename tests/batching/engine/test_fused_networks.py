"""Networks with kernels: every batch has them, also the first one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from engine_cells import make_batch
from torch import Tensor, nn
from torch.nn import functional as F

from graphfold.batching import Cell, Children, Network, Up
from graphfold.batching.kernels.c_compiler import find_compiler
from graphfold.dag import EdgeType, GraphBuilder, NodeType, Schema, TypedDAG
from graphfold.errors import ConfigError
from graphfold.layers import LeafLSTMCell, NaryTreeLSTMCell

needs_compiler = pytest.mark.skipif(find_compiler() is None, reason="there is no C compiler")
WIDTH = 40


class NoisyLeafCell(Cell):
    """A leaf with dropout, which is drawn anew for every group."""

    arity = 0

    def __init__(self) -> None:
        super().__init__()
        self.fields = {"h": WIDTH, "c": WIDTH}

    def forward(self, x: Tensor, children: Children) -> dict[str, Tensor]:
        return {"h": F.dropout(x, 0.5), "c": x}


def quiet_leaf() -> Cell:
    return LeafLSTMCell(WIDTH, WIDTH)


def combs(count: int) -> TypedDAG:
    schema = Schema((NodeType("leaf", 0), NodeType("node", 2)), EdgeType("inputs"))
    builder = GraphBuilder(schema)
    for size in range(2, 2 + count):
        top = builder.node("leaf")
        for _ in range(size):
            children = [top, builder.node("leaf")]
            top = builder.node("node")
            builder.inputs(top, children)
        builder.output(top)
        builder.finish()
    return builder.build()


def network_of(leaf: Callable[[], Cell], fuse: bool | None) -> Network:
    torch.manual_seed(0)
    cells = {"leaf": leaf(), "node": NaryTreeLSTMCell(0, WIDTH)}
    return Network(combs(1).schema, [Up()], [cells], fuse=fuse)


def results(network: Network, dag: TypedDAG, seed: int = 1) -> list[Tensor]:
    """The state, the gradients, and the next random number."""
    torch.manual_seed(seed)
    leaves = torch.randn(dag.num_nodes_by_type[0], WIDTH, requires_grad=True)
    x = {"leaf": leaves, "node": torch.zeros(dag.num_nodes_by_type[1], 0)}
    h = network(make_batch(dag, network), x)["h"]
    parameters = list(network.parameters())
    return [h, *torch.autograd.grad(h.square().sum(), [leaves, *parameters]), torch.rand(1)]


@needs_compiler
def test_the_first_batch_is_computed_as_all_others():
    dag = combs(12)
    network = network_of(quiet_leaf, fuse=True)
    first, second = results(network, dag), results(network, dag)
    for one, other in zip(first, second, strict=True):
        assert torch.equal(one, other)
    plain = results(network_of(quiet_leaf, fuse=False), dag)
    for one, other in zip(first, plain, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
    assert not all(map(torch.equal, first, plain))  # so there were kernels


@needs_compiler
def test_the_first_batch_draws_the_random_numbers_of_all_others():
    dag = combs(12)
    first = results(network_of(NoisyLeafCell, fuse=True), dag)
    plain = results(network_of(NoisyLeafCell, fuse=False), dag)
    for one, other in zip(first, plain, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
    assert torch.equal(first[-1], plain[-1])


def test_kernels_without_tracing_are_refused():
    with pytest.raises(ConfigError, match="fuse=True .* but trace_after=None"):
        Network(combs(1).schema, [Up()], [{}], trace_after=None, fuse=True)


class TiedCell(Cell):
    """One weight multiplies children that lie apart, two fields of them, and features."""

    arity = 2

    def __init__(self) -> None:
        super().__init__()
        self.fields = {"h": WIDTH, "c": WIDTH}
        self.linear = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: Tensor, children: Children) -> dict[str, Tensor]:
        h = self.linear(children.stack("h").flatten(1)) + self.linear(x)
        return {"h": torch.tanh(h), "c": self.linear(children.stack("c").flatten(1)).tanh()}


class BothWaysCell(Cell):
    """Children are multiplied by a weight and by its transpose."""

    arity = 2

    def __init__(self) -> None:
        super().__init__()
        self.fields = {"h": WIDTH, "c": WIDTH}
        self.weight = nn.Parameter(torch.randn(2 * WIDTH, 2 * WIDTH) / WIDTH)

    def forward(self, x: Tensor, children: Children) -> dict[str, Tensor]:
        h, c = children.stack("h").flatten(1), children.stack("c").flatten(1)
        found = {"h": h @ self.weight, "c": F.linear(c, self.weight)}
        return {name: product.view(-1, 2, WIDTH).sum(1) for name, product in found.items()}


@needs_compiler
@pytest.mark.parametrize("cell", [TiedCell, BothWaysCell])
@pytest.mark.parametrize("count", [2, 60])
def test_what_lies_apart_shares_a_weight_with_other_uses(count, cell):
    dag = combs(count)
    x = {
        "leaf": torch.randn(dag.num_nodes_by_type[0], WIDTH, dtype=torch.float64),
        "node": torch.randn(dag.num_nodes_by_type[1], 2 * WIDTH, dtype=torch.float64),
    }
    torch.manual_seed(0)
    cells = {"leaf": quiet_leaf().double(), "node": cell().double()}
    found = []
    for engine, fuse in (("fast", True), ("autograd", None)):
        network = Network(dag.schema, [Up()], [cells], engine=engine, fuse=fuse)
        states = network(make_batch(dag, network), x)
        loss = (states["h"].square() + states["c"].sin()).sum()
        found.append([loss.detach(), *torch.autograd.grad(loss, list(network.parameters()))])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)
