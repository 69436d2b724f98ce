"""LeafCell against its equation."""

from __future__ import annotations

import pytest
import torch

from graphfold.batching import Batch, Network, Up, build_schedule
from graphfold.dag import GraphBuilder, NodeType, Schema
from graphfold.errors import ConfigError, ShapeError
from graphfold.layers import LeafCell


def test_every_field_is_a_linear_map_of_the_features():
    schema = Schema(types=(NodeType("word", 0),))
    builder = GraphBuilder(schema)
    builder.output(*builder.nodes("word", 5))
    builder.finish()
    dag, cell, x = builder.build(), LeafCell(3, 4, ["h", "c"]), torch.randn(5, 3)
    network = Network(schema, [Up()], [{"word": cell}])
    states = network(Batch(dag, build_schedule(dag, [Up()])), {"word": x})
    both = torch.cat([states["h"], states["c"]], dim=1)
    torch.testing.assert_close(both, x @ cell.from_x.weight.T + cell.from_x.bias)


def test_it_needs_features():
    with pytest.raises(ConfigError, match="LeafCell has input_size=0, .* Give its type a feature"):
        LeafCell(0, 4)


def test_it_reads_one_tensor():
    with pytest.raises(ShapeError, match="the features are a mapping of a, b, but this cell reads"):
        LeafCell(3, 4).before({"a": torch.zeros(1, 3), "b": torch.zeros(1, 3)})
