"""What cannot be traced runs as it is, gives the same, and says so once."""

from __future__ import annotations

import gc
import logging
import random
import weakref

import pytest
import torch
from engine_cells import SCHEMA, SIZE, make_batch, make_x, random_dag
from program_checks import (
    Apply,
    SumCell,
    UpCell,
    assert_same,
    cell_of,
    check,
    num_programs,
    run,
    traced,
    with_engine,
)
from torch import Tensor, nn
from torch.nn import functional as F

from graphfold.batching import Network, Up
from graphfold.errors import EngineError
from graphfold.layers.dropout import drop

DAG = random_dag(5, 2)
LOGGER = "graphfold.batching"


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.name.startswith(LOGGER)]


def where_far(cell: nn.Module, x: Tensor) -> Tensor:
    """A branch upon values."""
    h = cell.linear(x)
    return h.clamp(-1, 1) if bool((h.abs() > 1).any()) else h


def scaled(cell: nn.Module, x: Tensor) -> Tensor:
    """A number taken out of a tensor; it changes no more than the last digits."""
    h = cell.linear(x)
    largest = h.abs().max().item() + 1.0
    return (h / largest).mul(largest)


def in_pieces(cell: nn.Module, x: Tensor) -> Tensor:
    """A branch upon the number of nodes."""
    return torch.cat([cell.linear(part) for part in x.split(2)]) if len(x) > 2 else cell.linear(x)


def one_by_one(cell: nn.Module, x: Tensor) -> Tensor:
    return torch.stack([cell.linear(row) for row in x])


def to_numpy(cell: nn.Module, x: Tensor) -> Tensor:
    """Leaves torch and comes back."""
    return cell.linear(x) + torch.from_numpy(x.detach().numpy() * 2)


def of_rows(cell: nn.Module, x: Tensor) -> Tensor:
    """Rows that are chosen by their values."""
    chosen = (x[:, 0] > 0).nonzero()[:, 0]
    return cell.linear(x).index_add(0, chosen, cell.linear(x[chosen]))


@pytest.mark.parametrize("function", [where_far, in_pieces, one_by_one, to_numpy])
def test_code_that_depends_on_values_or_sizes_runs_as_it_is(function, caplog):
    network = traced(function)
    with caplog.at_level(logging.INFO, LOGGER):
        check(network)
    assert num_programs(cell_of(network)) == 0
    told = [line for line in lines(caplog) if line.startswith("Apply")]
    assert len(told) == 1
    assert "runs as it is: " in told[0]
    assert "\n" not in told[0]


@pytest.mark.parametrize("function", [scaled, of_rows])
def test_values_taken_out_of_tensors_are_the_same_however_they_run(function):
    check(traced(function))


def test_branches_of_children_are_the_same_however_they_run():
    def phrase(cell, x, children):
        total = children.sum("h")
        return cell.linear(total) + x if bool((total > 0).all()) else cell.linear(total.relu()) - x

    def alone(cell, x, children):  # the same for each node alone
        h = cell.linear(children.sum("h"))
        return h.clamp(-1, 1) + x if bool((h.abs() > 1).any()) else h + x

    check(traced(phrase=alone))
    network, x = traced(phrase=phrase), make_x(DAG)
    want = run(with_engine(network), DAG, x)
    for _ in range(2):
        assert_same(run(network, DAG, x), want, 0)


# --- Random numbers


#: Random code -> whether a program can draw the same numbers.
RANDOM = {
    "dropout": (lambda cell, x: F.dropout(cell.linear(x), 0.5), True),
    "little dropout": (lambda cell, x: F.dropout(cell.linear(x), 0.07), True),
    "graphfold's": (lambda cell, x: drop(cell.linear(x), 0.3, True), True),
    "two of them": (lambda cell, x: F.dropout(cell.linear(F.dropout(x, 0.3)), 0.6), True),
    "all dropped": (lambda cell, x: F.dropout(cell.linear(x), 1.0), False),
    "alpha dropout": (lambda cell, x: F.alpha_dropout(cell.linear(x), 0.2, True), True),
    "noise": (lambda cell, x: cell.linear(x) + torch.randn_like(x), True),
    "noise in place": (lambda cell, x: cell.linear(x) * torch.empty_like(x).uniform_(), True),
    "codes": (lambda cell, x: cell.linear(x) * torch.randint_like(x, 4), True),
    "dropped weights": (lambda cell, x: F.linear(x, F.dropout(cell.linear.weight, 0.5)), False),
    "one number": (lambda cell, x: cell.linear(x) * torch.rand(1).to(x), True),
    "unused": (lambda cell, x: cell.linear(x) + 0 * len(torch.rand_like(x)), False),
}


@pytest.mark.parametrize("name", RANDOM)
def test_random_numbers_of_forward_are_drawn_as_without_programs(name, caplog):
    function, has_program = RANDOM[name]
    network, x = traced(function), make_x(DAG)
    other = with_engine(network)
    with caplog.at_level(logging.INFO, LOGGER):
        for seed in range(3):
            torch.manual_seed(seed)
            got = run(network, DAG, x)
            after = torch.rand(3)
            torch.manual_seed(seed)
            assert_same(got, run(other, DAG, x), 0)
            assert torch.equal(after, torch.rand(3))
    assert num_programs(cell_of(network)) == has_program
    told = [line for line in lines(caplog) if line.startswith("Apply")]
    assert len(told) == (not has_program)


def test_random_numbers_are_not_drawn_twice_by_a_program():
    network, x = traced(RANDOM["dropout"][0]), make_x(DAG)
    run(network, DAG, x)
    assert num_programs(cell_of(network)) == 1
    network.recompute = True
    with pytest.raises(EngineError, match="drew random numbers"):
        run(network, DAG, x)


def test_dropout_has_a_program_for_training_and_one_for_evaluation():
    network = traced(lambda cell, x: cell.drop(cell.linear(x)), drop=nn.Dropout(0.5))
    network.eval()
    check(network)
    network.train()
    x = make_x(DAG)
    torch.manual_seed(0)
    got = [run(network, DAG, x) for _ in range(3)][-1]
    torch.manual_seed(0)
    other = with_engine(network)
    assert_same(got, [run(other, DAG, x) for _ in range(3)][-1], 0)
    assert num_programs(cell_of(network)) == 2


def test_tracing_draws_nothing_from_the_generator_of_torch():
    network, x = traced(), make_x(DAG)
    torch.manual_seed(0)
    run(network, DAG, x)
    after = torch.rand(3)
    assert num_programs(cell_of(network)) == 1
    torch.manual_seed(0)
    assert torch.equal(after, torch.rand(3))


def skipped_at_times(cell: nn.Module, x: Tensor) -> Tensor:
    """A layer that is left out with a small probability."""
    return x if random.random() < 0.05 else cell.linear(x)


def test_choices_of_the_random_module_are_made_for_each_group():
    random.seed(1)
    network = traced(skipped_at_times)
    run(network, DAG, make_x(DAG))
    assert num_programs(cell_of(network)) == 0


def test_tracing_draws_nothing_from_the_random_module():
    network, x = traced(skipped_at_times), make_x(DAG)
    drawn = []
    for each in (network, with_engine(network)):
        random.seed(1)
        run(each, DAG, x)
        drawn.append(random.random())
    assert drawn[0] == drawn[1]


# --- Side effects, hooks, other modes


def test_side_effects_end_with_the_trace():
    # Documented: forward is called once for the trace and three times for the check, then the
    # program stands for it, so what it does beside its numbers is no longer done.
    calls = []

    def word(cell, x):
        calls.append(None)
        return cell.linear(x)

    network, x = traced(word), make_x(DAG)
    run(network, DAG, x)
    after_tracing = len(calls)
    assert after_tracing > 1
    run(network, DAG, x)
    assert len(calls) == after_tracing
    assert num_programs(cell_of(network)) == 1


class Counting(Apply):
    """Counts its calls in an attribute."""

    def __init__(self) -> None:
        super().__init__(lambda cell, x: cell.linear(x) * (1 + cell.calls % cell.period))
        self.calls, self.period = 0, 1

    def forward(self, x, children):
        self.calls += 1
        return super().forward(x, children)


@pytest.fixture
def counting() -> Network:
    cells = {"word": Counting(), "phrase": SumCell(), "pair": UpCell()}
    return Network(SCHEMA, [Up()], [cells], trace_after=1).double()


@pytest.mark.parametrize("period", [1, 2])
def test_an_attribute_that_forward_counts_up_is_seen(counting, period):
    cell, x = cell_of(counting), make_x(DAG)
    cell.period = period
    for _ in range(4):
        run(counting, DAG, x)
        calls = cell.calls
        other = with_engine(counting)
        assert_same(run(counting, DAG, x), run(other, DAG, x), 0)
        assert cell.calls > calls


def test_programs_do_not_gather_without_end(counting):
    for _ in range(6):
        run(counting, DAG, make_x(DAG))
    assert num_programs(cell_of(counting)) < 6


HOOKS = {
    "forward": lambda m, call: m.register_forward_hook(lambda *_: call()),
    "forward pre": lambda m, call: m.register_forward_pre_hook(lambda *_: call()),
    "backward": lambda m, call: m.register_full_backward_hook(lambda *_: call()),
    "backward pre": lambda m, call: m.register_full_backward_pre_hook(lambda *_: call()),
    "all modules": lambda m, call: nn.modules.module.register_module_forward_hook(
        lambda module, *_: call() if module is m else None
    ),
}


@pytest.mark.parametrize("kind", HOOKS)
def test_hooks_are_called_also_if_they_come_after_the_trace(kind):
    network, x = traced(), make_x(DAG)
    linear = cell_of(network).linear
    want = run(network, DAG, x)
    calls: list[None] = []
    handle = HOOKS[kind](linear, lambda: calls.append(None))
    try:
        assert_same(run(network, DAG, x), want, 0)
        assert calls
    finally:
        handle.remove()
    assert_same(run(network, DAG, x), want, 0)


def test_hooks_of_parameters_are_called_once_with_the_whole_gradient():
    network, x = traced(), make_x(DAG)
    weight = cell_of(network).linear.weight
    want = run(network, DAG, x)["cells.0.word.0.linear.weight"]
    calls: list[Tensor] = []
    weight.register_hook(lambda grad: calls.append(grad))
    run(network, DAG, x)
    assert len(calls) == 1
    assert torch.equal(calls[0], want)


def test_shared_tensors_are_read_anew():
    class Sharing(Apply):
        def forward(self, x, children):
            return {"h": self.linear(x) * children.shared["scale"], "c": x}

    network, x = traced(), make_x(DAG)
    network.cells[0]["word"][0] = Sharing(None).double()
    for factor in (1.0, 2.0, 3.0):
        scale = torch.full((SIZE,), factor, dtype=torch.float64, requires_grad=True)
        results = []
        for each in (network, with_engine(network)):
            states = each(make_batch(DAG, each), x, shared={"scale": scale})
            results.append(
                {"h": states["h"], "g": torch.autograd.grad(states["h"].sum(), [scale])[0]}
            )
        assert_same(results[0], results[1], 0)


def test_autocast_before_and_after_a_trace():
    network = traced().float()
    x = {name: value.detach().float().requires_grad_() for name, value in make_x(DAG).items()}
    other = with_engine(network)
    for enabled in (True, True, False, False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            got, want = run(network, DAG, x), run(other, DAG, x)
        assert_same(got, want, 0)
    assert num_programs(cell_of(network)) == 1


def test_a_tensor_among_the_attributes_is_read_as_it_is():
    class Scaled(Apply):
        def __init__(self) -> None:
            super().__init__(lambda cell, x: cell.linear(x) * cell.constant + cell.table[0])
            self.constant = torch.ones(SIZE, dtype=torch.float64)
            self.register_buffer("table", torch.ones(2, SIZE))

    network = traced()
    cell = network.cells[0]["word"][0] = Scaled().double()
    check(network)
    cell.constant.mul_(3)
    cell.table.mul_(2)
    check(network)
    cell.constant = torch.full((SIZE,), 5.0, dtype=torch.float64)
    check(network)


# --- Memory


@pytest.mark.parametrize("function", [None, where_far])
def test_a_cell_is_freed_with_its_network(function):
    network = traced(function)
    run(network, DAG, make_x(DAG))
    cell = weakref.ref(cell_of(network))
    del network
    gc.collect()
    assert cell() is None
