"""The Tree-GRU against its equations."""

from __future__ import annotations

import torch

from graphfold.batching import Batch, Network, Up, build_schedule
from graphfold.dag import GraphBuilder, NodeType, Schema
from graphfold.layers import LeafCell, TreeGRUCell


def test_it_equals_the_equations():
    schema = Schema(types=(NodeType("word", 0), NodeType("phrase", None)))
    builder = GraphBuilder(schema)
    builder.output(builder.node("phrase", list(builder.nodes("word", 3))))
    builder.finish()
    dag, cell = builder.build(), TreeGRUCell(2, 4)
    network = Network(schema, (Up(), {"word": LeafCell(3, 4), "phrase": cell}))
    x = {"word": torch.randn(3, 3), "phrase": torch.randn(1, 2)}
    states = network(Batch(dag, build_schedule(dag, [Up()])), x)["h"]
    h = states[:3]
    w_r, w_z, w_u = (cell.from_x.weight @ x["phrase"][0]).chunk(3)
    r = torch.sigmoid(w_r + cell.reset(h))
    z = torch.sigmoid(w_z + cell.update(h.sum(0)))
    u = torch.tanh(w_u + cell.candidate((r * h).sum(0)))
    torch.testing.assert_close(states[3], z * h.sum(0) + (1 - z) * u)
