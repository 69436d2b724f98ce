"""Rounds with cells that compute edge by edge."""

from __future__ import annotations

import pytest
import torch
from compiled_checks import assert_same_both_ways
from hypothesis import given, settings
from strategies import bond_schema, dags
from torch import Tensor, nn

from graphfold.batching import Cell, Children, Network, Rounds

pytestmark = pytest.mark.usefixtures("backend")

SCHEMA = bond_schema(())
SIZE = 3


class RowsCell(Cell):
    """Sums of what it makes of each neighbour."""

    def __init__(self) -> None:
        super().__init__()
        self.fields = {"h": SIZE}

    def initial(self, x: Tensor) -> dict[str, Tensor]:
        return {"h": x}

    def message(self, rows: Tensor) -> Tensor:
        return torch.tanh(rows)

    def forward(self, x: Tensor, children: Children) -> dict[str, Tensor]:
        return {"h": children.sum(self.message(children.rows("h")))}


class ProductCell(RowsCell):
    """A product for each edge; every round adds to the gradient of its weight."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(SIZE, SIZE)

    def message(self, rows: Tensor) -> Tensor:
        return torch.tanh(self.linear(rows))


@settings(max_examples=5)
@given(dag=dags(SCHEMA, symmetric=True))
@pytest.mark.parametrize("cell", [RowsCell, ProductCell])
@pytest.mark.parametrize("rounds", [1, 3])
def test_they_equal_plain_operations(cell, rounds, dag):
    torch.manual_seed(0)
    network = Network(SCHEMA, (Rounds("bond", rounds), {"atom": cell()})).double()
    x = torch.randn(dag.num_nodes, SIZE, dtype=torch.float64)
    assert_same_both_ways(network, dag, {"atom": x})
