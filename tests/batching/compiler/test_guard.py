"""Code that makes a program depend on numbers or sizes is refused, with its line."""

from __future__ import annotations

import copy
import functools
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from compiled_checks import states_and_gradients
from engine_cells import SIZE, WordCell, make_batch, make_network, make_x, random_dag, tree_cells
from torch import Tensor

from graphfold.batching import Children
from graphfold.batching.compiler.guard import RowCount, RowShape, without_counts
from graphfold.batching.compiler.values import Untraceable
from graphfold.batching.engine.compiled import programs
from graphfold.errors import EngineError

Change = Callable[["Odd", Tensor, Children], Tensor]
LAST: Any = None
KEPT: list[Tensor] = []


class Odd(WordCell):
    """Does something to `h`."""

    def __init__(self, change: Change) -> None:
        super().__init__()
        self.change = change
        self.register_buffer("factors", torch.tensor([2.0, 3.0, 4.0], dtype=torch.float64))
        self.cache: dict[str, Tensor] = {}

    def forward(self, x: Tensor, children: Children) -> dict[str, Tensor]:
        state = super().forward(x, children)
        return {**state, "h": self.change(self, state["h"], children)}


@functools.lru_cache
def ones(width: int) -> Tensor:
    return torch.ones(width, dtype=torch.float64)


def of_a_range(h: Tensor) -> Tensor:
    if h.size(0) >= 64 and h.size(0) < 1000:
        return h * 2
    return h * 3


def in_cache(cell: Odd, h: Tensor, children: Children) -> Tensor:
    if "ones" not in cell.cache:
        cell.cache["ones"] = torch.ones(SIZE, dtype=h.dtype)
    return h * cell.cache["ones"]


def in_global(cell: Odd, h: Tensor, children: Children) -> Tensor:
    global LAST
    LAST = h
    return h * 2


def in_list(cell: Odd, h: Tensor, children: Children) -> Tensor:
    KEPT.append(h)
    return h * 2


def in_attribute(cell: Odd, h: Tensor, children: Children) -> Tensor:
    cell.last = h.detach()
    return h * 2


def nested_loops(cell: Odd, h: Tensor, children: Children) -> Tensor:
    return h * sum(0 * m * n for n in range(len(h)) for m in range(len(h))) + h


def caught(cell: Odd, h: Tensor, children: Children) -> Tensor:
    try:
        return h * cell.factors.tolist()[0]
    except Exception:
        return h * 2


NUMBERS: dict[str, Change] = {
    "tolist": lambda p, h, c: h * p.factors.tolist()[0],
    "item": lambda p, h, c: h * p.factors[0].item(),
    "float": lambda p, h, c: h * float(p.factors[0]),
    "bool": lambda p, h, c: h if p.factors[0] > 1 else 2 * h,
    "contains": lambda p, h, c: h * (2.0 in p.factors),
    "numpy": lambda p, h, c: h * float(p.factors.numpy()[0]),
    "array": lambda p, h, c: h * float(np.asarray(p.factors)[0]),
    "dlpack": lambda p, h, c: h * float(np.from_dlpack(p.factors)[0]),
    "data_ptr": lambda p, h, c: h * (p.factors.data_ptr() > 0),
    "untyped_storage": lambda p, h, c: h * len(p.factors.untyped_storage()),
    "repr": lambda p, h, c: h * len(str(p.factors)),
    "format": lambda p, h, c: h * float(f"{p.factors[0]:.2f}"),
    "deepcopy": lambda p, h, c: h * copy.deepcopy(p.factors),
    "equal": lambda p, h, c: h * torch.equal(p.factors, p.factors),
    "grad": lambda p, h, c: h if p.linear.weight.grad is None else 2 * h,
    "caught by the cell": caught,
}
SIZES: dict[str, Change] = {
    "a range": lambda p, h, c: h * 2 if 64 <= c.group_size < 1000 else h * 3,
    "shape": lambda p, h, c: h * 2 if h.shape[0] > 3 else h * 3,
    "size": lambda p, h, c: h * 2 if h.size()[0] == 3 else h * 3,
    "len": lambda p, h, c: h * 2 if len(h) > 3 else h * 3,
    "numel": lambda p, h, c: h * 2 if h.numel() > 9 else h * 3,
    "a divisor": lambda p, h, c: h / h.shape[0],
    "a factor": lambda p, h, c: h * c.group_size,
    "one by": lambda p, h, c: h * (1 / len(h)),
    "float": lambda p, h, c: h * float(len(h)),
    "fill": lambda p, h, c: h * torch.full((len(h), 1), len(h)),
    "tensor": lambda p, h, c: h * torch.tensor(len(h)),
    "a key": lambda p, h, c: h * {1: 2.0}.get(c.group_size, 3.0),
    "text": lambda p, h, c: h * len(f"{h.shape}"),
    "half": lambda p, h, c: torch.cat([h[: len(h) // 2] * 2, h[len(h) // 2 :]]),
    "a loop": lambda p, h, c: torch.stack([h[n] for n in range(h.shape[0])]),
    "nested loops": nested_loops,
}
LOOPS: dict[str, Change] = {
    "rows": lambda p, h, c: torch.stack([row * 2 for row in h]),
    "list": lambda p, h, c: torch.stack(list(h)),
    "unbind": lambda p, h, c: torch.stack(h.unbind()),
    "split": lambda p, h, c: torch.cat(h.split(1)),
    "first": lambda p, h, c: h + h[0],
}
KEEPING: dict[str, Change] = {
    "dictionary": in_cache,
    "lru_cache": lambda p, h, c: h * ones(SIZE),
    "global": in_global,
    "list": in_list,
    "attribute": in_attribute,
}


def assert_refused(change: Change, reason: str) -> Odd:
    """Refused with the line, and right in both engines; nothing of the trace stays behind."""
    torch.manual_seed(0)
    cell = Odd(change)
    network, dag = make_network(cells=[{**tree_cells(), "word": cell}]), random_dag(4, 0)
    x = make_x(dag)
    with pytest.warns(UserWarning, match=f"Odd is not compiled: {reason}"):
        actual = states_and_gradients(network, dag, x)
    network.run = "eager"
    torch.testing.assert_close(actual, states_and_gradients(network, dag, x))
    return cell


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_of_tensors(name):
    assert_refused(NUMBERS[name], "it is data-dependent: .*line")


@pytest.mark.parametrize("name", [name for name in SIZES if name not in ("a key", "half")])
def test_sizes_of_groups(name):
    reason = "its code depends on how many nodes are in a group: .*line .* of test_guard.py"
    assert_refused(SIZES[name], reason)


def test_a_size_as_a_key():
    assert_refused(SIZES["a key"], "TypeError: a number of nodes .* cannot be a key")


def test_half_of_a_group():
    assert_refused(SIZES["half"], "its code depends on how many|it works across the nodes|it makes")


@pytest.mark.parametrize("name", LOOPS)
def test_loops_over_rows(name):
    assert_refused(LOOPS[name], "it works across the nodes of a group.*test_guard.py")


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
def test_code_in_torchscript():
    scripted = torch.jit.script(of_a_range)
    assert_refused(lambda p, h, c: scripted(h), ".*code in TorchScript")


@pytest.mark.parametrize("name", KEEPING)
def test_kept_tensors_are_put_back(name):
    ones.cache_clear()
    KEPT.clear()
    cell = assert_refused(KEEPING[name], "it keeps a tensor")
    kept = [*cell.cache.values(), *KEPT, getattr(cell, "last", None), LAST, ones(SIZE)]
    assert {type(value) for value in kept} <= {Tensor, type(None)}  # none without numbers


class Holder:
    """Has a slot, out of which nothing is taken."""

    __slots__ = ("tensor",)


def test_a_tensor_that_cannot_be_taken_out_is_an_error():
    holder = Holder()

    def keep(cell: Odd, h: Tensor, children: Children) -> Tensor:
        holder.tensor = h
        return h * 2

    network = make_network(cells=[{**tree_cells(), "word": Odd(keep)}])
    dag = random_dag(4, 0)
    with pytest.raises(EngineError, match=r"Odd keeps a tensor .* take it out .*run=eager"):
        network(make_batch(dag, network), make_x(dag))
    network.run = "eager"
    network(make_batch(dag, network), make_x(dag))


def test_a_cell_that_remembers_is_traced_a_few_times_only(monkeypatch):
    network, dag = (
        make_network(cells=[{**tree_cells(), "word": Odd(in_attribute)}]),
        random_dag(4, 0),
    )
    compiled, calls = programs._compile_anew, []
    monkeypatch.setattr(
        programs, "_compile_anew", lambda *args: calls.append(args) or compiled(*args)
    )
    x = make_x(dag)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(12):
            states_and_gradients(network, dag, x)
    assert (
        1 <= len([cell for cell, *_ in calls if isinstance(cell, Odd)]) <= 1 + programs.MAX_RETRIES
    )


def refuse(use: str) -> Any:
    raise Untraceable(use)


def test_a_number_of_rows():
    n = RowCount(1_000_003, 1, refuse)
    assert n == n
    assert n * 3 // 3 == n
    assert (n * 3) // n == 3
    assert n > 0
    assert n >= 1
    assert max(n, 1) is n
    assert n != 0
    assert n is not None
    assert n != "n"
    assert without_counts([(n, 2), slice(None, n)]) == [(1_000_003, 2), slice(None, 1_000_003)]
    assert RowShape((n, 2, 3)).numel() == n * 6
    plain = (1, [2, slice(0, 1)])
    assert without_counts(plain) == plain
    for use in (
        lambda: n > 1,
        lambda: n == 5,
        lambda: n + 1 == n,
        lambda: n // 2,
        lambda: n * 0.5,
        lambda: n % 2,
        lambda: -n,
        lambda: 1 / n,
        lambda: range(n),
        lambda: int(n),
        lambda: f"{n}",
        lambda: [1][n],
    ):
        with pytest.raises(Untraceable):
            use()


def test_more_than_one_node_may_be_assumed():
    assumed = []
    n = RowCount(1_000_003, 1, refuse, lambda: assumed.append(True))
    assert n > 0
    assert not assumed
    assert not n < 2
    assert assumed
    with pytest.raises(Untraceable):
        n > 2  # noqa: B015


def test_len_is_restored():
    python_len = len
    assert_refused(SIZES["len"], "its code depends on how many nodes")
    assert len is python_len
