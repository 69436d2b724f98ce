"""Graphs of one node with numbers and targets, for models that read numbers of whole graphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphfold.dag import Column, GraphBuilder, NodeType, Schema, TypedDAG
from graphfold.layers.baselines.fitted_model import FittedModel

NUM_COUNTS = 6


def schema(*targets: Column) -> Schema:
    """Counts, two floats, and some targets."""
    inputs = (Column("counts", "uint8", (NUM_COUNTS,)), Column("floats", "float32", (2,)))
    return Schema(types=(NodeType("atom", 0),), graph_features=inputs, graph_targets=targets)


def graphs(of: Schema, num_graphs: int, targets: Mapping[str, Sequence[Any]]) -> TypedDAG:
    """Graphs with random inputs; `targets` by column, None where missing."""
    rng = np.random.default_rng(0)
    builder = GraphBuilder(of)
    for number in range(num_graphs):
        builder.output(builder.node("atom"))
        inputs = {"counts": rng.integers(0, 5, NUM_COUNTS), "floats": rng.normal(size=2)}
        values = {name: column[number] for name, column in targets.items()}
        builder.finish(columns={**inputs, **values})
    return builder.build()


def inputs_of(dag: TypedDAG) -> np.ndarray:
    """[num_graphs, NUM_COUNTS + 2] as a baseline reads them."""
    columns = dag.columns["graph"]
    return torch.cat([columns["counts"].float(), columns["floats"]], dim=1).numpy()


def predict(model: FittedModel, dag: TypedDAG) -> Tensor:
    """What the head decodes."""
    return model.head.decode(model(model.plan(dag)))
