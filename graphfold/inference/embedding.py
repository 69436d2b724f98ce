"""Embeddings: one vector per graph, which is what the head of a trained model reads."""

from __future__ import annotations

from torch import Tensor

from graphfold.batching import Batch
from graphfold.batching.kernels.segment import segment_mean
from graphfold.layers import Model


def embedding_rows(model: Model, batch: Batch) -> Tensor:
    """[num_graphs, width] the embedding of each graph of a batch.

    It is the row of the readout. A model that reads out every node, or every output node, gives the
    mean over the graph's output nodes: of a tree with one root, the root's row. The two vectors of
    a pair stand side by side.
    """
    rows = model.rows(model.states(batch), batch).flatten(1)
    if model.head.level == "graph":
        return rows
    if model.head.level == "node":
        rows = rows.index_select(0, batch.dag.output_index)
    return segment_mean(rows, batch.dag.output_ptr)
