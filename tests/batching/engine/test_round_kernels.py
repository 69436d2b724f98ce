"""Rounds with kernels of their own: who has them, and what they save."""

from __future__ import annotations

import pytest
import torch
from strategies import bond_schema, chain
from torch import Tensor

from graphfold.batching import Batch, Network, Rounds, States, build_schedule
from graphfold.batching.engine import links, round_inputs
from graphfold.batching.kernels import packed_linear
from graphfold.batching.kernels.c_compiler import find_compiler
from graphfold.dag import Column, TypedDAG, collate
from graphfold.errors import EngineError, ShapeError
from graphfold.layers import GCNCell, GINECell, MeanReadout, SumReadout

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="there is no C compiler")
SIZE = 5
KIND = (Column("kind", "int64", size=2),)
SCHEMA = bond_schema(KIND)
ROUNDS = [Rounds("bond", 3)]


def chains() -> TypedDAG:
    return collate([chain(SCHEMA, "atom", "atom", length) for length in (4, 7, 1, 5)])


def run(network: Network, dag: TypedDAG, share: bool = False) -> States:
    """The states where all atoms begin alike."""
    schedule = build_schedule(dag, network.passes, share=share)
    rows = dag.num_nodes if schedule.sources is None else len(schedule.sources[0].node)
    return network(Batch(dag, schedule), {"atom": torch.ones(rows, SIZE)})


@pytest.fixture
def called(monkeypatch) -> list[str]:
    """Which kernels have run."""
    found: list[str] = []

    def note(module: object, name: str) -> None:
        function = getattr(module, name)

        def call(*given: object, **named: object) -> object:
            found.append(name)
            return function(*given, **named)

        monkeypatch.setattr(module, name, call)

    note(links, "message_sum")
    note(packed_linear, "multiply")
    note(round_inputs, "find_kinds")
    return found


@pytest.mark.parametrize("share", [False, True])
def test_a_round_sums_once_and_multiplies_once_for_every_layer(called, share):
    run(Network(SCHEMA, ROUNDS, [{"atom": GCNCell(SIZE)}], fuse=True), chains(), share)
    assert sorted(called) == ["message_sum"] * 3 + ["multiply"] * 3
    called.clear()
    run(Network(SCHEMA, ROUNDS, [{"atom": GINECell(SIZE, KIND)}], fuse=True), chains(), share)
    assert sorted(called) == ["find_kinds"] + ["message_sum"] * 3 + ["multiply"] * 6


@pytest.mark.parametrize("options", [{}, {"fuse": False}, {"fuse": True, "engine": "autograd"}])
def test_nobody_else_has_kernels(called, options):
    run(Network(SCHEMA, ROUNDS, [{"atom": GCNCell(SIZE)}], **options), chains())
    assert not called


def test_learned_factors_are_not_for_kernels(called):
    cell = GINECell(SIZE, KIND, learn_epsilon=True)
    network = Network(SCHEMA, ROUNDS, [{"atom": cell}], fuse=True)
    run(network, chains())["h"].sum().backward()
    assert "message_sum" not in called
    assert cell.update.epsilon.grad is not None


def test_kernels_need_a_compiler(monkeypatch):
    monkeypatch.setattr(
        "graphfold.batching.engine.programs.fusion.choice.can_compile", lambda: False
    )
    with pytest.raises(EngineError, match="fuse=True needs a C compiler"):
        run(Network(SCHEMA, ROUNDS, [{"atom": GCNCell(SIZE)}], fuse=True), chains())


def test_values_have_no_own_state():
    class Cell(GCNCell):
        def forward(self, x: object, children: object) -> dict[str, Tensor]:
            return {"h": children.sum(children.rows("h"), own=1.0)}

    with pytest.raises(ShapeError, match="no own state to add"):
        run(Network(SCHEMA, ROUNDS, [{"atom": Cell(SIZE)}]), chains())


@pytest.mark.parametrize("fuse", [None, True])
@pytest.mark.parametrize("share", [False, True])
@pytest.mark.parametrize("readout", [SumReadout, MeanReadout])
def test_poolings_read_the_rows_where_they_are(fuse, share, readout):
    network = Network(SCHEMA, ROUNDS, [{"atom": GCNCell(SIZE)}], fuse=fuse).double()
    dag = chains()
    schedule = build_schedule(dag, network.passes, share=share)
    rows = dag.num_nodes if schedule.sources is None else len(schedule.sources[0].node)
    x = torch.ones(rows, SIZE).double().requires_grad_()
    states = network(Batch(dag, schedule), {"atom": x})
    found = readout(SIZE)(states, dag)
    parts = torch.split(states["h"], torch.bincount(dag.batch).tolist())
    reduce = torch.sum if readout is SumReadout else torch.mean
    want = torch.stack([reduce(part, 0) for part in parts])
    torch.testing.assert_close(found, want)
    outside = torch.randn_like(want)
    parameters = [x, *network.parameters()]
    of_found = torch.autograd.grad(found, parameters, outside, retain_graph=True)
    for one, other in zip(of_found, torch.autograd.grad(want, parameters, outside), strict=True):
        torch.testing.assert_close(one, other)
