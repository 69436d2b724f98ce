"""The check of a cell: right cells pass, and each kind of fault is named."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import graphfold
from graphfold.batching import Cell, Down, Rounds, Up
from graphfold.dag import Column
from graphfold.errors import EngineError, KindError, ShapeError
from graphfold.layers import (
    ChildSumTreeLSTMCell,
    GATv2Cell,
    GCNCell,
    LeafCell,
    NaryTreeLSTMCell,
)

KIND = (Column("kind", "int64", size=3),)
SIZED = (Column("weight", shape=(2,)),)


class Mine(Cell):
    """A cell for any number of children, with one line of one's own."""

    def __init__(self, rule: Any) -> None:
        super().__init__()
        self.fields = {"h": 3}
        self.linear = nn.Linear(3, 3)
        self.rule = rule

    def forward(self, x: Tensor, children: Any) -> dict[str, Tensor]:
        return {"h": torch.tanh(x + self.rule(self.linear, children))}


@pytest.mark.parametrize(
    ("cell", "options"),
    [
        (LeafCell(2, 3), {"input_size": 2}),
        (NaryTreeLSTMCell(2, 3, arity=3), {"input_size": 2}),
        (ChildSumTreeLSTMCell(2, 3), {"input_size": 2}),
        (ChildSumTreeLSTMCell(2, 3), {"input_size": 2, "step": Down()}),
        (ChildSumTreeLSTMCell(2, 3), {"input_size": 2, "step": Up("next")}),
        (GCNCell(4), {"input_size": 4}),
        (GATv2Cell(4), {"input_size": 4, "step": Rounds("bond", 3)}),
        (Mine(lambda f, c: f(c.sum("h"))), {"input_size": 3}),
        (Mine(lambda f, c: f(c.sum(c.edge["weight"] @ c.shared["w"]))),
         {"input_size": 3, "edge_columns": SIZED, "shared": {"w": torch.ones(2, 3)}}),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Cell) else "",
)  # fmt: skip
def test_a_right_cell(cell: Cell, options: dict[str, Any]) -> None:
    before = {name: value.clone() for name, value in cell.state_dict().items()}
    found = graphfold.check(cell, **options)
    assert max(found.values, found.gradients) < 1e-12
    assert str(found).startswith(f"{type(cell).__name__} is right: values differ by ")
    assert found.execution.startswith("compiled")
    torch.testing.assert_close(cell.state_dict(), before, rtol=0, atol=0)
    assert cell.training
    assert all(value.dtype == torch.float32 for value in cell.parameters())


class Backward(torch.autograd.Function):
    """The identity, with a gradient of twice the right one."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor) -> Tensor:
        return rows.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return 2 * grad


class Leaking(Mine):
    """Gradients of all nodes, though its values are those of one."""

    def forward(self, x: Tensor, children: Any) -> dict[str, Tensor]:
        return {"h": super().forward(x, children)["h"] + Leak.apply(x)}


class Leak(torch.autograd.Function):
    """Zeros, whose gradient goes to all rows."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor) -> Tensor:
        return torch.zeros_like(rows)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad.sum(0).expand_as(grad)


@pytest.mark.filterwarnings("ignore:.* is not compiled")
@pytest.mark.parametrize(
    ("cell", "message"),
    [
        (Mine(lambda f, c: f(c.sum("h")).mean(0)), "other nodes of its group: the state of 'h'"),
        (Mine(lambda f, c: f(c.sum("h")) / c.group_size), "other nodes of its group: the state"),
        (Mine(lambda f, c: f(c.sum("h").detach())), "gradients of Mine are wrong: .* derivative"),
        (Mine(lambda f, c: f(Backward.apply(c.sum("h")))), "gradients of Mine are wrong"),
        (Leaking(lambda f, c: f(c.sum("h"))), "the gradient of 'x of node' differs"),
    ],
)
def test_a_wrong_cell(cell: Cell, message: str) -> None:
    with pytest.raises(EngineError, match=message):
        graphfold.check(cell, input_size=3)


def test_how_a_cell_runs_that_cannot_be_compiled() -> None:
    with pytest.warns(UserWarning, match="Mine is not compiled"):
        found = graphfold.check(Mine(lambda f, c: f(c.sum("h")).cumsum(1)), input_size=3)
    assert found.execution.startswith("eager (Mine: ")
    assert "It runs eager (Mine: " in str(found)


@pytest.mark.filterwarnings("ignore:Mine is not compiled")
def test_the_width_of_the_input_is_asked_for() -> None:
    with pytest.raises(ShapeError, match="which it refuses: mat1 .* Give check its input_size"):
        graphfold.check(LeafCell(2, 3))
    with pytest.raises(RuntimeError, match="size of tensor") as caught:  # the cell's own words
        graphfold.check(Mine(lambda f, c: f(c.sum("h"))))
    assert any("called with a group of" in note for note in caught.value.__notes__)


def test_it_takes_a_cell() -> None:
    with pytest.raises(KindError, match="needed. Make one: Mine"):
        graphfold.check(Mine)  # type: ignore[arg-type]


def test_the_same_seed_gives_the_same_numbers() -> None:
    cell = GCNCell(4)
    first, second, third = (graphfold.check(cell, input_size=4, seed=n) for n in (1, 1, 2))
    assert first == second
    assert first != third
