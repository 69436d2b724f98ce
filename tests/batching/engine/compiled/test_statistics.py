"""Batch normalisation in compiled rounds: the numbers of torch's, and its running statistics."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from strategies import bond_schema, chain, dags
from torch import Tensor, nn

from graphfold.batching import Batch, Cell, Network, Rounds, build_schedule
from graphfold.dag import TypedDAG
from graphfold.errors import EngineError
from graphfold.layers import FingerprintCell, GCNCell, GINCell

pytestmark = pytest.mark.usefixtures("backend")

SCHEMA = bond_schema()
SIZE = 4
CELLS: dict[str, Callable[[], Cell]] = {
    "gcn": lambda: GCNCell(SIZE, norm="batch"),
    "residual": lambda: GCNCell(SIZE, "tanh", norm="batch", residual=True),
    "gin": lambda: GINCell(SIZE, norm="batch"),
    "fingerprint": lambda: FingerprintCell(SIZE, 3, norm="batch"),
}


class NormCell(Cell):
    """Normalises the sum of the neighbours."""

    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.fields, self.reads = {"h": SIZE}, ("h",)
        self.norm = norm

    def forward(self, x, children):
        total = self.norm(children.sum("h"))
        return {"h": torch.sigmoid(children.previous("h") + total)}

    def initial(self, x: Tensor) -> dict[str, Tensor]:
        return {"h": x}


def train(network: Network, dag: TypedDAG, x: Tensor) -> dict[str, Tensor]:
    """The state, all gradients and all buffers after one step."""
    x = x.clone().requires_grad_()
    batch = Batch(dag, build_schedule(dag, network.passes))
    states = network(batch, {"atom": x})
    state = torch.cat([states[name] for name in sorted(states)], 1)
    weight = torch.linspace(-1, 1, state.numel(), dtype=state.dtype).view_as(state)
    (state * weight).sum().backward()
    outcome = {"state": state.detach(), "x": x.grad, **dict(network.named_buffers())}
    return outcome | {name: p.grad for name, p in network.named_parameters()}


def both_ways(cells: list[Cell]) -> list[Network]:
    """A network of compiled cells and one of eager cells, in float64."""
    passes = [Rounds("bond", len(cells))]
    networks = [
        Network(SCHEMA, (passes[0], {"atom": copy.deepcopy(cells)}), run=run)
        for run in ("compiled", "eager")
    ]
    return [network.double().train() for network in networks]


def compare(networks: list[Network], dag: TypedDAG, x: Tensor) -> None:
    """Compares a step of both ways."""
    ours, own = (train(network, dag, x) for network in networks)
    assert networks[0].execution["atom"].startswith("compiled (")
    torch.testing.assert_close(ours, own, rtol=1e-9, atol=1e-9)


def check(cells: list[Cell], dag: TypedDAG, x: Tensor) -> None:
    """Compares a step of compiled cells with one of eager cells."""
    compare(both_ways(cells), dag, x)


@pytest.mark.parametrize("name", CELLS)
def test_a_step_is_that_of_the_cells(name):
    torch.manual_seed(0)
    networks = both_ways([CELLS[name]() for _ in range(3)])  # compiled once for all graphs
    begin = copy.deepcopy(networks[0].state_dict())

    @settings(max_examples=5)
    @given(dag=dags(SCHEMA, min_graphs=2, max_nodes=8, symmetric=True, outputs="all"))
    def compare_steps(dag):
        for network in networks:
            network.load_state_dict(begin)
            network.zero_grad()
        torch.manual_seed(0)
        compare(networks, dag, torch.randn(dag.num_nodes, SIZE, dtype=torch.float64))

    compare_steps()


def many() -> TypedDAG:
    """More nodes than a block has."""
    return chain(SCHEMA, "atom", "atom", 699)


@pytest.mark.parametrize("name", CELLS)
def test_blocks_and_threads_share_statistics(name):
    torch.set_num_threads(2)
    torch.manual_seed(0)
    check([CELLS[name]() for _ in range(2)], many(), torch.randn(700, SIZE).double() + 3)


@pytest.mark.parametrize(
    "norm",
    [
        lambda: nn.BatchNorm1d(SIZE, affine=False),
        lambda: nn.BatchNorm1d(SIZE, momentum=0.3, eps=0.1),
        lambda: nn.BatchNorm1d(SIZE, track_running_stats=False),
    ],
)
def test_settings_of_the_normalisation_count(norm):
    torch.manual_seed(0)
    check([NormCell(norm()), NormCell(norm())], many(), torch.randn(700, SIZE).double())


def test_one_normalisation_may_serve_all_rounds():
    torch.manual_seed(0)
    cell = NormCell(nn.BatchNorm1d(SIZE))
    check([cell, cell, cell], many(), torch.randn(700, SIZE).double())


def test_without_gradients_statistics_are_kept_all_the_same():
    torch.manual_seed(0)
    cell, dag, x = GCNCell(SIZE, norm="batch"), many(), torch.randn(700, SIZE)
    actual = []
    for run in ("compiled", "eager"):
        network = Network(SCHEMA, (Rounds("bond", 2), {"atom": copy.deepcopy(cell)}), run=run)
        with torch.no_grad():
            state = network(Batch(dag, build_schedule(dag, [Rounds("bond", 2)])), {"atom": x})["h"]
        actual.append({"state": state, **dict(network.named_buffers())})
    torch.testing.assert_close(*actual, rtol=1e-4, atol=1e-5)


def test_a_momentum_that_counts_batches_is_not_compiled():
    network = Network(
        SCHEMA,
        (Rounds("bond", 1), {"atom": NormCell(nn.BatchNorm1d(SIZE, momentum=None))}),
        run="compiled",
    )
    with pytest.raises(EngineError, match="reads how often it has been called"):
        train(network, many(), torch.randn(700, SIZE))


def test_a_normalisation_that_cannot_be_copied_runs_as_it_is():
    class Own(nn.BatchNorm1d):
        def __deepcopy__(self, memo):
            raise TypeError("there is one of these")

    network = Network(SCHEMA, (Rounds("bond", 1), {"atom": NormCell(Own(SIZE))}))
    batch = Batch(many(), build_schedule(many(), [Rounds("bond", 1)]))
    with pytest.warns(UserWarning, match="no copy of it can be tried"):
        assert network(batch, {"atom": torch.randn(700, SIZE)})["h"].shape == (700, SIZE)
