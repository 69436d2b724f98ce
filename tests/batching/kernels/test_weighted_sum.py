"""Weighted sums over children, and what a cell can know of its children's children."""

from __future__ import annotations

import pytest
import torch
from engine_cells import SIZE, make_batch, make_network, make_x, random_dag, rounds
from torch import Tensor, nn

from graphfold.batching import Cell, Children, Down, Up


class WeightedCell(Cell):
    """Children with many children of their own count less, by a learned amount."""

    def __init__(self) -> None:
        super().__init__()
        self.fields = {"h": SIZE}
        self.scale = nn.Parameter(torch.tensor([0.7]))
        self.linear = nn.Linear(SIZE, SIZE)

    def initial(self, x: Tensor) -> dict[str, Tensor]:
        return {"h": x}

    def forward(self, x: Tensor, children: Children) -> dict[str, Tensor]:
        weight = torch.exp(-self.scale * children.child_count)
        total = children.sum("h", weight) - children.sum(children.rows("h"), weight / 2)
        return {"h": torch.tanh(self.linear(total) + x)}


@pytest.mark.parametrize("item", [Up(), Down(), rounds(2)], ids=["up", "down", "rounds"])
@pytest.mark.parametrize("way", ["auto", "eager"])
def test_every_engine_equals_the_reference(item, way):
    dag, cell = random_dag(3, 0), WeightedCell()
    network = make_network([item], [dict.fromkeys(("word", "phrase", "pair"), cell)])
    x = make_x(dag)
    actual = []
    for name in ("reference", way):
        network.run = name
        h = network(make_batch(dag, network), x)["h"]
        grads = torch.autograd.grad(h.square().sum(), [*network.parameters(), *x.values()])
        actual.append([h, *grads])
    torch.testing.assert_close(actual[1], actual[0], rtol=1e-10, atol=1e-10)
