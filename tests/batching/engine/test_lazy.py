"""Lazy parameter gradients equal those that autograd computes per group."""

from __future__ import annotations

import pytest
import torch
from engine_cells import SIZE, WordCell, make_batch, make_network, make_x, random_dag, tree_cells
from torch import nn
from torch.nn import functional as F

from graphfold.batching.engine import lazy_gradients


class Uses(WordCell):
    """Uses one weight in every way: lazily, directly, without its bias, through an embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(4, SIZE)
        self.gru = nn.GRUCell(SIZE, SIZE)
        self.square = nn.Linear(SIZE, SIZE)

    def forward(self, x, children):
        state = super().forward(x, children)
        weight = self.square.weight
        index = torch.arange(len(x)) % 4
        h = F.linear(x, weight) + self.square(x) + x @ weight + torch.cat([weight, weight])[:1]
        h = h + self.table(index) + F.embedding(index, self.table.weight, padding_idx=1)
        return {**state, "h": self.gru(h.tanh(), state["h"])}


def gradients(engine: str, dag, x) -> list[torch.Tensor]:
    torch.manual_seed(0)
    network = make_network(cells=[{**tree_cells(), "word": Uses()}], engine=engine)
    loss = network(make_batch(dag, network), x)["h"].square().sum()
    return list(
        torch.autograd.grad(loss, [*network.cells[0]["word"].parameters(), *x.values()][:-1])
    )


@pytest.mark.parametrize("rows", [1, 4, 1024])
def test_every_use_of_a_weight_has_its_gradient(rows, monkeypatch):
    monkeypatch.setattr(lazy_gradients, "ROWS_PER_PRODUCT", rows)
    dag = random_dag(5, 3)
    x = make_x(dag)
    torch.testing.assert_close(gradients("fast", dag, x), gradients("autograd", dag, x))


def test_products_with_further_dimensions():
    class Blocks(WordCell):
        def forward(self, x, children):
            h = self.linear(x.unsqueeze(1).expand(-1, 4, -1)).sum(1)
            return {"h": h[:, :SIZE], "c": h[:, SIZE:]}

    dag = random_dag(3, 0)
    x = make_x(dag)
    network = make_network(cells=[{**tree_cells(), "word": Blocks()}])
    weight = network.cells[0]["word"][0].linear.weight
    fast = torch.autograd.grad(network(make_batch(dag, network), x)["h"].sum(), [weight])
    network.engine = "autograd"
    plain = torch.autograd.grad(network(make_batch(dag, network), x)["h"].sum(), [weight])
    torch.testing.assert_close(fast, plain)


def test_a_frozen_weight_with_a_trained_bias():
    dag = random_dag(3, 0)
    x = make_x(dag)
    network = make_network()
    linear = network.cells[0]["word"][0].linear
    linear.weight.requires_grad_(False)
    fast = torch.autograd.grad(network(make_batch(dag, network), x)["h"].sum(), [linear.bias])
    network.engine = "autograd"
    plain = torch.autograd.grad(network(make_batch(dag, network), x)["h"].sum(), [linear.bias])
    torch.testing.assert_close(fast, plain)
