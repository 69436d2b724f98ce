"""Frozen networks: packed weights stay between calls, and a change of a weight is seen."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from engine_cells import (
    MessageCell,
    make_batch,
    make_network,
    make_x,
    message_cells,
    random_dag,
    rounds,
    tree_cells,
)
from torch import Tensor, nn

from graphfold.batching import Batch, Children, Network, Up
from graphfold.batching.backends.native import NativeMemory
from graphfold.batching.engine.compiled import frozen_weights
from graphfold.layers import ChildSumTreeLSTMCell

pytestmark = pytest.mark.usefixtures("backend")


def networks() -> dict[str, Network]:
    return {
        "trees": make_network(run="compiled"),
        "rounds": make_network([Up(), rounds(2)], [tree_cells(), message_cells()]),
    }


@pytest.fixture(params=["trees", "rounds"])
def network(request: pytest.FixtureRequest) -> Network:
    return networks()[request.param].eval()


DAG = random_dag(5, 3)


def states(network: Network, batch: Batch, x: dict[str, Tensor]) -> dict[str, Tensor]:
    with torch.no_grad():
        return {name: value.clone() for name, value in network(batch, x).items()}


def assert_right(network: Network) -> None:
    """Compares a network that is frozen with a copy that is not."""
    other = copy.deepcopy(network)
    other._frozen = None
    dtype = next(network.parameters()).dtype
    batch, x = make_batch(DAG, network), {n: v.to(dtype) for n, v in make_x(DAG).items()}
    got, want = states(network, batch, x), states(other, batch, x)
    torch.testing.assert_close(got, want)
    assert got.keys() == want.keys() != set()


def step(network: Network) -> None:
    optimizer = torch.optim.SGD(network.parameters(), lr=0.5)
    sum(p.square().sum() for p in network.parameters()).backward()  # type: ignore[union-attr]
    optimizer.step()


def load(network: Network) -> None:
    network.load_state_dict({k: v + 0.5 for k, v in network.state_dict().items()})


def replace(network: Network) -> None:
    for module in network.modules():
        if isinstance(module, nn.Linear):
            module.weight = nn.Parameter(module.weight.detach() + 0.5)


def by_data(network: Network) -> None:
    for parameter in network.parameters():
        parameter.data += 0.5
    network.freeze()


@pytest.mark.parametrize("change", [step, load, replace, by_data])
def test_a_change_of_the_weights_is_seen(
    network: Network, change: Callable[[Network], None]
) -> None:
    network.freeze()
    assert_right(network)
    assert_right(network)
    before = states(network, make_batch(DAG, network), make_x(DAG))
    change(network)
    assert_right(network)
    after = states(network, make_batch(DAG, network), make_x(DAG))
    assert any(not torch.allclose(before[name], after[name]) for name in before)


def test_gradients_are_those_of_a_network_that_is_not_frozen(network: Network) -> None:
    batch, x, found = make_batch(DAG, network), make_x(DAG), []
    for own in (network, copy.deepcopy(network).freeze()):
        states(own, batch, x)
        for _ in range(2):
            own.zero_grad()
            sum(value.square().sum() for value in own(batch, x).values()).backward()  # type: ignore[union-attr]
            found.append([p.grad.clone() for p in own.parameters() if p.grad is not None])
            step(own)
    torch.testing.assert_close(found[2:], found[:2])


class Squared(MessageCell):
    """Adds a number of its parameters alone, which depends on no node."""

    def forward(self, x: Any, children: Children) -> dict[str, Tensor]:
        weight = self.linear.weight * self.linear.weight
        return {"m": super().forward(x, children)["m"] * weight.sum(1)}


def test_what_is_kept_in_inference_mode_serves_a_derivative_by_x() -> None:
    cell, found = Squared(), []
    network = make_network([rounds(2)], [{"word": cell, "phrase": cell, "pair": cell}])
    network.requires_grad_(False).freeze()
    batch, x = make_batch(DAG, network), make_x(DAG)
    for own in (network, copy.deepcopy(network)):
        if own is network:
            with torch.inference_mode():
                own(batch, x)
        found.append(torch.autograd.grad(own(batch, x)["m"].square().sum(), [*x.values()]))
    torch.testing.assert_close(found[0], found[1])


def test_tensors_that_are_replaced_at_every_call_are_let_go(
    monkeypatch: pytest.MonkeyPatch, network: Network
) -> None:
    monkeypatch.setattr(frozen_weights, "MOST_CELLS", 4)
    batch, x = make_batch(DAG, network), make_x(DAG)
    states(network.freeze(), batch, x)
    for _ in range(4):
        replace(network)
        states(network, batch, x)
    assert network._frozen is not None
    assert 0 < len(network._frozen._cells) <= 4
    assert_right(network)


def test_weights_are_packed_once(monkeypatch: pytest.MonkeyPatch, network: Network) -> None:
    packed = []
    place_weight = NativeMemory._place_weight

    def counting(self: NativeMemory, *arguments: object) -> object:
        kept = arguments[-1]
        before = -1 if kept is None else len(kept)  # type: ignore[arg-type]
        result = place_weight(self, *arguments)  # type: ignore[arg-type]
        packed.append(kept is None or len(kept) > before)  # type: ignore[arg-type]
        return result

    monkeypatch.setattr(NativeMemory, "_place_weight", counting)
    batch, x = make_batch(DAG, network), make_x(DAG)
    states(network, batch, x)
    if not packed:
        pytest.skip("only native code packs weights")
    packed.clear()
    network.freeze()
    states(network, batch, x)
    assert any(packed)
    packed.clear()
    states(network, batch, x)
    assert packed
    assert not any(packed)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda own: pickle.loads(pickle.dumps(own))])
def test_copies_pack_weights_of_their_own(
    network: Network, copied: Callable[[Network], Network]
) -> None:
    network.freeze()
    assert_right(network)
    other = copied(network)
    load(other)
    assert_right(other)
    assert_right(network)


class Shifted(ChildSumTreeLSTMCell):
    """Adds a product of shared tensors, which depends on no node."""

    def forward(self, x: Any, children: Children) -> dict[str, Tensor]:
        state, shift = super().forward(x, children), children.shared["shift"]
        return {**state, "h": state["h"] + (shift * shift).sum(0)}


def ones(dtype: torch.dtype) -> dict[str, Tensor]:
    counts = zip(DAG.schema.types, DAG.num_nodes_by_type, strict=True)
    return {kind.name: torch.ones(count, 4, dtype=dtype) for kind, count in counts}


def test_shared_tensors_are_read_at_every_call() -> None:
    torch.manual_seed(0)
    network = Network(DAG.schema, (Up(), Shifted(4, 3)), run="compiled").double().freeze()
    with torch.no_grad():
        first, second = (
            network(
                DAG,
                ones(torch.float64),
                shared={"shift": torch.full((2, 3), value, dtype=torch.float64)},
            )["h"].clone()
            for value in (0.0, 1.0)
        )
    assert not torch.allclose(first, second)


def test_another_dtype() -> None:
    torch.manual_seed(0)
    network = Network(DAG.schema, (Up(), ChildSumTreeLSTMCell(4, 3))).double().freeze()
    with torch.no_grad():
        wide = network(DAG, ones(torch.float64))["h"].clone()
        narrow = network.float()(DAG, ones(torch.float32))["h"].clone()
    torch.testing.assert_close(narrow.double(), wide, rtol=1e-5, atol=1e-6)
    assert narrow.dtype == torch.float32


def test_rounds_with_weights_of_their_own() -> None:
    torch.manual_seed(0)
    cells = [MessageCell() for _ in range(3)]
    by_type = {"word": cells, "phrase": cells, "pair": cells}
    network = make_network([rounds(3)], [by_type]).eval().freeze()
    assert_right(network)
    load(network)
    assert_right(network)
