"""A watch reports no change where nothing changed, and keeps no object alive."""

from __future__ import annotations

import copy
import functools
import gc
import math
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from layers.cells_table import CASES
from torch import nn
from torch.nn import functional as F
from watch_cells import (
    KEPT,
    PARENTS,
    SIZE,
    Bare,
    Mode,
    Pair,
    Plain,
    Record,
    Scaler,
    Slotted,
    by_call,
    cached,
    decorated,
    logger,
    with_parent,
)

from graphfold import blocks as td
from graphfold.batching import Cell
from graphfold.batching.engine.watch import Unwatchable, Watch

# --- What is no change


def many() -> Cell:
    """A cell with something of every kind."""
    cell = Plain(
        by_call,
        items=[1, 2.0, math.nan, (1, (2.0, "a")), {1: {2}}, range(3), torch.Size([2])],
        holders=(Slotted(2.0), Bare(), Record(), Pair([2.0], 1.0), Mode.ADD, KEPT, Scaler),
        functions=[torch.tanh, F.relu, np.tanh, np.sum, math.exp, [].append, decorated, cached],
        others=[logger, np.float32(1.5), np.dtype("f4"), torch.ones(2), np.ones(2), object()],
        torch=torch,
        ops=[torch.ops.aten.relu, torch.ops.aten.relu.default, torch.distributions.Normal(0, 1)],
        parts=nn.ModuleDict({"a": nn.Dropout(0.1), "b": nn.GRUCell(2, 2), "n": nn.LayerNorm(2)}),
        hidden=[nn.LSTM(2, 2)],
    )
    cell.me = weakref.ref(cell)
    return cell


def train(cell: Cell) -> None:
    optimizer = torch.optim.Adam(cell.parameters(), lr=0.1)
    cell(torch.ones(2, SIZE), None)["h"].sum().backward()
    optimizer.step()
    optimizer.zero_grad()


def flip(cell: Cell) -> None:
    cell.eval()
    cell.train()


def load(cell: Cell) -> None:
    state = {name: torch.zeros_like(value) for name, value in cell.state_dict().items()}
    cell.load_state_dict(state)
    cell.load_state_dict(state, assign=True)


HARMLESS: dict[str, Callable[[Any], Any]] = {
    "nothing": lambda cell: None,
    "training step": train,
    "mode there and back": flip,
    "loaded values": load,
    "another weight of the kind": lambda cell: setattr(
        cell.linear, "weight", nn.Parameter(torch.zeros(SIZE, SIZE))
    ),
    "equal number": lambda cell: setattr(cell, "number", float("2.5")),
    "equal text": lambda cell: setattr(cell, "text", "".join(["a", "b"])),
    "equal tuple": lambda cell: setattr(cell, "pair", (float("1.5"), (float("nan"), "x"))),
    "values of a tensor": lambda cell: cell.others[3].add_(1),
    "copied": copy.copy,
    "collected": lambda cell: gc.collect(),
}


@pytest.mark.parametrize("name", HARMLESS)
def test_harmless_changes_are_ignored(name: str) -> None:
    cell = many()
    cell.number, cell.text, cell.pair = 2.5, "ab", (1.5, (math.nan, "x"))
    watch = Watch(cell)
    HARMLESS[name](cell)
    assert watch.is_unchanged()
    assert watch.is_unchanged()


def tensorless() -> Cell:
    """A cell with much of that, and a form."""
    cell = Plain(
        by_call,
        items=[1, 2.0, math.nan, (1, (2.0, "a")), {1: {2}}, range(3), torch.Size([2])],
        holders=(Slotted(2.0), Bare(), Record(), Pair([2.0], 1.0), KEPT, Scaler),
        functions=[torch.tanh, F.relu, np.tanh, np.sum, math.exp, decorated, cached],
        others=[logger, np.float32(1.5), np.dtype("f4"), np.ones(2)],
        parts=nn.ModuleDict({"a": nn.Dropout(0.1), "b": nn.GRUCell(2, 2), "n": nn.LayerNorm(2)}),
    )
    cell.number, cell.text, cell.pair = 2.5, "ab", (1.5, (math.nan, "x"))
    cell.me, cell.bound = weakref.ref(cell), functools.lru_cache(cell.train)
    return cell


@pytest.mark.parametrize("name", [name for name in HARMLESS if "tensor" not in name])
def test_harmless_changes_leave_the_form(name: str) -> None:
    cell = tensorless()
    form = Watch(cell).form()
    assert form is not None
    HARMLESS[name](cell)
    assert Watch(cell).form() == form
    assert hash(Watch(cell).form()) == hash(form)


def test_cells_that_are_made_alike_have_one_form() -> None:
    one, other = tensorless(), tensorless()
    assert Watch(one).form() == Watch(other).form()
    other.bound = functools.lru_cache(other.eval)
    assert Watch(one).form() != Watch(other).form()


def test_values_of_any_depth_have_a_form() -> None:
    one, same, other = (
        Plain(items=functools.reduce(lambda inner, _: (inner,), range(5000), value))
        for value in (1, 1, True)
    )
    assert Watch(one).form() == Watch(same).form()
    assert Watch(one).form() != Watch(other).form()


def test_a_form_keeps_no_cell() -> None:
    cell = tensorless()
    form, kept = Watch(cell).form(), weakref.ref(cell)
    del cell
    gc.collect()
    assert form is not None
    assert kept() is None


def test_a_change_taken_back_is_none() -> None:
    cell = Plain(scale=2.0, items=[1])
    watch = Watch(cell)
    for change, back in ((cell.eval, cell.train), (lambda: cell.items.append(2), cell.items.pop)):
        change()
        assert not watch.is_unchanged()
        back()
        assert watch.is_unchanged()


def test_a_watch_keeps_neither_the_cell_nor_its_tensors() -> None:
    cell = with_parent(weakref.ref)
    cell.table = [torch.ones(2)]
    cell.me = weakref.ref(cell)
    tensors = [weakref.ref(cell.linear.weight), weakref.ref(PARENTS[0])]
    watch, cells = Watch(cell), [weakref.ref(cell)]
    cell.linear = nn.Linear(SIZE, SIZE)
    assert tensors[0]() is None
    del cell
    PARENTS.clear()
    gc.collect()
    assert tensors[1]() is None
    assert cells[0]() is None
    assert not watch.is_unchanged()


def test_it_runs_in_any_thread() -> None:
    cell, answers = many(), []
    watch = Watch(cell)

    def look() -> None:
        answers.extend([watch.is_unchanged(), Watch(cell).is_unchanged()])

    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [True] * 8


def test_hooks_of_all_modules_are_seen() -> None:
    cell = Plain()
    watch = Watch(cell)
    handle = nn.modules.module.register_module_forward_hook(lambda *_: None)
    try:
        assert not watch.is_unchanged()
        with pytest.raises(Unwatchable, match="hooks for all modules"):
            Watch(cell)
    finally:
        handle.remove()
    assert watch.is_unchanged()


# --- All cells that there are


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_cells_of_graphfold_can_be_watched(case: Any) -> None:
    network = case.network()
    for cell in network.modules():
        if isinstance(cell, Cell):
            watch = Watch(cell)
            assert watch.is_unchanged()
            assert watch.form() == Watch(copy.deepcopy(cell)).form()
            assert watch.form() is not None
            cell.eval()
            assert not watch.is_unchanged()
            cell.train()
            assert watch.is_unchanged()


def test_cells_of_blocks_can_be_watched() -> None:
    layer, scales = nn.Linear(2, 2).requires_grad_(False), [2.0]
    fc = td.FC(2, torch.tanh)
    block = (
        (td.Vector(2) >> (lambda x: layer(x) * scales[0]), td.Vector(2) >> fc)
        >> td.Function(lambda x, y: x + y)
        >> td.Function(functools.partial(torch.mul, other=2.0))
    )
    model = td.compile(block)
    model([([1, 2], [3, 4])] * 3)
    cells = list(model.node_types._cells.values())
    watches = [Watch(cell) for cell in cells]
    assert cells
    assert all(watch.is_unchanged() for watch in watches)
    scales[0] = 3.0
    assert sum(not watch.is_unchanged() for watch in watches) == 1
    scales[0] = 2.0
    assert all(watch.is_unchanged() for watch in watches)
    model.node_types.precision.dtype = torch.float64
    assert not any(watch.is_unchanged() for watch in watches)
