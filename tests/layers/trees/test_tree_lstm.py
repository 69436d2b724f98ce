"""Tree-LSTM cells against `torch.nn.LSTM` and against the equations, one node at a time."""

from __future__ import annotations

import pytest
import torch
from strategies import chain
from torch import Tensor, nn

from graphfold.batching import Batch, Network, Up, build_schedule
from graphfold.dag import GraphBuilder, NodeType, Schema, TypedDAG
from graphfold.layers import ChildSumTreeLSTMCell, LeafLSTMCell, NaryTreeLSTMCell

SCHEMA = Schema(
    types=(NodeType("word", 0), NodeType("pair", 2), NodeType("phrase", None)),
)


def run(network: Network, dag: TypedDAG, x: dict[str, Tensor]) -> dict[str, Tensor]:
    states = network(Batch(dag, build_schedule(dag, network.passes)), x)
    return {name: states[name] for name in states}


@pytest.mark.parametrize("length", [1, 7, 1000])
def test_child_sum_on_a_chain_equals_lstm(length):
    schema = Schema(types=(NodeType("token", None),))
    cell = ChildSumTreeLSTMCell(3, 4).double()
    lstm = nn.LSTM(3, 4).double()
    copy_lstm(lstm, cell)
    dag = chain(schema, "token", "token", length - 1)
    network = Network(schema, (Up(), {"token": cell}))
    x = torch.randn(length, 3, dtype=torch.float64)
    mine, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    got = run(network, dag, {"token": mine})
    want, (_, c) = lstm(theirs)
    torch.testing.assert_close(got["h"], want, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(got["c"][-1:], c, rtol=1e-10, atol=1e-10)
    weight = torch.linspace(-1, 1, want.numel(), dtype=torch.float64).view_as(want)
    (got["h"] * weight).sum().backward()
    (want * weight).sum().backward()
    torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-9, atol=1e-9)
    i, f, g, o = lstm.weight_hh_l0.grad.chunk(4)
    torch.testing.assert_close(
        cell.from_sum.weight.grad, torch.cat([i, o, g]), rtol=1e-8, atol=1e-9
    )
    torch.testing.assert_close(cell.from_h.weight.grad, f, rtol=1e-8, atol=1e-9)


def copy_lstm(lstm: nn.LSTM, cell: ChildSumTreeLSTMCell) -> None:
    """Gives the cell the weights of an LSTM, which orders its gates i, f, g, o."""
    with torch.no_grad():
        i, f, g, o = lstm.weight_ih_l0.chunk(4)
        cell.from_x.weight.copy_(torch.cat([f, i, o, g]))
        i, f, g, o = lstm.weight_hh_l0.chunk(4)
        cell.from_sum.weight.copy_(torch.cat([i, o, g]))
        cell.from_h.weight.copy_(f)
        i, f, g, o = (lstm.bias_ih_l0 + lstm.bias_hh_l0).chunk(4)
        cell.from_sum.bias.copy_(torch.cat([i, o, g]))
        cell.from_h.bias.copy_(f)


def tree() -> TypedDAG:
    """Two words under a pair."""
    builder = GraphBuilder(SCHEMA)
    words = [builder.node("word"), builder.node("word")]
    builder.output(builder.node("pair", words))
    builder.finish()
    return builder.build()


def test_leaves_and_pairs_equal_the_equations():
    leaf, pair = LeafLSTMCell(3, 4), NaryTreeLSTMCell(2, 4)
    network = Network(SCHEMA, (Up(), {"word": leaf, "pair": pair}))
    x = {"word": torch.randn(2, 3), "pair": torch.randn(1, 2)}
    got = run(network, tree(), x)

    i, o, u = (leaf.from_x.weight @ x["word"].T).T.add(leaf.from_x.bias).chunk(3, 1)
    c = i.sigmoid() * u.tanh()
    h = o.sigmoid() * c.tanh()
    torch.testing.assert_close(got["c"][:2], c)
    torch.testing.assert_close(got["h"][:2], h)

    w, u_left, u_right = pair.from_x.weight, *pair.from_h.weight.split(4, dim=1)
    gates = w @ x["pair"][0] + u_left @ h[0] + u_right @ h[1] + pair.from_h.bias
    f_1, f_2, i, o, u = gates.chunk(5)
    c = i.sigmoid() * u.tanh() + f_1.sigmoid() * c[0] + f_2.sigmoid() * c[1]
    torch.testing.assert_close(got["c"][2], c)
    torch.testing.assert_close(got["h"][2], o.sigmoid() * c.tanh())


def test_child_sum_equals_the_equations():
    builder = GraphBuilder(SCHEMA)
    words = builder.nodes("word", 3)
    builder.output(builder.node("phrase", list(words)))
    builder.finish()
    cell = ChildSumTreeLSTMCell(2, 4)
    network = Network(SCHEMA, (Up(), {"word": LeafLSTMCell(3, 4), "phrase": cell}))
    x = {"word": torch.randn(3, 3), "phrase": torch.randn(1, 2)}
    got = run(network, builder.build(), x)
    h, c = got["h"][:3], got["c"][:3]
    forget, *rest = (cell.from_x.weight @ x["phrase"][0]).split(4)
    i, o, u = (torch.cat(rest) + cell.from_sum(h.sum(0))).chunk(3)
    f = torch.sigmoid(cell.from_h(h) + forget)
    new = i.sigmoid() * u.tanh() + (f * c).sum(0)
    torch.testing.assert_close(got["c"][3], new)
    torch.testing.assert_close(got["h"][3], o.sigmoid() * new.tanh())


def test_an_absent_child_counts_for_nothing():
    builder = GraphBuilder(SCHEMA)
    builder.output(builder.node("pair", [builder.node("word"), None]))
    builder.finish()
    cell = NaryTreeLSTMCell(0, 4)
    network = Network(SCHEMA, (Up(), {"word": LeafLSTMCell(3, 4), "pair": cell}))
    got = run(network, builder.build(), {"word": torch.randn(1, 3), "pair": torch.zeros(1, 0)})
    f, _, i, _, u = cell.from_h(torch.cat([got["h"][0], torch.zeros(4)])).chunk(5)
    want = i.sigmoid() * u.tanh() + f.sigmoid() * got["c"][0]
    torch.testing.assert_close(got["c"][1], want)


@pytest.mark.parametrize("make", [NaryTreeLSTMCell, ChildSumTreeLSTMCell])
def test_forget_bias_moves_the_forget_gates_alone(make):
    torch.manual_seed(0)
    plain = make(0, 4).state_dict()
    torch.manual_seed(0)
    moved = make(0, 4, forget_bias=1.5).state_dict()
    difference = torch.cat([(moved[n] - plain[n]).flatten() for n in plain if "bias" in n])
    assert int((difference != 0).sum()) == (8 if make is NaryTreeLSTMCell else 4)
    torch.testing.assert_close(difference[difference != 0].mean(), torch.tensor(1.5))
