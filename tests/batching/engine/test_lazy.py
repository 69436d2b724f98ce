"""Lazy parameter gradients equal those that autograd computes per group."""

from __future__ import annotations

import pytest
import torch
from engine_cells import SIZE, WordCell, make_batch, make_network, make_x, random_dag, tree_cells
from torch import nn
from torch.nn import functional as F

from graphfold.batching.engine import lazy_gradients
from graphfold.dag import Column
from graphfold.errors import EngineError
from graphfold.layers.column_encoder import ColumnEncoder


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


class Encoding(WordCell):
    """A cell with an encoder of its own."""

    def __init__(self) -> None:
        super().__init__()
        columns = [Column("code", "int64", size=4), Column("number", "float64")]
        self.encoder = ColumnEncoder(columns, SIZE)

    def forward(self, x, children):
        state = super().forward(x, children)
        columns = {"code": torch.arange(len(x)) % 4, "number": x[:, 0]}
        return {**state, "h": state["h"] * self.encoder(columns)}


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x @ weight

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        return grad @ weight.T, x.T @ grad


class OwnFunction(WordCell):
    """A cell whose weight goes through an autograd Function."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(SIZE, SIZE))

    def forward(self, x, children):
        state = super().forward(x, children)
        return {**state, "h": Product.apply(state["h"], self.given())}

    def given(self) -> torch.Tensor:
        return self.weight


class OwnFunctionOfView(OwnFunction):
    def given(self) -> torch.Tensor:
        return self.weight.view_as(self.weight)


@pytest.mark.parametrize("cell", [Encoding, OwnFunctionOfView])
@pytest.mark.parametrize(("trace_after", "fuse"), [(None, None), (1, None), (1, True)])
def test_weights_that_are_used_in_further_ways_have_their_gradients(cell, trace_after, fuse):
    dag = random_dag(5, 3)
    x = make_x(dag)
    network = make_network(cells=[{**tree_cells(), "word": cell()}])
    network.trace_after, network.fuse = trace_after, fuse
    found = {}
    for engine in ("autograd", "fast", "fast"):  # the second time by a program, if it has one
        network.engine = engine
        loss = network(make_batch(dag, network), x)["h"].square().sum()
        own = list(network.cells[0]["word"].parameters())
        found[engine] = torch.autograd.grad(loss, own)
        torch.testing.assert_close(found[engine], found["autograd"])


def test_a_use_of_a_weight_that_is_not_seen_is_refused():
    dag = random_dag(5, 3)
    network = make_network(cells=[{**tree_cells(), "word": OwnFunction()}])
    with pytest.raises(EngineError, match=r"OwnFunction reads 'self\.weight'.*view_as"):
        network(make_batch(dag, network), make_x(dag))
    with torch.no_grad():
        assert "h" in network(make_batch(dag, network), make_x(dag))
