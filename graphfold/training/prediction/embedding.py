"""Embeddings: one vector per graph, which is what the head of a trained model reads."""

from __future__ import annotations

import torch
from torch import Tensor

from graphfold.batching import Batch
from graphfold.batching.kernels.segment import segment_mean
from graphfold.dag import TypedDAG
from graphfold.layers import Model
from graphfold.training.prediction.predictor import Predictor


@torch.no_grad()
def embed_graphs(predictor: Predictor, dag: TypedDAG) -> list[Tensor]:
    """The embedding of each graph, [width] float32, in one batch.

    It is the row of the readout. A model that reads out every node, or every output node, gives the
    mean over the graph's output nodes: of a tree with one root, the root's row. The two vectors of
    a pair stand side by side.

    Args:
        predictor: the model.
        dag: the graphs, as the adapter reads them.
    """
    model = predictor.trained.model
    batch = predictor.plan(dag)
    return list(predictor.compute(batch, lambda part: _rows(model, part)))


def _rows(model: Model, batch: Batch) -> Tensor:
    """[num_graphs, width]"""
    rows = model.rows(model.states(batch), batch).flatten(1)
    if model.head.level == "graph":
        return rows
    if model.head.level == "node":
        rows = rows.index_select(0, batch.dag.output_index)
    return segment_mean(rows, batch.dag.output_ptr)
