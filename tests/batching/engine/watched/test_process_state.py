"""Functions that read the process or the machine are refused, or their value is watched."""

from __future__ import annotations

import dataclasses
import decimal
import gc
import logging
import os
import pathlib
import sys
import threading
import types
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from graphfold.batching import Batch, Cell, Network, Up, build_schedule
from graphfold.dag import GraphBuilder, NodeType, Schema

SCHEMA = Schema((NodeType("n", 0),))
X = {"n": torch.arange(15.0).view(5, 3)}
HERE = pathlib.Path(__file__)
LOG = logging.getLogger("graphfold.tests.watched")


class Scaling(Cell):
    """h = factor() x."""

    arity, fields = 0, {"h": 3}

    def __init__(self, factor: Callable[[], Any], holds: object = None) -> None:
        super().__init__()
        self.factor = factor
        self.holds = holds

    def forward(self, x: Any, children: Any) -> dict[str, Tensor]:
        return {"h": x * self.factor()}


def network_of(cell: Cell) -> tuple[Network, Callable[[], Tensor]]:
    builder = GraphBuilder(SCHEMA)
    builder.nodes("n", 5)
    builder.output(0)
    builder.finish()
    dag = builder.build()
    network = Network(SCHEMA, [Up()], [{"n": cell}])
    batch = Batch(dag, build_schedule(dag, network.passes))
    return network, lambda: network(batch, X)["h"].detach().clone()


@pytest.mark.parametrize(
    ("factor", "what"),
    [
        (lambda: 2 if os.path.exists("/nowhere") else 3, "files"),
        (lambda: len(os.getcwd()), "posix.getcwd()"),
        (lambda: os.stat("/").st_size, "files"),
        (lambda: HERE.stat().st_size, "files"),
        (lambda: len(os.listdir("/")), "posix.listdir()"),
        (lambda: sys.getrecursionlimit(), "sys.getrecursionlimit()"),
        (lambda: 2 if gc.isenabled() else 3, "gc.isenabled()"),
        (lambda: threading.active_count(), "threading.active_count()"),
        (lambda: len(np.geterr()["divide"]), "numpy.geterr()"),
        (lambda: decimal.getcontext().prec, "decimal.getcontext()"),
        (lambda: float(decimal.Decimal(1) / 3), "the precision of decimal numbers"),
        (lambda: logging.getLogger("x").level, "logging.getLogger()"),
        (lambda: torch.initial_seed() % 97, "initial_seed()"),
        (lambda: torch.get_num_threads(), "get_num_threads()"),
        (lambda: 2 if torch.are_deterministic_algorithms_enabled() else 3, "deterministic"),
        (lambda: 2 if torch.backends.mkldnn.enabled else 3, "switches of torch"),
        (lambda: len(torch.get_float32_matmul_precision()), "get_float32_matmul_precision()"),
        (lambda: 2 if torch.cuda.is_available() else 3, "torch.cuda.is_available()"),
    ],
)
def test_a_cell_that_asks_for_it_runs_as_it_is(factor: Callable[[], Any], what: str) -> None:
    network, values = network_of(Scaling(factor))
    with pytest.warns(UserWarning, match="not compiled") as warned:
        actual = values()
    assert what in str(warned[0].message)
    assert network.execution["n"].startswith("as it is")
    assert torch.equal(actual, X["n"] * factor())


class _WithMeta(type):
    v = 2.0


MADE: dict[str, Any] = {
    "type()": type("Made", (Cell,), {"v": 2.0}),
    "a metaclass": _WithMeta("Made", (), {}),
    "make_dataclass": dataclasses.make_dataclass("Made", [("v", float, 2.0)]),
    "new_class": types.new_class("Made", (), {}, lambda own: own.update(v=2.0)),
}


@pytest.mark.parametrize("how", MADE)
def test_a_class_that_is_made_by_a_call_can_change(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = MADE[how]
    network, values = network_of(Scaling(lambda: made.v))
    assert torch.equal(values(), X["n"] * 2)
    assert network.execution["n"] == "compiled (native)"
    monkeypatch.setattr(made, "v", 5.0, raising=False)
    assert torch.equal(values(), X["n"] * 5)


def test_a_property_of_a_class_made_by_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    store = {"v": 2.0}
    own = {"v": property(lambda self: store["v"])}
    kind = type("Made", (Scaling,), own)
    cell = kind(lambda: 1.0)
    object.__setattr__(cell, "factor", lambda: cell.v)
    network, values = network_of(cell)
    assert torch.equal(values(), X["n"] * 2)
    assert network.execution["n"] == "compiled (native)"
    store["v"] = 7.0
    assert torch.equal(values(), X["n"] * 7)


@pytest.mark.parametrize(
    "factor",
    [
        lambda: 2 if LOG.isEnabledFor(10) else 3,
        lambda: LOG.level + 1,
        lambda: LOG.getEffectiveLevel(),
    ],
)
def test_how_much_a_logger_tells_is_looked_at(factor: Callable[[], Any]) -> None:
    LOG.setLevel(20)
    network, values = network_of(Scaling(factor))
    before = values()
    assert torch.equal(before, X["n"] * factor())
    LOG.setLevel(10)
    assert torch.equal(values(), X["n"] * factor())
    assert network.execution["n"] == "compiled (native)"
    assert not torch.equal(before, values())


def test_lists_in_the_library_are_looked_at() -> None:
    network, values = network_of(Scaling(lambda: len(warnings.filters)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        before = values()
        warnings.filterwarnings("ignore", "another text")
        after = values()
    assert network.execution["n"] == "compiled (native)"
    assert torch.allclose(after - before, X["n"])


@dataclasses.dataclass
class Settings:
    v: float = 2.0


class Slots:
    __slots__ = ("v",)

    def __init__(self) -> None:
        self.v = 2.0


@pytest.mark.parametrize("kind", [Settings, Slots])
def test_an_object_that_is_copied_while_a_cell_is_tried(kind: type) -> None:
    # copy.deepcopy notes the slots in the class the first time, which is no change of it.
    held = kind()
    network, values = network_of(Scaling(lambda: held.v, holds=held))
    assert torch.equal(values(), X["n"] * 2)
    assert network.execution["n"] == "compiled (native)"
    held.v = 4.0
    assert torch.equal(values(), X["n"] * 4)


def test_recompile_sees_what_nothing_else_sees() -> None:
    network, values = network_of(Scaling(lambda: len(repr(np.array([1 / 3])))))
    with np.printoptions(precision=8):
        before = values()
    assert network.execution["n"] == "compiled (native)"
    with np.printoptions(precision=2):
        assert torch.equal(values(), before)  # the limit that docs/engine.md names
        network.recompile()
        after = values()
    assert not torch.equal(after, before)
    assert network.execution["n"] == "compiled (native)"


class _Named(Scaling):
    """A cell with a layer, a field and a function that are called like methods of paths."""

    arity, fields = 0, {"h": 3, "stat": 3}

    def __init__(self) -> None:
        super().__init__(lambda: 2.0)
        self.stat, self.open = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)

    def exists(self, x: Tensor) -> Tensor:
        return x * self.factor()

    def forward(self, x: Any, children: Any) -> dict[str, Tensor]:
        return {"h": self.exists(self.open(x)), "stat": self.stat(x)}


def test_names_that_paths_have_as_well_read_no_files() -> None:
    network, values = network_of(_Named())
    values()
    assert network.execution["n"] == "compiled (native)"


@pytest.mark.parametrize(
    "factor",
    [
        lambda: float(HERE.exists()),
        lambda: float(pathlib.Path("/").is_dir()),
        lambda path=HERE: len(path.read_text()[:2]),
        lambda: len(list((HERE / "..").glob("x"))),
        lambda: float((HERE,)[0].is_file()),
    ],
    ids=["global", "class", "default", "parent", "tuple"],
)
def test_methods_of_paths_read_files(factor: Callable[[], Any]) -> None:
    network, values = network_of(Scaling(factor))
    with pytest.warns(UserWarning, match="files cannot be watched"):
        values()
    assert network.execution["n"].startswith("as it is")
