"""Weights of products, packed or read as they lie."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from graphfold.batching import Batch, Cell, Network, Up, build_schedule
from graphfold.batching.backends import native as memory
from graphfold.batching.cell import NodeInput, State
from graphfold.batching.children import Children
from graphfold.batching.native.library import why_missing
from graphfold.dag import GraphBuilder, NodeType, Schema

pytestmark = pytest.mark.skipif(
    why_missing(torch.float32) is not None, reason="there is no native library"
)
SCHEMA = Schema((NodeType("leaf", 0), NodeType("node", 2)))


class LeafCell(Cell):
    arity = 0

    def __init__(self, size: int) -> None:
        super().__init__()
        self.fields = {"h": size}

    def forward(self, x: NodeInput, children: Children) -> State:
        return {"h": x}


class NodeCell(Cell):
    """Multiplies by a weight that is transposed, and by one that is not."""

    arity = 2

    def __init__(self, size: int) -> None:
        super().__init__()
        self.fields = {"h": size}
        self.linear = nn.Linear(2 * size, size)
        self.weight = nn.Parameter(torch.randn(size, size) / size**0.5)

    def forward(self, x: NodeInput, children: Children) -> State:
        return {"h": torch.tanh(self.linear(children.stack("h").flatten(1)) @ self.weight)}


def gradients(size: int, run: str) -> list[Tensor]:
    torch.manual_seed(0)
    builder = GraphBuilder(SCHEMA)
    for num_leaves in (2, 5, 40):
        row = list(builder.nodes("leaf", num_leaves))
        while len(row) > 1:
            row[:2] = [builder.node("node", row[:2])]
        builder.output(row[0])
        builder.finish()
    dag = builder.build()
    cells = {"leaf": LeafCell(size), "node": NodeCell(size)}
    network = Network(SCHEMA, (Up(), cells), run=run)
    x = torch.randn(dag.num_nodes_by_type[0], size, requires_grad=True)
    nothing = torch.empty(dag.num_nodes_by_type[1], 0)
    states = network(Batch(dag, build_schedule(dag, [Up()])), {"leaf": x, "node": nothing})
    roots = states.at("h", dag.output_index)
    return [roots, *torch.autograd.grad((roots**2).sum(), [x, *network.parameters()])]


@pytest.mark.parametrize("size", [16, 24, 32, 48])
def test_weights_as_they_lie_give_the_bits_of_packed_ones(size, monkeypatch):
    actual = gradients(size, run="compiled")
    monkeypatch.setattr(memory, "FEW_TO_PACK", 0)
    assert all(map(torch.equal, actual, gradients(size, run="compiled")))
    for ours, want in zip(actual, gradients(size, run="eager"), strict=True):
        torch.testing.assert_close(ours, want, rtol=1e-4, atol=1e-5)
