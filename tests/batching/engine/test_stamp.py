"""A stamp sees what the programs of a cell depend on, and nothing else."""

from __future__ import annotations

import collections
import copy
import dataclasses
import functools
import gc
import types
import weakref
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import graphfold.blocks as td
from graphfold.batching import Batch, Cell, Network, Up, build_schedule
from graphfold.batching.engine.stamp import MAX_ITEMS, Stamp
from graphfold.dag import GraphBuilder, NodeType, Schema

SIZE = 3
SCALE = 2.0


class Plain(Cell):
    """A cell with attributes as a test gives them."""

    arity = 0

    def __init__(self, function: Callable[..., Any] = F.relu, **attributes: Any) -> None:
        super().__init__()
        self.fields = {"h": SIZE}
        self.linear = nn.Linear(SIZE, SIZE)
        self.function = function
        for name, value in attributes.items():
            setattr(self, name, value)

    def forward(self, x: Tensor, children: Any) -> Mapping[str, Tensor]:
        return {"h": self.function(self.linear(x))}


@dataclasses.dataclass
class Settings:
    scale: float = 2.0


def looped() -> list[Any]:
    items: list[Any] = [1]
    items.append(items)
    return items


CHANGES: dict[str, tuple[Callable[[], Cell], Callable[[Any], Any]]] = {
    "number": (lambda: Plain(scale=2.0), lambda cell: setattr(cell, "scale", 3.0)),
    "type of a number": (lambda: Plain(scale=1), lambda cell: setattr(cell, "scale", True)),
    "sign of zero": (lambda: Plain(scale=0.0), lambda cell: setattr(cell, "scale", -0.0)),
    "text": (lambda: Plain(how="sum"), lambda cell: setattr(cell, "how", "mean")),
    "dtype": (lambda: Plain(kind=torch.float32), lambda c: setattr(c, "kind", torch.float64)),
    "new attribute": (Plain, lambda cell: setattr(cell, "scale", 3.0)),
    "attribute gone": (lambda: Plain(scale=2.0), lambda cell: delattr(cell, "scale")),
    "attribute of a module": (Plain, lambda cell: setattr(cell.linear, "scale", 3.0)),
    "mode": (Plain, lambda cell: cell.eval()),
    "mode of a module": (Plain, lambda cell: cell.linear.eval()),
    "list": (lambda: Plain(items=[[2.0]]), lambda cell: cell.items[0].append(3.0)),
    "item of a list": (lambda: Plain(items=[2.0]), lambda c: c.items.__setitem__(0, 3.0)),
    "list in a tuple": (lambda: Plain(items=([2.0],)), lambda cell: cell.items[0].append(3.0)),
    "list that holds itself": (lambda: Plain(items=looped()), lambda cell: cell.items.append(3)),
    "empty list": (lambda: Plain(items=[]), lambda cell: cell.items.append(3.0)),
    "set": (lambda: Plain(items={1, 2}), lambda cell: cell.items.add(3)),
    "deque": (
        lambda: Plain(items=collections.deque([2.0, 3.0])),
        lambda cell: cell.items.rotate(1),
    ),
    "dict": (lambda: Plain(items={"a": 1}), lambda cell: cell.items.update(a=2)),
    "key of a dict": (
        lambda: Plain(items={"a": 1}),
        lambda cell: cell.items.update(b=cell.items.pop("a")),
    ),
    "order of a dict": (
        lambda: Plain(items={"a": 1, "b": 1}),
        lambda cell: cell.items.update(a=cell.items.pop("a")),
    ),
    "empty dict": (lambda: Plain(items={}), lambda cell: cell.items.update(a=2)),
    "dataclass": (
        lambda: Plain(settings=Settings()),
        lambda cell: setattr(cell.settings, "scale", 3.0),
    ),
    "namespace in a list": (
        lambda: Plain(settings=[SimpleNamespace(scale=2.0)]),
        lambda cell: setattr(cell.settings[0], "scale", 3.0),
    ),
    "array": (lambda: Plain(scales=np.ones(3)), lambda c: c.scales.__setitem__(0, 2.0)),
    "another array": (
        lambda: Plain(scales=np.ones(4)),
        lambda cell: setattr(cell, "scales", np.ones(5)),
    ),
    "another function": (Plain, lambda cell: setattr(cell, "function", F.silu)),
    "another object": (
        lambda: Plain(owner=object()),
        lambda cell: setattr(cell, "owner", object()),
    ),
    "forward of one cell": (
        Plain,
        lambda cell: setattr(cell, "forward", types.MethodType(Plain.forward, cell)),
    ),
    "class": (Plain, lambda cell: setattr(cell, "__class__", type("Other", (Plain,), {}))),
    "new module": (Plain, lambda cell: setattr(cell, "norm", nn.LayerNorm(SIZE))),
    "another module": (Plain, lambda c: setattr(c, "linear", nn.Linear(SIZE, SIZE))),
    "module in a list": (
        lambda: Plain(layers=[nn.Dropout(0.1)]),
        lambda cell: setattr(cell.layers[0], "p", 0.2),
    ),
    "parameter without a gradient": (Plain, lambda cell: cell.linear.weight.requires_grad_(False)),
    "dtype of parameters": (Plain, lambda cell: cell.double()),
    "no bias": (Plain, lambda cell: setattr(cell.linear, "bias", None)),
    "a new buffer": (Plain, lambda cell: cell.register_buffer("scale", torch.ones(2))),
    "kind of an unregistered tensor": (
        lambda: Plain(held=[torch.ones(2)]),
        lambda cell: cell.held[0].requires_grad_(),
    ),
    "another unregistered tensor": (
        lambda: Plain(held=[torch.ones(2)]),
        lambda cell: cell.held.__setitem__(0, torch.ones(2)),
    ),
    "tied parameters": (
        lambda: Plain(other=nn.Linear(SIZE, SIZE)),
        lambda cell: setattr(cell.other, "weight", cell.linear.weight),
    ),
    "hook": (Plain, lambda cell: cell.register_forward_hook(lambda *_: None)),
    "hook of a module": (Plain, lambda c: c.linear.register_forward_pre_hook(lambda *_: None)),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_seen(name: str) -> None:
    make, change = CHANGES[name]
    cell = make()
    stamp = Stamp(cell)
    assert stamp.is_unchanged()
    change(cell)
    assert not stamp.is_unchanged()


@pytest.mark.parametrize("name", [name for name in CHANGES if name != "another module"])
def test_cells_of_one_form_are_equal_and_others_are_not(name: str) -> None:
    make, change = CHANGES[name]
    form = Stamp(make()).form()
    cell = make()
    if form is not None:
        assert form == Stamp(cell).form()
        assert hash(form) == hash(Stamp(cell).form())
        change(cell)
        assert form != Stamp(cell).form()


WITHOUT_FORM: dict[str, Callable[[], Cell]] = {
    "a tensor": lambda: Plain(held=torch.ones(2)),
    "an object": lambda: Plain(owner=object()),
    "a function with variables": lambda: Plain((lambda scale: lambda x: x * scale)(2.0)),
    "a large dict": lambda: Plain(items=dict.fromkeys(range(MAX_ITEMS + 1))),
    "a large array": lambda: Plain(table=np.ones(600)),
    "an array of objects": lambda: Plain(table=np.array([None])),
}


@pytest.mark.parametrize("name", WITHOUT_FORM)
def test_what_counts_by_identity_has_no_form(name: str) -> None:
    cell = WITHOUT_FORM[name]()
    stamp = Stamp(cell)
    assert stamp.form() is None
    assert stamp.is_unchanged()


def test_another_forward_of_a_class_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    cell = Plain()
    stamp, form = Stamp(cell), Stamp(cell).form()
    monkeypatch.setattr(nn.Linear, "forward", lambda self, x: x)
    assert not stamp.is_unchanged()
    assert Stamp(cell).form() != form


class Partial(Plain):
    def scaled(self, x: Tensor, children: Any, scale: float) -> Mapping[str, Tensor]:
        return {"h": x * scale}

    forward = functools.partialmethod(scaled, scale=2.0)  # type: ignore[assignment]


def test_a_forward_that_is_no_plain_function_is_no_change() -> None:
    assert Stamp(Partial()).is_unchanged()


def test_methods_and_partial_functions_have_a_form() -> None:
    def make(scale: float) -> Cell:
        cell = Plain(functools.partial(F.leaky_relu, negative_slope=scale))
        cell.ops = {"act": cell.double}
        return cell

    assert Stamp(make(0.1)).form() == Stamp(make(0.1)).form() is not None
    assert Stamp(make(0.1)).form() != Stamp(make(0.2)).form()


SAME: dict[str, Callable[[Any], Any]] = {
    "an equal number": lambda cell: setattr(cell, "scale", float("2.0")),
    "numbers of parameters": lambda cell: [p.data.mul_(2) for p in cell.parameters()],
    "another parameter of one kind": lambda cell: setattr(
        cell.linear, "weight", nn.Parameter(torch.zeros(SIZE, SIZE))
    ),
    "gradients": lambda cell: cell.linear(torch.ones(SIZE)).sum().backward(),
    "a state": lambda cell: cell.load_state_dict(copy.deepcopy(cell.state_dict())),
    "there and back": lambda cell: cell.eval().train(),
    "a run": lambda cell: cell.forward(torch.ones(2, SIZE), None),
    "a copy": copy.deepcopy,
}


@pytest.mark.parametrize("name", SAME)
def test_what_programs_do_not_depend_on_is_no_change(name: str) -> None:
    cell = Plain(scale=2.0)
    stamp = Stamp(cell)
    SAME[name](cell)
    assert stamp.is_unchanged()


def test_the_default_dtype_counts() -> None:
    stamp = Stamp(Plain())
    torch.set_default_dtype(torch.float64)
    try:
        assert not stamp.is_unchanged()
    finally:
        torch.set_default_dtype(torch.float32)
    assert stamp.is_unchanged()


def test_what_a_run_has_changed_is_put_back() -> None:
    items, options, settings = [1.0], {"a": [2.0]}, Settings()
    cell = Plain(items=items, options=options, settings=settings, chosen={1}, scale=2.0)
    stamp, linear = Stamp(cell), cell.linear
    restore = stamp.keep()
    items.append(3.0)
    options["a"].append(3.0)
    options["b"] = 1
    settings.scale = 3.0
    cell.chosen.add(2)
    cell.last, cell.scale = torch.ones(2), 3.0
    cell.linear = nn.Linear(2, 2)
    del cell.function
    cell.register_buffer("kept", torch.ones(1))
    restore()
    assert stamp.is_unchanged()
    assert (items, options, settings) == ([1.0], {"a": [2.0]}, Settings())
    assert cell.chosen == {1}
    assert cell.linear is linear
    assert not hasattr(cell, "last")
    assert not hasattr(cell, "kept")


def test_a_stamp_goes_with_its_cell() -> None:
    cell = Plain()
    cell.ops = {"act": cell.double}
    cell.stamp_of_test = SimpleNamespace(of=[Stamp(cell)])
    found = weakref.ref(cell)
    del cell
    gc.collect()
    assert found() is None


def test_parameters_that_are_replaced_are_freed() -> None:
    network, values = network_of(Plain())
    values()
    (cell,) = network.cells[0]["n"]
    old = weakref.ref(cell.linear.weight)
    cell.load_state_dict(copy.deepcopy(cell.state_dict()), assign=True)
    values()
    gc.collect()
    assert old() is None


def by_global(x: Tensor) -> Tensor:
    return x * SCALE


def network_of(cell: Cell) -> tuple[Network, Callable[[], Tensor]]:
    schema = Schema((NodeType("n", 0),))
    builder = GraphBuilder(schema)
    builder.nodes("n", 5)
    builder.output(0)
    builder.finish()
    dag = builder.build()
    network = Network(schema, (Up(), {"n": cell}))
    batch = Batch(dag, build_schedule(dag, network.passes))
    return network, lambda: network(batch, {"n": torch.ones(5, SIZE)})["h"].detach().clone()


def test_globals_are_constants_until_the_network_is_compiled_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    network, values = network_of(Plain(by_global))
    before = values()
    monkeypatch.setattr(f"{__name__}.SCALE", 3.0)
    assert torch.equal(values(), before)
    network.recompile()
    assert torch.allclose(values(), before * 1.5)
    assert network.execution["n"] == "compiled (native)"


def random_number(x: Tensor) -> Tensor:
    import random

    return x * random.random()


def test_a_cell_that_draws_numbers_of_python_runs_as_it_is() -> None:
    network, values = network_of(Plain(random_number))
    with pytest.warns(UserWarning, match="other numbers than the cell"):
        assert not torch.equal(values(), values())
    assert network.execution["n"].startswith("eager")


class Remembering(Plain):
    """Keeps what it computes."""

    def __init__(self) -> None:
        super().__init__(history=[])

    def forward(self, x: Tensor, children: Any) -> Mapping[str, Tensor]:
        state = super().forward(x, children)
        self.history.append(state["h"].detach())
        return state


def test_a_cell_that_keeps_what_it_computes_runs_as_it_is() -> None:
    cell = Remembering()
    network, values = network_of(cell)
    with pytest.warns(UserWarning, match="keeps a tensor"):
        first = values()
    second = values()
    assert network.execution["n"].startswith("eager")
    assert [len(own) for own in cell.history] == [5, 5]
    assert torch.equal(torch.stack(cell.history), torch.stack([first, second]))


def hooked() -> Cell:
    cell = Plain()
    cell.linear.register_forward_hook(lambda module, args, out: 2 * out)
    return cell


def scripted() -> Cell:
    return Plain(torch.jit.script(nn.Linear(SIZE, SIZE)))


def lazy() -> Cell:
    return Plain(part=nn.LazyLinear(2))


REFUSED = {
    "lazy modules": (lazy, "LazyLinear has hooks"),
    "hooks": (hooked, "Linear has hooks"),
    "TorchScript": (scripted, "it has code in TorchScript"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_modules_that_cannot_be_traced(name: str) -> None:
    make, reason = REFUSED[name]
    cell = make()
    network, values = network_of(cell)
    with pytest.warns(UserWarning, match=f"Plain is not compiled: {reason}"):
        actual = values()
    assert torch.equal(actual, cell.forward(torch.ones(5, SIZE), None)["h"])
    assert network.execution["n"].startswith("eager")


def test_a_hook_that_is_gone_lets_the_cell_be_compiled() -> None:
    cell = Plain()
    handle = cell.linear.register_forward_hook(lambda module, args, out: 2 * out)
    network, values = network_of(cell)
    with pytest.warns(UserWarning, match="has hooks"):
        values()
    handle.remove()
    values()
    assert network.execution["n"] == "compiled (native)"


def test_a_hook_for_all_modules() -> None:
    network, values = network_of(Plain())
    handle = nn.modules.module.register_module_forward_hook(lambda *_: None)
    try:
        with pytest.warns(UserWarning, match="there are hooks for all modules"):
            values()
    finally:
        handle.remove()
    values()
    assert network.execution["n"] == "compiled (native)"


def test_cells_of_combinators_follow_the_dtype_of_the_model() -> None:
    block = td.Record((td.Vector(2) >> td.FC(3), td.Vector(2) >> td.FC(3)))
    model = td.compile(block >> td.Function(torch.add))
    model([([1, 2], [3, 4])] * 3)
    stamps = [Stamp(cell) for cell in model.node_types._cells.values()]
    assert stamps
    assert all(stamp.is_unchanged() for stamp in stamps)
    model.node_types.precision.dtype = torch.float64
    assert not any(stamp.is_unchanged() for stamp in stamps)
