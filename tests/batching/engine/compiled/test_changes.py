"""Compiled cells follow changes: of parameters, attributes, mode, dtype, the graph."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from collections.abc import Callable

import pytest
import torch
from compiled_checks import states_and_gradients
from engine_cells import (
    SIZE,
    PairCell,
    PhraseCell,
    WordCell,
    make_batch,
    make_network,
    make_x,
    random_dag,
    tree_cells,
)
from torch import Tensor, nn

from graphfold.batching import Down, Network, Up
from graphfold.batching.engine.compiled import programs
from graphfold.dag import TypedDAG


class Changeable(WordCell):
    """Its code depends on attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = 2.0
        self.options = {"shift": 1.0, "layers": [nn.Tanh()]}
        self.activation: Callable[[Tensor], Tensor] = torch.sigmoid
        self.register_buffer("scale", torch.ones(SIZE))

    def forward(self, x: Tensor, children: object) -> dict[str, Tensor]:
        state = super().forward(x, children)
        h = self.activation(state["h"] * self.factor + self.options["shift"]) * self.scale
        for layer in self.options["layers"]:
            h = layer(h)
        return {**state, "h": h if self.training else 2 * h}


@pytest.fixture
def network() -> Network:
    torch.manual_seed(0)
    return make_network(cells=[{**tree_cells(), "word": Changeable()}], run="compiled")


@pytest.fixture
def dag() -> TypedDAG:
    return random_dag(4, 0)


def assert_right(network: Network, dag: TypedDAG) -> dict[str, Tensor]:
    """Checks a compiled network against the plain engine."""
    dtype = next(network.parameters()).dtype
    x = {name: value.to(dtype) for name, value in make_x(dag).items()}
    before = network.run
    network.run = "eager"
    want = states_and_gradients(network, dag, x)
    network.run = before
    actual = states_and_gradients(network, dag, x)
    torch.testing.assert_close(actual, want)
    assert set(network.execution.values()) == {"compiled (native)"}
    return actual


def word(network: Network) -> Changeable:
    return network.cells[0]["word"][0]


CHANGES: dict[str, Callable[[Network], object]] = {
    "a number": lambda n: setattr(word(n), "factor", 3.0),
    "a number of another type": lambda n: setattr(word(n), "factor", -1),
    "an entry": lambda n: word(n).options.update(shift=0.0),
    "an item": lambda n: word(n).options["layers"].append(nn.Sigmoid()),
    "a function": lambda n: setattr(word(n), "activation", torch.tanh),
    "mode": lambda n: n.eval(),
    "mode of one cell": lambda n: word(n).eval(),
    "numbers of a buffer": lambda n: word(n).scale.mul_(3),
    "a buffer": lambda n: setattr(word(n), "scale", torch.full((SIZE,), 0.5).double()),
    "numbers of a parameter": lambda n: nn.init.ones_(word(n).linear.weight),
    "a step": lambda n: [p.data.mul_(1.5) for p in n.parameters()],
    "a parameter": lambda n: setattr(
        word(n).linear, "weight", nn.Parameter(torch.randn(2 * SIZE, SIZE).double())
    ),
    "a parameter's numbers elsewhere": lambda n: setattr(
        word(n).linear.weight, "data", torch.randn(SIZE, 2 * SIZE).double().t()
    ),
    "no bias": lambda n: setattr(word(n).linear, "bias", None),
    "a module": lambda n: setattr(word(n), "linear", nn.Linear(SIZE, 2 * SIZE).double()),
    "a frozen parameter": lambda n: word(n).linear.weight.requires_grad_(False),
    "a frozen cell": lambda n: word(n).requires_grad_(False),
    "all but one frozen": lambda n: [p.requires_grad_(False) for p in list(n.parameters())[1:]],
    "tied parameters": lambda n: setattr(
        n.cells[0]["phrase"][0].sum, "weight", n.cells[0]["phrase"][0].rows.weight
    ),
    "a state": lambda n: n.load_state_dict(
        {name: value + 0.5 for name, value in n.state_dict().items()}
    ),
    "a state that is assigned": lambda n: n.load_state_dict(
        {name: value + 0.5 for name, value in n.state_dict().items()}, assign=True
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_followed(name, network, dag):
    before = assert_right(network, dag)
    CHANGES[name](network)
    after = assert_right(network, dag)
    if "frozen" not in name and name != "tied parameters":
        assert not torch.equal(after["h"], before["h"])


@pytest.mark.parametrize("name", ["a number", "numbers of a buffer", "a module", "a frozen cell"])
def test_a_change_of_a_copy_is_followed(name, network, dag):
    """Copies have one program as long as they have one form."""
    before = assert_right(network, dag)
    other = copy.deepcopy(network)
    CHANGES[name](other)
    assert_right(other, dag)
    torch.testing.assert_close(assert_right(network, dag), before, rtol=0, atol=0)


@pytest.fixture
def compiled(monkeypatch, own_programs) -> list[str]:
    """The classes of the cells that are compiled, with their copies in float64."""
    names, compile_cell = [], programs.compile_cell

    def noted(cell, *rest):
        names.append(type(cell).__name__)
        return compile_cell(cell, *rest)

    monkeypatch.setattr(programs, "compile_cell", noted)
    return names


def test_cells_of_one_form_are_compiled_once(network, dag, compiled):
    assert_right(network, dag)
    assert compiled.count("Changeable") == 1
    one, other, changed = copy.deepcopy(network), copy.deepcopy(network), copy.deepcopy(network)
    del network
    gc.collect()
    assert_right(one, dag)
    with torch.no_grad():
        word(other).linear.weight.zero_()
    assert_right(other, dag)
    assert compiled.count("Changeable") == 1
    word(changed).factor = 3.0
    assert_right(changed, dag)
    assert compiled.count("Changeable") == 2
    one.recompile()
    assert_right(one, dag)
    assert compiled.count("Changeable") == 3


@pytest.mark.usefixtures("own_programs")
def test_the_number_of_remembered_forms_is_bounded(network, dag, monkeypatch):
    monkeypatch.setattr(programs, "MAX_FORMS", 3)
    for factor in range(6):
        word(network).factor = float(factor)
        assert_right(network, dag)
    assert len(programs._OF_FORM) <= 3


def test_a_changed_attribute_and_back(network, dag):
    before = assert_right(network, dag)
    for factor in (0.5, 2.0):
        word(network).factor = factor
        after = assert_right(network, dag)
    torch.testing.assert_close(after, before, rtol=0, atol=0)


def test_a_cell_that_changes_all_the_time_gathers_no_programs(network, dag):
    for factor in range(12):
        word(network).factor = float(factor)
        with torch.no_grad():
            network(make_batch(dag, network), make_x(dag))
    assert len(network._programs[0]) <= programs.MAX_KNOWN


def test_conversion_to_another_dtype(network):
    # Without the edges' column, which is float64.
    cells = {"word": word(network), "pair": PairCell()}
    network = make_network(cells=[cells], run="compiled")
    dag = random_dag(1, 0, size=0)
    actual = [assert_right(network.to(dtype), dag)["h"] for dtype in (torch.float64, torch.float32)]
    assert [h.dtype for h in actual] == [torch.float64, torch.float32]
    torch.testing.assert_close(actual[1].double(), actual[0], rtol=1e-4, atol=1e-5)
    assert_right(network.double(), dag)


def through_pickle(network: Network) -> Network:
    return pickle.loads(pickle.dumps(network))


@pytest.mark.parametrize("duplicate", [copy.deepcopy, through_pickle])
def test_a_copy_of_a_network_that_has_run_is_independent(duplicate, network, dag):
    before = assert_right(network, dag)
    other = duplicate(network)
    torch.testing.assert_close(assert_right(other, dag), before, rtol=0, atol=0)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.mul_(2)
    word(other).factor = -1.0
    assert not torch.equal(assert_right(other, dag)["h"], before["h"])
    torch.testing.assert_close(assert_right(network, dag), before, rtol=0, atol=0)


def test_a_network_is_freed(network, dag):
    assert_right(network, dag)
    cell = weakref.ref(word(network))
    del network
    gc.collect()
    assert cell() is None or not any(
        isinstance(user, weakref.WeakKeyDictionary) for user in gc.get_referrers(cell())
    )


def test_inputs_that_change_between_batches(network, dag):
    """Inputs may require a gradient in one batch and not in the next."""
    batch, x = make_batch(dag, network), make_x(dag)
    want = torch.autograd.grad(network(batch, x)["h"].sum(), [x["word"]])
    fixed = {name: value.detach() for name, value in x.items()}
    weight = word(network).linear.weight
    (of_weight,) = torch.autograd.grad(network(batch, fixed)["h"].sum(), [weight])
    (again,) = torch.autograd.grad(network(batch, x)["h"].sum(), [weight])
    torch.testing.assert_close(of_weight, again, rtol=0, atol=1e-12)
    torch.testing.assert_close(
        torch.autograd.grad(network(batch, x)["h"].sum(), [x["word"]]), want, rtol=0, atol=1e-12
    )


@pytest.mark.parametrize("what", ["parameter", "input"])
@pytest.mark.parametrize("run", ["compiled", "eager"])
def test_a_change_in_place_before_backward_is_an_error(what, run, network, dag):
    network.run = run
    x = make_x(dag)
    loss = network(make_batch(dag, network), x)["h"].square().sum()
    with torch.no_grad():
        changed = network.cells[0]["phrase"][0].rows.weight if what == "parameter" else x["word"]
        changed.mul_(2)
    with pytest.raises(RuntimeError, match="modified.* inplace|inplace operation"):
        loss.backward()


def test_one_cell_in_two_passes_and_two_types(dag):
    cell = PhraseCell()
    passes = [Up(), Down()]
    cells = [{**tree_cells(), "phrase": cell}, dict.fromkeys(("word", "phrase"), cell)]
    torch.manual_seed(0)
    assert_right(make_network(passes, cells, run="compiled"), dag)
