"""Masking: the change of a prediction when the input of one unit is taken away."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from graphfold.batching import Batch
from graphfold.dag import TypedDAG
from graphfold.inference.explanation.explained import Explained
from graphfold.inference.explanation.units import Units


@torch.no_grad()
def mask_each(explained: Explained, units: Units) -> Tensor:
    """[num_units, num_targets] the number less what it is without the input of a unit.

    Occlusion, Zeiler and Fergus (2014), https://arxiv.org/abs/1311.2901, section 4.2. The vector of
    a node is set to zero, the features of an edge are set to missing. Graphs do not depend on each
    other, so one unit of every graph is masked at a time.
    """
    whole = explained(explained.inputs)
    found = whole.new_zeros(units.count, whole.shape[1])
    for kind in units.kinds:
        counts = torch.bincount(kind.graph, minlength=explained.batch.num_graphs)
        start = counts.cumsum(0) - counts
        number = torch.arange(len(kind.unit), device=start.device) - start[kind.graph]
        for turn in range(int(counts.max())):
            now = number == turn
            changed = whole - _without(explained, units, kind.unit[now])
            found[kind.unit[now]] = changed[kind.graph[now]]
    return found


def _without(explained: Explained, units: Units, masked: Tensor) -> Tensor:
    """The numbers without the inputs of some units."""
    is_kept = torch.ones(units.count, dtype=torch.bool, device=masked.device)
    is_kept[masked] = False
    inputs = dict(explained.inputs)
    for share in units.shares:
        gone = share.values * ~is_kept[share.unit].unsqueeze(1)
        inputs[share.node_type] = inputs[share.node_type] - gone
    batch, dag = explained.batch, explained.batch.dag
    for name, unit in units.edges.items():
        dag = _without_features(dag, f"relation:{name}", is_kept[unit])
    return explained(inputs, Batch(dag, batch.schedule))


def _without_features(dag: TypedDAG, space: str, is_kept: Tensor) -> TypedDAG:
    """The graphs with missing features in some rows."""
    columns = {}
    for name, column in dag.columns[space].items():
        kept = is_kept.view(-1, *[1] * (column.dim() - 1))
        if column.is_floating_point():
            columns[name] = torch.where(kept, column, torch.nan)
        else:  # int64, for a missing code is -1
            columns[name] = torch.where(kept, column.long(), -1)
    return replace(dag, columns={**dag.columns, space: columns})
