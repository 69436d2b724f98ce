"""Passes up and down a relation: chains of words are LSTMs, and a tree stands on them."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from graphfold.batching import Batch, Down, Network, Up, build_schedule
from graphfold.dag import Column, EdgeType, GraphBuilder, NodeType, Schema, TypedDAG
from graphfold.errors import GraphError, SchemaError
from graphfold.layers import ChildSumTreeLSTMCell, LeafLSTMCell, NaryTreeLSTMCell

SCHEMA = Schema(
    types=(NodeType("word", 0, (Column("form", "int64", size=5),)), NodeType("phrase", 2)),
    relations=(EdgeType("next"),),
)
PASSES = [Up("next"), Down("next"), Up()]
H = 4


def sentences(lengths: list[int]) -> TypedDAG:
    """Words in order, some of them equal, and phrases that branch to the right."""
    builder = GraphBuilder(SCHEMA, "sentences")
    for length in lengths:
        forms = [(number * number + length) % 5 for number in range(length)]
        words = list(builder.nodes("word", length, form=forms))
        builder.edges("next", words[:-1], words[1:])
        top = words[-1]
        for word in words[-2::-1]:
            top = builder.node("phrase", [word, top])
        builder.output(top)
        builder.finish()
    return builder.build()


def make_network(run: str = "compiled") -> Network:
    torch.manual_seed(1)
    cells = [
        {"word": ChildSumTreeLSTMCell(3, H, prefix="forward_")},
        {"word": ChildSumTreeLSTMCell(3, H, prefix="backward_")},
        {
            "word": LeafLSTMCell(3, H, own=["forward_h", "backward_h"]),
            "phrase": NaryTreeLSTMCell(0, H),
        },
    ]
    return Network(SCHEMA, *zip(PASSES, cells, strict=True), run=run).double()


def features(dag: TypedDAG) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(2)
    table = torch.randn(5, 3, dtype=torch.float64, generator=generator)
    x = table[dag.features("word")["form"]]
    return {"word": x.requires_grad_(), "phrase": x.new_zeros(dag.num_nodes_by_type[1], 0)}


@pytest.mark.parametrize("share", [False, True])
def test_passes_in_both_directions_are_a_bidirectional_lstm(share):
    lengths = [1, 7, 2, 30]
    dag, network = sentences(lengths), make_network()
    lstm = nn.LSTM(3, H, bidirectional=True).double()
    for index, suffix in enumerate(("", "_reverse")):
        (cell,) = network.cells[index]["word"]
        copy_weights(lstm, suffix, cell)
    x = features(dag)
    batch = Batch(dag, build_schedule(dag, PASSES, share=share))
    states = network(batch, x)
    words = dag.nodes_of_type("word")
    got = torch.cat([states["forward_h"][words], states["backward_h"][words]], 1)
    want = torch.cat([lstm(part)[0] for part in x["word"].split(lengths)])
    torch.testing.assert_close(got, want, rtol=1e-10, atol=1e-10)
    weight = torch.linspace(-1, 1, want.numel(), dtype=torch.float64).view_as(want)
    (mine,) = torch.autograd.grad((got * weight).sum(), x["word"])
    (theirs,) = torch.autograd.grad((want * weight).sum(), x["word"])
    forms = dag.features("word")["form"]
    for form in range(5):  # of equal words, one may stand for all
        own = forms == form
        torch.testing.assert_close(mine[own].sum(0), theirs[own].sum(0), rtol=1e-9, atol=1e-10)


def copy_weights(lstm: nn.LSTM, suffix: str, cell: ChildSumTreeLSTMCell) -> None:
    """Gives the cell the weights of one direction; torch orders the gates i, f, g, o."""
    own = dict(lstm.named_parameters())
    with torch.no_grad():
        i, f, g, o = own[f"weight_ih_l0{suffix}"].chunk(4)
        cell.from_x.weight.copy_(torch.cat([f, i, o, g]))
        i, f, g, o = own[f"weight_hh_l0{suffix}"].chunk(4)
        cell.from_sum.weight.copy_(torch.cat([i, o, g]))
        cell.from_h.weight.copy_(f)
        i, f, g, o = (own[f"bias_ih_l0{suffix}"] + own[f"bias_hh_l0{suffix}"]).chunk(4)
        cell.from_sum.bias.copy_(torch.cat([i, o, g]))
        cell.from_h.bias.copy_(f)


@settings(max_examples=3)
@given(lengths=st.lists(st.integers(1, 6), min_size=1, max_size=4))
def test_every_engine_gives_the_same(lengths):
    dag = sentences(lengths)
    x = features(dag)
    actual = []
    for run in ("reference", "compiled", "eager"):
        network = make_network(run)
        states = network(Batch(dag, build_schedule(dag, PASSES)), x)
        h, tensors = states["h"], [x["word"], *network.parameters()]
        grads = torch.autograd.grad(h.square().sum(), tensors, materialize_grads=True)
        actual.append([h, *grads])
    for other in actual[1:]:
        torch.testing.assert_close(other, actual[0], rtol=1e-10, atol=1e-10)


def test_a_cycle_has_no_order():
    builder = GraphBuilder(SCHEMA, "ring.txt")
    words = list(builder.nodes("word", 3))
    builder.edges("next", words, [1, 2, 0])
    builder.output(words[0])
    builder.finish(line=7)
    dag = builder.build()
    for item in (Up("next"), Down("next")):
        with pytest.raises(GraphError, match=r"ring.txt:7: the relation 'next' has a cycle of 3"):
            build_schedule(dag, [item])


def test_an_unknown_relation_is_refused():
    with pytest.raises(SchemaError, match="no relation 'previous'"):
        build_schedule(sentences([2]), [Up("previous")])
