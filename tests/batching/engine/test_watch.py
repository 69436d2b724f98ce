"""A watch sees every change that the code of a cell depends on."""

from __future__ import annotations

import collections
import copy
import functools
import gc
import types
import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import watch_cells
from torch import nn
from torch.nn import functional as F
from watch_cells import (
    CLOSURES,
    KEPT,
    OWN,
    PARENTS,
    SCALES,
    SIZE,
    TABLE,
    Bare,
    Base,
    Config,
    Level,
    Mode,
    Pair,
    Partial,
    Plain,
    Scale,
    Scaler,
    Slotted,
    Wider,
    by_argument,
    by_autograd,
    by_call,
    by_class,
    by_default,
    by_entry,
    by_getattr,
    by_global,
    by_import,
    by_library,
    by_list,
    by_other,
    cached,
    closing,
    counting,
    innermost,
    marked,
    nested,
    other_library,
    with_buffer,
    with_parent,
)

from graphfold.batching import Cell
from graphfold.batching.engine.watch import Watch
from graphfold.layers import NaryTreeLSTMCell


def in_module(name: str, value: Any, module: Any = None) -> Callable[..., None]:
    def change(cell: Cell, patch: pytest.MonkeyPatch) -> None:
        patch.setattr(module or watch_cells, name, value)

    return change


# --- What changes: a function of the cell and of monkeypatch

CHANGES: dict[str, tuple[Callable[[], Cell], Callable[[Any, pytest.MonkeyPatch], Any]]] = {
    "number": (lambda: Plain(scale=2.0), lambda cell, _: setattr(cell, "scale", 3.0)),
    "type of a number": (lambda: Plain(scale=1), lambda cell, _: setattr(cell, "scale", True)),
    "sign of zero": (lambda: Plain(scale=0.0), lambda cell, _: setattr(cell, "scale", -0.0)),
    "new attribute": (Plain, lambda cell, _: setattr(cell, "scale", 3.0)),
    "mode": (Plain, lambda cell, _: cell.eval()),
    "slot": (
        lambda: Plain(holder=Slotted(2.0)),
        lambda cell, _: setattr(cell.holder, "scale", 3.0),
    ),
    "slot without a value": (
        lambda: Plain(holder=Bare()),
        lambda cell, _: setattr(cell.holder, "scale", 3.0),
    ),
    "deep attribute": (
        lambda: Plain(holder=nested(SimpleNamespace(scale=2.0))),
        lambda cell, _: setattr(innermost(cell.holder), "scale", 3.0),
    ),
    "class of an object": (
        lambda: Plain(holder=SimpleNamespace(inner=type("A", (), {})())),
        lambda cell, _: setattr(cell.holder.inner, "__class__", type("B", (), {})),
    ),
    "dictionary of an object": (
        lambda: Plain(holder=Scaler()),
        lambda cell, _: setattr(cell.holder, "__dict__", {"scale": 3.0}),
    ),
    "deque": (
        lambda: Plain(queue=collections.deque([2.0, 3.0])),
        lambda cell, _: cell.queue.rotate(1),
    ),
    "list": (lambda: Plain(items=[[2.0]]), lambda cell, _: cell.items[0].append(3.0)),
    "set": (lambda: Plain(items={1, 2}), lambda cell, _: cell.items.add(3)),
    "dict": (lambda: Plain(items={"a": 1}), lambda cell, _: cell.items.update(a=2)),
    "order of a dict": (
        lambda: Plain(items={"a": 1, "b": 1}),
        lambda cell, _: cell.items.update(a=cell.items.pop("a")),
    ),
    "default of a defaultdict": (
        lambda: Plain(items=collections.defaultdict(int)),
        lambda cell, _: setattr(cell.items, "default_factory", list),
    ),
    "named tuple": (lambda: Plain(pair=Pair([2.0], 1.0)), lambda cell, _: cell.pair.one.append(3)),
    "array": (
        lambda: Plain(scales=np.ones(3)),
        lambda cell, _: cell.scales.__setitem__(0, 2.0),
    ),
    "shape of an array": (
        lambda: Plain(scales=np.ones(4)),
        lambda cell, _: setattr(cell, "scales", cell.scales.reshape(2, 2)),
    ),
    "bytearray": (
        lambda: Plain(scales=bytearray(b"ab")),
        lambda cell, _: cell.scales.__setitem__(0, 1),
    ),
    "callable": (
        lambda: Plain(Scaler()),
        lambda cell, _: setattr(cell.function, "scale", 3.0),
    ),
    "reference to a parent": (
        lambda: with_parent(lambda parent: [parent]),
        lambda cell, _: setattr(cell.parents[0], "scale", 3.0),
    ),
    "weak reference to a parent": (
        lambda: with_parent(weakref.ref),
        lambda cell, _: setattr(cell.parents(), "scale", 3.0),
    ),
    "dead parent": (
        lambda: with_parent(weakref.ref),
        lambda cell, _: (PARENTS.clear(), gc.collect()),
    ),
    "weak dictionary": (
        lambda: Plain(known=weakref.WeakValueDictionary(scaler=KEPT)),
        lambda cell, patch: patch.setattr(KEPT, "scale", 3.0),
    ),
    "partial": (
        lambda: Plain(functools.partial(by_default, scale=SimpleNamespace(value=2.0))),
        lambda cell, _: setattr(cell.function.keywords["scale"], "value", 3.0),
    ),
    "bound method": (
        lambda: Plain(Scaler().__call__),
        lambda cell, _: setattr(cell.function.__self__, "scale", 3.0),
    ),
    "method of a list": (
        lambda: Plain([2.0].count),
        lambda cell, _: cell.function.__self__.append(2.0),
    ),
    "enumeration": (
        lambda: Plain(mode=Mode.ADD),
        lambda cell, patch: patch.setattr(Mode.ADD, "_value_", [4.0]),
    ),
    "value of an enumeration": (
        lambda: Plain(mode=copy.copy(Mode.SUB)),
        lambda cell, _: cell.mode.value.append(1.0),
    ),
    "another member": (
        lambda: Plain(mode=Mode.ADD),
        lambda cell, _: setattr(cell, "mode", Mode.SUB),
    ),
    "another function": (Plain, lambda cell, _: setattr(cell, "function", F.silu)),
    "forward of one cell": (
        Plain,
        lambda cell, _: setattr(cell, "forward", types.MethodType(Plain.forward, cell)),
    ),
    "forward of the class": (
        Plain,
        lambda cell, patch: patch.setattr(Plain, "forward", lambda self, x, children: {"h": x}),
    ),
    "forward of a class of torch": (
        Plain,
        lambda cell, patch: patch.setattr(nn.Linear, "forward", lambda self, x: x),
    ),
    "forward of a class of graphfold": (
        lambda: NaryTreeLSTMCell(2, 2),
        lambda cell, patch: patch.setattr(NaryTreeLSTMCell, "forward", Plain.forward),
    ),
    "class attribute": (
        lambda: Plain(Scaler()),
        lambda cell, patch: patch.setattr(Scaler, "kept", [2.0]),
    ),
    "bases of a class": (
        lambda: Plain(holder=type("A", (type("B", (), {}),), {})()),
        lambda cell, _: setattr(type(cell.holder), "__bases__", (type("C", (), {}),)),
    ),
    "code of a function": (
        lambda: Plain(closing(2.0)),
        lambda cell, _: setattr(cell.function, "__code__", closing(3.0).__code__.replace()),
    ),
    "default": (
        lambda: Plain(by_default),
        lambda cell, patch: patch.setattr(by_default, "__defaults__", (3.0,)),
    ),
    "keyword default": (
        lambda: Plain(by_default),
        lambda cell, patch: patch.setitem(by_default.__kwdefaults__, "shift", 1.0),
    ),
    "attribute of a function": (
        lambda: Plain(by_default),
        lambda cell, patch: patch.setattr(by_default, "scale", 1.0, raising=False),
    ),
    "closure": (
        lambda: Plain(*(CLOSURES.append(counting()) or CLOSURES[-1])[:1]),
        lambda cell, _: CLOSURES[-1][1](3.0),
    ),
    "global": (lambda: Plain(by_global), in_module("SCALE", 3.0)),
    "global gone": (
        lambda: Plain(by_global),
        lambda cell, patch: patch.delattr(watch_cells, "SCALE"),
    ),
    "global of a called function": (lambda: Plain(by_call), in_module("SCALE", 3.0)),
    "global of a cached function": (lambda: Plain(cached), in_module("SCALE", 3.0)),
    "list of a module": (
        lambda: Plain(by_list),
        lambda cell, patch: patch.setattr(watch_cells, "SCALES", [*SCALES]),
    ),
    "item of a list of a module": (
        lambda: Plain(by_list),
        lambda cell, _: SCALES.append(1.0),
    ),
    "entry of a module": (
        lambda: Plain(by_entry),
        lambda cell, patch: patch.setitem(TABLE, "scale", 3.0),
    ),
    "hidden function of Python": (
        lambda: Plain(by_list),
        lambda cell, patch: patch.setattr(watch_cells, "sum", max, raising=False),
    ),
    "function of a library": (lambda: Plain(by_library), in_module("relu", F.silu, F)),
    "function by name": (lambda: Plain(by_getattr), in_module("elu", F.relu, F)),
    "imported function": (lambda: Plain(by_import), in_module("silu", F.relu, F)),
    "function of a module that it holds": (
        lambda: Plain(lambda x: OWN.lib.tanh(x), lib=F),
        in_module("tanh", F.relu, F),
    ),
    "another module": (Plain, lambda cell, _: setattr(cell, "linear", nn.Linear(SIZE, SIZE))),
    "frozen weight": (Plain, lambda cell, _: cell.linear.weight.requires_grad_(False)),
    "dtype": (Plain, lambda cell, _: cell.double()),
    "shape through data": (
        Plain,
        lambda cell, _: setattr(cell.linear.weight, "data", torch.ones(SIZE, SIZE + 1)),
    ),
    "new buffer": (Plain, lambda cell, _: cell.linear.register_buffer("scale", torch.ones(1))),
    "parameter gone": (Plain, lambda cell, _: cell.linear.register_parameter("bias", None)),
    "class of a parameter": (
        lambda: with_buffer(torch.ones(2)),
        lambda cell, _: cell._buffers.update(scale=nn.Parameter(torch.ones(2), False)),
    ),
    "tied": (
        lambda: Plain(other=nn.Linear(SIZE, SIZE)),
        lambda cell, _: setattr(cell.other, "weight", cell.linear.weight),
    ),
    "another tensor": (
        lambda: Plain(items=[torch.ones(2)]),
        lambda cell, _: cell.items.__setitem__(0, torch.ones(2)),
    ),
    "shape of a tensor": (
        lambda: Plain(items=[torch.ones(2)]),
        lambda cell, _: setattr(cell.items[0], "data", torch.ones(3)),
    ),
    "attribute of a tensor": (
        lambda: with_buffer(marked(torch.ones(2))),
        lambda cell, _: setattr(cell.scale, "mark", 3),
    ),
    "hook": (Plain, lambda cell, _: cell.linear.register_forward_hook(lambda *_: None)),
    "property": (Base, in_module("SCALE", 3.0)),
    "cached property": (
        Base,
        lambda cell, patch: patch.setattr(watch_cells, "SCALES", [3.0]),
    ),
    "static method": (Base, lambda cell, patch: patch.setitem(TABLE, "scale", 3.0)),
    "partial method": (Partial, in_module("SCALE", 3.0)),
    "method that a library calls": (lambda: Wider(2, 2), in_module("SCALE", 3.0)),
    "integer of an enumeration": (
        lambda: Plain(level=Level.LOW),
        lambda cell, _: setattr(cell, "level", Level.HIGH),
    ),
    "integer for an enumeration": (
        lambda: Plain(level=Level.LOW),
        lambda cell, _: setattr(cell, "level", 1),
    ),
    "attribute of a number": (
        lambda: Plain(scale=Scale(2.0)),
        lambda cell, _: setattr(cell.scale, "unit", "m"),
    ),
    "attribute of a class": (
        lambda: Plain(by_class),
        lambda cell, patch: patch.setattr(Config, "scale", 3.0),
    ),
    "function of autograd": (lambda: Plain(by_autograd), in_module("SCALE", 3.0)),
    "backward of autograd": (
        lambda: Plain(by_autograd),
        lambda cell, patch: patch.setattr(watch_cells, "SCALES", [3.0]),
    ),
    "another library": (
        lambda: Plain(by_other),
        lambda cell, patch: patch.setattr(other_library, "double", torch.tanh),
    ),
    "attribute by a made name": (
        lambda: Plain(by_argument),
        lambda cell, patch: patch.setattr(Config, "scale", 3.0),
    ),
    "default dtype": (
        Plain,
        lambda cell, _: torch.set_default_dtype(torch.float64),
    ),
}


@pytest.fixture(autouse=True)
def _as_before():
    yield
    torch.set_default_dtype(torch.float32)
    del SCALES[1:], PARENTS[:], CLOSURES[:]


#: Changes after which a cell cannot be watched at all.
UNWATCHABLE = ("hook", "dead parent", "global gone")
#: Changes after which code finds something else that is the same to it.
ALIKE = ("list of a module", "another module")
#: Changes of what no form tells: tensors of no module, objects that hide something.
FORMLESS = ("another tensor", "shape of a tensor", "attribute of a tensor", "attribute of a number")
FORMLESS += ("deque", "method of a list", "integer of an enumeration", "integer for an enumeration")


@pytest.mark.parametrize("name", [name for name in CHANGES if name not in UNWATCHABLE])
def test_a_changed_cell_has_another_form(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make, change = CHANGES[name]
    cell = make()
    before = Watch(cell).form()
    change(cell, monkeypatch)
    after = Watch(cell).form()
    assert (before is None) == (name in FORMLESS)
    if before is not None:
        assert (before == after) == (name in ALIKE)


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make, change = CHANGES[name]
    cell = make()
    watch = Watch(cell)
    assert watch.is_unchanged()
    change(cell, monkeypatch)
    assert not watch.is_unchanged()
    if name not in UNWATCHABLE:
        assert Watch(cell).is_unchanged()
