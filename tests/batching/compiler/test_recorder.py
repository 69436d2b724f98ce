"""Fused operations of GPUs, decomposed: a trace with them beside the cells that torch has."""

from __future__ import annotations

import pytest
import torch
from compiled_checks import assert_same_both_ways
from torch import Tensor, nn

from graphfold._torch import is_fake
from graphfold.batching import Cell, Network, Up
from graphfold.dag import GraphBuilder, NodeType, Schema, TypedDAG
from graphfold.layers import LeafCell

WIDTH = 4
SCHEMA = Schema(types=(NodeType("word", 0), NodeType("phrase", None)))
FUSED = {
    nn.GRUCell: torch.ops.aten._thnn_fused_gru_cell,
    nn.LSTMCell: torch.ops.aten._thnn_fused_lstm_cell,
}


class Recurrent(Cell):
    """The sum of the children through a GRU or an LSTM; while it is traced, as on a GPU."""

    arity = None

    def __init__(self, kind: type[nn.RNNCellBase], bias: bool) -> None:
        super().__init__()
        self.fields, self.kind = {"h": WIDTH}, kind
        self.cell = kind(WIDTH, WIDTH, bias=bias)

    def forward(self, x, children):
        h = children.sum("h")
        first = self._on_a_gpu(x, h) if is_fake(h) else self.cell(x, self._state(h))
        return {"h": first[0] if isinstance(first, tuple) else first}

    def _state(self, h: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        return h if self.kind is nn.GRUCell else (h, 2 * h)

    def _on_a_gpu(self, x: Tensor, h: Tensor) -> tuple[Tensor, ...]:
        cell = self.cell
        biases = (cell.bias_ih, cell.bias_hh) if cell.bias else ()
        carried = h if self.kind is nn.GRUCell else 2 * h
        products = x @ cell.weight_ih.t(), h @ cell.weight_hh.t()
        return FUSED[self.kind](*products, carried, *biases)


def trees() -> TypedDAG:
    builder = GraphBuilder(SCHEMA)
    for size in (2, 3):
        root = builder.node("phrase", list(builder.nodes("word", size)))
        builder.output(builder.node("phrase", [root, builder.node("word")]))
        builder.finish()
    return builder.build()


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", list(FUSED))
def test_a_fused_cell_is_compiled_to_its_formula(kind, bias):
    dag = trees()
    cells = {"word": LeafCell(WIDTH, WIDTH), "phrase": Recurrent(kind, bias)}
    network = Network(SCHEMA, (Up(), cells)).double()
    words, phrases = dag.num_nodes_by_type
    x = {"word": torch.randn(words, WIDTH), "phrase": torch.randn(phrases, WIDTH)}
    assert_same_both_ways(network, dag, {name: rows.double() for name, rows in x.items()})
