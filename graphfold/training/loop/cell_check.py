"""A check when training starts: does a node's state depend on the batch that it is computed in?"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterable

import torch
from torch import Tensor

from graphfold.batching import Network, States
from graphfold.dag import TypedDAG, collate, select
from graphfold.layers import Model
from graphfold.layers.normalisation import is_batch_norm
from graphfold.training.run.generators import capture_generators, restore_generators

#: How many graphs are computed, and of how many nodes they are at most together.
GRAPHS, NODES = 3, 300

#: Graphs that are looked at to find small ones.
LOOKED_AT = 200

#: Largest difference, relative to the largest value: far above rounding in single precision.
TOLERANCE = 1e-4


def warn_of_batch_dependence(model: Model, dag: TypedDAG) -> None:
    """Warns of cells whose groups of one differ from groups of many, as they are in evaluation.

    Such a cell looks at its whole group (`x - x.mean(0)`), or draws random numbers. What it makes
    of a node depends on the other examples of the batch, then, and so do scores and predictions. A
    few small graphs are computed together, and each alone, one node at a time. The model and the
    random generators stay as they are. Models of blocks, which have no cells, are not looked at.

    Args:
        model: the model, on the CPU.
        dag: graphs to compute, encoded.
    """
    if not isinstance(model.network, Network):
        return
    graphs = _small_graphs(dag)
    has_statistics = any(
        is_batch_norm(module) and module.running_mean is None for module in model.modules()
    )
    if len(graphs) < 2 or has_statistics:  # which the engine refuses, or the user has asked for
        return
    names = ", ".join(dict.fromkeys(_differing_cells(_copied(model), graphs)))
    if names:
        warnings.warn(
            f"{names}: what it computes for a node depends on the other nodes of the group, or on "
            "random numbers, and so on how examples are put into batches. Let a cell treat each "
            "row alone, and draw random numbers in training only.",
            stacklevel=2,
        )


def _small_graphs(dag: TypedDAG) -> list[TypedDAG]:
    """The smallest graphs that have more than one node."""
    sizes = dag.node_ptr.diff()[:LOOKED_AT]
    smallest = sizes.argsort(stable=True)
    smallest = smallest[sizes[smallest] > 1][:GRAPHS]
    smallest = smallest[sizes[smallest].cumsum(0) <= NODES]
    return [select(dag, [number]) for number in smallest.tolist()]


def _copied(model: Model) -> Model:
    copied = copy.deepcopy(model).eval()
    copied.network.engine = "autograd"
    return copied


def _differing_cells(model: Model, graphs: list[TypedDAG]) -> list[str]:
    """The cells whose states differ, but for those that read what differs already."""
    dag, before = collate(graphs), capture_generators()
    with torch.no_grad():
        together = model.states(model.plan(dag, "depth"))
        alone = [model.states(model.plan(graph, "one_by_one")) for graph in graphs]
    restore_generators(before)
    known = {node_type.name for node_type in dag.schema.types}
    for by_type in model.network.cells:
        depths = {}
        for name, cells in by_type.items():
            if (
                name not in known
            ):  # of nodes that the model adds; what differs shows in their readers
                continue
            nodes = _differs(cells[-1].fields, together, alone)[dag.nodes_of_type(name)]
            if nodes.any():
                depth = dag.depth[dag.nodes_of_type(name)][nodes].min()
                depths[f"{type(cells[-1]).__name__} (type '{name}')"] = int(depth)
        if depths:
            return [cell for cell, depth in depths.items() if depth == min(depths.values())]
    return []


def _differs(fields: Iterable[str], together: States, alone: list[States]) -> Tensor:
    """[num_nodes] bool, whether one of some fields differs; NaN differs from nothing."""
    differing = []
    for field in fields:
        one, many = torch.cat([states[field] for states in alone]), together[field]
        error = (one.double() - many.double()).abs().amax(1)
        differing.append(error > TOLERANCE * many.double().abs().max().clamp(min=1))
    return torch.stack(differing).any(0)
