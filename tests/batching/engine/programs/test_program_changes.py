"""A program stands for a cell only as long as the cell is what was traced."""

from __future__ import annotations

import copy
import pickle
from types import SimpleNamespace

import pytest
import torch
from engine_cells import SIZE, make_batch, make_x, random_dag
from program_checks import (
    DAGS,
    Apply,
    assert_same,
    cell_of,
    check,
    num_programs,
    run,
    traced,
    weighted_sum,
    with_engine,
)
from torch import nn

from graphfold.batching import Network

DAG = random_dag(5, 2)


def check_change(network: Network, change) -> None:
    """The same before and after a change, each time in the first batch and later."""
    check(network, DAGS[1:])
    assert num_programs(cell_of(network)) == 1
    before = run(network, DAG, make_x(DAG))
    change(cell_of(network))
    check(network, DAGS[1:])
    after = run(network, DAG, make_x(DAG))
    assert not torch.equal(before["h"], after["h"]), "the change changes nothing"


def set_private(cell):
    cell._scale = 3.0


def set_item(cell):
    cell.items[0][0] = 3.0


def set_object(cell):
    cell.holder.scale = 3.0


CHANGES = {
    "a number": (
        lambda cell, x: cell.linear(x) * cell.scale,
        {"scale": 2.0},
        lambda cell: setattr(cell, "scale", 3.0),
    ),
    "an entry": (
        lambda cell, x: cell.linear(x) * cell.scales["a"],
        {"scales": {"a": 2.0}},
        lambda cell: cell.scales.update(a=3.0),
    ),
    "a flag": (
        lambda cell, x: cell.linear(x).tanh() if cell.bounded else cell.linear(x),
        {"bounded": True},
        lambda cell: setattr(cell, "bounded", False),
    ),
    "a function": (
        lambda cell, x: cell.activation(cell.linear(x)),
        {"activation": torch.tanh},
        lambda cell: setattr(cell, "activation", torch.sigmoid),
    ),
    "a number of a module": (
        lambda cell, x: cell.activation(cell.linear(x)),
        {"activation": nn.LeakyReLU(0.1)},
        lambda cell: setattr(cell.activation, "negative_slope", 0.5),
    ),
    "another layer": (
        lambda cell, x: cell.layers(x),
        {"layers": nn.Sequential(nn.Linear(SIZE, SIZE))},
        lambda cell: cell.layers.append(nn.Tanh()),
    ),
    "another weight": (
        lambda cell, x: cell.linear(x),
        {},
        lambda cell: setattr(cell.linear, "weight", nn.Parameter(torch.ones(SIZE, SIZE).double())),
    ),
    "a private number": (
        lambda cell, x: cell.linear(x) * cell._scale,
        {"_scale": 2.0},
        set_private,
    ),
    "an item of a list of lists": (
        lambda cell, x: cell.linear(x) * cell.items[0][0],
        {"items": [[2.0]]},
        set_item,
    ),
    "a number of an object": (
        lambda cell, x: cell.linear(x) * cell.holder.scale,
        {"holder": SimpleNamespace(scale=2.0)},
        set_object,
    ),
    "another module": (
        lambda cell, x: cell.activation(cell.linear(x)),
        {"activation": nn.Tanh()},
        lambda cell: setattr(cell, "activation", nn.Sigmoid()),
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_of_a_cell_is_seen(name):
    function, modules, change = CHANGES[name]
    check_change(traced(function, **copy.deepcopy(modules)), change)


def test_an_object_in_the_place_of_a_dead_one_is_seen():
    network, x = traced(lambda cell, x: cell.factor(cell.linear(x)), factor=torch.tanh), make_x(DAG)
    for number in range(12):
        cell_of(network).factor = None
        cell_of(network).factor = lambda values, number=number: values * number
        assert_same(run(network, DAG, x), run(with_engine(network), DAG, x), 0)


# --- Modes, gradients, dtypes


def test_training_and_evaluation_have_programs_of_their_own():
    network = traced(lambda cell, x: cell.linear(x) * (2 if cell.training else 3))
    for training in (True, False, True, False):
        network.train(training)
        check(network, times=1)
    assert num_programs(cell_of(network)) == 2


def test_gradients_switched_off_and_on():
    network = traced()
    cell = cell_of(network)
    for wanted in (True, False, True):
        cell.linear.bias.requires_grad_(wanted)
        check(network, DAGS[1:])
        cell.requires_grad_(wanted)
        check(network, DAGS[1:])
    x_only = {name: t.detach() for name, t in make_x(DAG).items()}
    network.requires_grad_(True)
    for x in (x_only, make_x(DAG), {**x_only, "word": make_x(DAG)["word"]}) * 2:
        assert_same(run(network, DAG, x), run(with_engine(network), DAG, x), 0)


def test_edges_with_a_gradient_or_without():
    def phrase(cell, x, children):
        return cell.linear(
            children.sum(children.rows("h") * children.edge["weight"].unsqueeze(1)) + x
        )

    network = traced(phrase=phrase)
    dags = [random_dag(4, seed) for seed in (1, 2, 3)]
    for dag, wanted in zip(dags, (False, True, False), strict=True):
        dag.columns["inputs"]["weight"].requires_grad_(wanted)
        check(network, [dag])


@pytest.mark.parametrize("order", [(torch.float64, torch.float32), (torch.float32, torch.float64)])
def test_another_dtype_is_another_program(order):
    network = traced()
    for dtype in (*order, *order):
        network.to(dtype)
        x = {name: t.detach().to(dtype).requires_grad_() for name, t in make_x(DAG).items()}
        got = run(network, DAG, x)
        assert got["h"].dtype == dtype
        assert_same(got, run(with_engine(network), DAG, x), 0)
    assert num_programs(cell_of(network)) == 2


@pytest.mark.parametrize("order", ["train first", "score first"])
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_scoring_and_training_in_any_order(order, mode):
    network, x = traced(), make_x(DAG)
    other = with_engine(network)
    want, scored = run(other, DAG, x), other(make_batch(DAG, other), x)

    def train():
        for _ in range(3):
            assert_same(run(network, DAG, x), want, 0)

    def score():
        for _ in range(3):
            with mode():
                assert_same(network(make_batch(DAG, network), x), scored, 0)

    steps = [train, score, train, score] if order == "train first" else [score, train, score]
    for step in steps:
        step()
    assert num_programs(cell_of(network)) == 2


def test_what_was_scored_by_a_program_keeps_its_values():
    network = traced()
    dags = [random_dag(3, seed) for seed in range(4)]
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            kept = [network(make_batch(dag, network), make_x(dag))["h"] for dag in dags * 2]
        assert all(torch.equal(a, b) for a, b in zip(kept[:4], kept[4:], strict=True))


# --- New values of the same weights


def test_loaded_values_are_used_by_the_same_program():
    network = traced()
    check(network)
    for assign in (False, True):
        state = {name: torch.randn_like(value) for name, value in network.state_dict().items()}
        network.load_state_dict(state, assign=assign)
        check(network)
        if not assign:
            assert num_programs(cell_of(network)) == 1


@pytest.mark.parametrize("make", [torch.optim.SGD, torch.optim.Adagrad, torch.optim.AdamW])
def test_a_training_run_is_the_same_with_programs(make):
    network = traced(lambda cell, x: cell.norm(cell.linear(x).tanh()), norm=nn.LayerNorm(SIZE))
    results = []
    for each in (network, with_engine(network)):
        optimizer = make(each.parameters(), lr=0.1)
        for seed in range(6):
            dag = random_dag(3, seed)
            optimizer.zero_grad()
            states = each(make_batch(dag, each), make_x(dag))
            weighted_sum({"h": states["h"]}).tanh().backward()
            optimizer.step()
        results.append({name: p.detach() for name, p in each.named_parameters()})
    assert_same(results[0], results[1], 0)
    assert num_programs(cell_of(network)) == 1


def test_gradients_add_up_over_batches():
    network = traced()
    other = with_engine(network)
    for each in (network, other):
        for seed in range(3):
            dag = random_dag(3, seed)
            weighted_sum(dict(each(make_batch(dag, each), make_x(dag)).items())).backward()
    for one, two in zip(network.parameters(), other.parameters(), strict=True):
        assert torch.equal(one.grad, two.grad)


# --- Copies


def double(cell, x):
    """A function of a module, as pickle needs it."""
    return cell.linear(x) * 2


@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda network: pickle.loads(pickle.dumps(network))]
)
def test_copies_have_their_own_weights_and_programs(copied):
    network = traced(double)
    check(network, DAGS[1:])
    other = copied(network)
    assert num_programs(cell_of(other)) == 0
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.mul_(2)
    check(other, DAGS[1:])
    check(network, DAGS[1:])
    assert num_programs(cell_of(network)) == num_programs(cell_of(other)) == 1


def test_parameters_lent_by_functional_call_are_used():
    network, x = traced(), make_x(DAG)
    run(network, DAG, x)
    lent = {name: 2 * value.detach() for name, value in network.named_parameters()}
    got = torch.func.functional_call(network, lent, (make_batch(DAG, network), x))
    other = with_engine(network)
    other.load_state_dict(lent)
    assert_same(got, other(make_batch(DAG, other), x), 0)


def test_a_parametrized_weight_is_computed_anew():
    class Twice(nn.Module):
        def forward(self, weight):
            return 2 * weight

    network = traced()
    check(network, DAGS[1:])
    before = run(network, DAG, make_x(DAG))
    nn.utils.parametrize.register_parametrization(cell_of(network).linear, "weight", Twice())
    network.engine = "fast"
    x = make_x(DAG)
    got = [run(network, DAG, x) for _ in range(3)]
    reference = with_engine(network, "reference")
    assert_same(got[-1], run(reference, DAG, x), 1e-9)
    assert not torch.equal(got[-1]["h"], before["h"])


def test_modes_of_one_cell_do_not_hinder_each_other():
    class Modes(Apply):
        def __init__(self) -> None:
            super().__init__(lambda cell, x: cell.linear(x) * cell.mode)
            self.mode = 1

    network, x = traced(), make_x(DAG)
    cell = network.cells[0]["word"][0] = Modes().double()
    for mode in (1, 2, 3, 1, 2, 3):
        cell.mode = mode
        assert_same(run(network, DAG, x), run(with_engine(network), DAG, x), 0)
    assert num_programs(cell) == 3
