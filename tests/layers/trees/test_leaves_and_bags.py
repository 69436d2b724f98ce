"""LeafCell against its equation."""

from __future__ import annotations

import torch

from graphfold.batching import Batch, Network, Up, build_schedule
from graphfold.dag import GraphBuilder, NodeType, Schema
from graphfold.layers import LeafCell


def test_every_field_is_a_linear_map_of_the_features():
    schema = Schema(types=(NodeType("word", 0),))
    builder = GraphBuilder(schema)
    builder.output(*builder.nodes("word", 5))
    builder.finish()
    dag, cell, x = builder.build(), LeafCell(3, 4, ["h", "c"]), torch.randn(5, 3)
    network = Network(schema, (Up(), {"word": cell}))
    states = network(Batch(dag, build_schedule(dag, [Up()])), {"word": x})
    both = torch.cat([states["h"], states["c"]], dim=1)
    torch.testing.assert_close(both, x @ cell.from_x.weight.T + cell.from_x.bias)
