"""From the config of a model and the data to a `Model`.

`decide` completes the config with classes, widths and numbers that the data determine;
`build_model` makes the model of a complete config.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import torch

from graphfold.dag import Schema, TypedDAG
from graphfold.datasets.data_module import DataModule
from graphfold.datasets.molecules.record_table import BOND_ENDS
from graphfold.errors import ConfigError
from graphfold.layers import Model, RegressionHead
from graphfold.layers.graph_model import choose_addition
from graphfold.layers.heads.automatic import choose_head
from graphfold.layers.node_pairs import NodePairs
from graphfold.layers.uncertainty.ensemble import Ensemble
from graphfold.layers.virtual_node import VirtualNode
from graphfold.options import parameters
from graphfold.training.config.instantiate import (
    call,
    check_targets,
    find_target,
    instantiate,
)
from graphfold.training.config.training_config import TrainingConfig

#: In place of a type's name, cells may be given by role: types without inputs, those with inputs,
#: all. A type's own name comes first, then the narrowest role.
LEAF, INNER, EVERY = "_leaf_", "_inner_", "_every_"

#: In place of a readout's or head's class: what fits the targets of the data.
AUTO = "auto"

#: In place of a head's class weights: those that make up for how often the classes occur.
BALANCED = "balanced"

#: Keys of a model that are no arguments of its class, unless the class has one of the same name:
#: values that several parts share, needs of the data, a file with initial weights.
SHARED = ("hidden_size", "depth", "dropout", "layers", "needs_data", "encoder_from")
#: Arguments of a model that come from the data, see `build_model`.
FROM_DATA = ("schema", "scalers")

#: The option of a cell whose scale depends on the neighbours of nodes in the training part.
DEGREE = "mean_log_degree"

_LAYERS = "graphfold.layers"


def decide(config: TrainingConfig, data: DataModule) -> TrainingConfig:
    """The config of a run, completed by what its data determine, as checkpoints store it.

    The data determine options of the adapter (names of classes), cells by type in place of roles,
    widths of encoders, readout, head and class weights.

    Args:
        config: config of the run.
        data: data of the run, prepared.

    Raises:
        ConfigError: if no readout or head fits the targets, or the model has no place for vectors.
    """
    words = data.spec.words
    model = complete_model_config(
        config.model,
        data.spec.schema,
        count_roots(data),
        cache(lambda: data.encoded("train")),
        None if words is None else words.vector_size,
    )
    if config.model.get("encoder_from") is not None:
        model["encoder_from"] = config.model["encoder_from"]  # until the model has its weights
    if faults := check_targets(own_options(model), "model"):  # of the classes that were chosen
        raise ConfigError("\n".join(faults))
    return config.changed({"data": {**config.data, **data.inferred_options}, "model": model})


def count_roots(data: DataModule) -> int:
    """The number of roots of each graph of the training part; 0 where it differs.

    Outputs are roots only where nodes have inputs. In a graph of relations, such as a molecule, all
    atoms are outputs: two of them are no pair.
    """
    outputs, inputs = (data.num_rows(space)[data.split.train] for space in ("output", "inputs"))
    count = int(outputs.max())
    return count if inputs.any() and (outputs == count).all() else 0


def complete_model_config(
    config: Mapping[str, Any],
    schema: Schema,
    num_roots: int,
    train: Callable[[], TypedDAG],
    vector_size: int | None = None,
) -> dict[str, Any]:
    """The config of a model with types in place of roles, and classes in place of auto.

    Balanced class weights become numbers.

    Args:
        config: the config of the model.
        schema: the schema of the graphs.
        num_roots: the number of roots of each graph, see `count_roots`.
        train: returns the graphs of the training part; called only if something is counted in them.
        vector_size: the width of the initial vectors of words; None without such vectors.

    Raises:
        ConfigError: if no readout or head fits the targets, or the model has no place for vectors.
    """
    options = own_options(config)
    if vector_size is not None:
        options["encoder"] = _as_wide_as_vectors(config, vector_size)
    is_pair = False
    if "root" in options:  # of blocks
        if options.get("level") == AUTO:
            options["level"] = "node" if _has_node_targets_only(schema) else "graph"
        is_pair = options.get("level", "graph") == "graph" and num_roots == 2
    elif "readout" in options:  # not of whole graphs
        options |= _complete_cells(config, schema, train)
        options["readout"] = readout = dict(config["readout"])
        if readout["_target_"] == AUTO:
            readout["_target_"] = f"{_LAYERS}.{_choose_readout(schema, num_roots)}"
        is_pair = getattr(find_target(readout["_target_"], "model.readout"), "pairs", False)
    return {**options, "head": _complete_head(config["head"], schema, train, is_pair)}


def own_options(config: Mapping[str, Any]) -> dict[str, Any]:
    """The config of a model, reduced to arguments of its class; see `SHARED`."""
    taken = _arguments(config)
    return {key: value for key, value in config.items() if key not in SHARED or key in taken}


def absent_options(config: Mapping[str, Any]) -> list[str]:
    """A fault for each option that the class of a model needs and its config lacks."""
    needed = [name for name, p in _arguments(config).items() if p.default is p.empty]
    absent = [name for name in needed if name not in config and name not in FROM_DATA]
    return [f"model.{name} is not there, but the model needs it. Set it." for name in absent]


def _arguments(config: Mapping[str, Any]) -> dict[str, inspect.Parameter]:
    """The arguments of the class of a model; empty for a wrong name, which others report."""
    try:
        return parameters(find_target(config["_target_"], "model"))
    except ConfigError:
        return {}


def _complete_cells(
    config: Mapping[str, Any], schema: Schema, train: Callable[[], TypedDAG]
) -> dict[str, Any]:
    """The passes of all layers, and their cells by type."""
    adds = choose_addition(config.get("virtual_node"), config.get("pairs"))
    computed = schema if adds is None else adds.schema(schema)
    deep = _stack(config["cells"], config.get("layers", 1))
    complete = {
        "passes": config["passes"] * (len(deep) // len(config["cells"])),
        "cells": [_name_types(by_role, computed) for by_role in deep],
    }
    fill_degrees(complete, train, adds)
    return complete


def _stack(cells: Sequence[Mapping[str, Any]], layers: Any) -> list[dict[str, Any]]:
    """The cells of all passes of a deep model: upper layers read `h` of the layer below.

    Raises:
        ConfigError: if there is no such number of layers.
    """
    if not isinstance(layers, int) or isinstance(layers, bool) or layers < 1:
        raise ConfigError(f"model.layers is {layers!r}. Give a whole number of at least 1.")
    upper = [{k: {**cell, "own": ["h"]} for k, cell in by_role.items()} for by_role in cells]
    return [*map(dict, cells), *upper * (layers - 1)]


def _name_types(by_role: Mapping[str, Any], schema: Schema) -> dict[str, Any]:
    named = {name: cell for name, cell in by_role.items() if name not in (LEAF, INNER, EVERY)}
    for node_type in schema.types:
        if node_type.name == BOND_ENDS.name:
            named[node_type.name] = None  # only its atoms are read
            continue
        roles = (LEAF if node_type.arity == 0 else INNER, EVERY)
        cells = [by_role[role] for role in roles if role in by_role]
        if cells:
            named.setdefault(node_type.name, cells[0])
    return named


def fill_degrees(
    config: dict[str, Any],
    train: Callable[[], TypedDAG],
    adds: VirtualNode | NodePairs | None = None,
) -> None:
    """Puts a number in the place of every `mean_log_degree: auto` of the cells of a model.

    Args:
        config: the config of the model, with types in place of roles; its cells are replaced.
        train: returns the training part.
        adds: the nodes that the model adds to each graph.
    """
    places = [
        (number, name)
        for number, by_type in enumerate(config["cells"])
        for name, cell in by_type.items()
        if cell is not None and cell.get(DEGREE) == AUTO
    ]
    if not places:
        return
    dag = train() if adds is None else adds.lower(train())
    config["cells"] = [dict(by_type) for by_type in config["cells"]]
    for number, name in places:
        relation = config["passes"][number].get("relation")
        mean = mean_log_degree(dag, relation, name)
        config["cells"][number][name] = {**config["cells"][number][name], DEGREE: mean}


def mean_log_degree(dag: TypedDAG, relation: str | None, type_name: str) -> float:
    """The mean of log(neighbours + 1) over the nodes of a type; 0 without such nodes.

    Nodes of a graph of weight 2 count twice.

    Args:
        dag: the graphs.
        relation: whose edges lead to neighbours; None for the inputs.
        type_name: of the nodes.

    Raises:
        SchemaError: if there is no such type or relation.
    """
    if relation is not None:
        dag.schema.relation(relation)
    ptr = dag.input_ptr if relation is None else dag.relations[relation].ptr
    nodes = dag.nodes_of_type(type_name)
    log_degree = torch.log(ptr.diff()[nodes].double() + 1)
    weights = dag.weights()
    if weights is None:
        return float(log_degree.sum() / max(len(nodes), 1))
    times = weights.double()[dag.batch[nodes]]
    total = float(times.sum())
    return float((log_degree * times).sum()) / total if total else 0.0


def _choose_readout(schema: Schema, num_roots: int) -> str:
    if any(node_type.name == BOND_ENDS.name for node_type in schema.types):
        return "BondReadout"
    if _has_node_targets_only(schema):
        return "NodeReadout"
    return {1: "RootReadout", 2: "PairReadout"}.get(num_roots, "SumReadout")


def _has_node_targets_only(schema: Schema) -> bool:
    return bool(schema.node_targets) and not schema.graph_targets


def _complete_head(
    config: Mapping[str, Any], schema: Schema, train: Callable[[], TypedDAG], is_pair: bool
) -> dict[str, Any]:
    """The head, with the class that fits the targets for auto."""
    head = dict(config)
    if head["_target_"] == AUTO:
        targets = schema.graph_targets or schema.node_targets
        if not targets:
            raise ConfigError("the data has no target to learn from. Set the adapter's targets.")
        level = "graph" if schema.graph_targets else "node"
        chosen = choose_head(targets, level, is_pair, head.get("loss"))
        head["_target_"] = f"{_LAYERS}.{chosen.__name__}"
        if "loss" in head and chosen is not RegressionHead:
            del head["loss"]  # the head has no other
    if head.get("class_weights") == BALANCED:
        head["class_weights"] = balanced_weights(train())
    return head


def balanced_weights(dag: TypedDAG) -> dict[str, list[float]]:
    """target -> the weight of each class: as if all occurred equally often, 1 on average.

    A class that does not occur has the weight 1; a record of weight 2 counts twice.
    """
    weights = {}
    for space, columns in (("graph", dag.schema.graph_targets), ("node", dag.schema.node_targets)):
        for column in columns:
            if column.size and not column.shape:
                codes, times = dag.columns[space][column.name].long(), dag.weights(space)
                is_measured = codes >= 0
                times = None if times is None else times.double()[is_measured]
                count = torch.bincount(codes[is_measured], times, column.size).double()
                even = count.sum() / (count > 0).sum().clamp(min=1)
                weights[column.name] = torch.where(count > 0, even / count, 1.0).tolist()
    return weights


def _as_wide_as_vectors(config: Mapping[str, Any], size: int) -> dict[str, Any]:
    """The encoder of a model, as wide as the vectors of words."""
    encoder = config.get("encoder")
    if not isinstance(encoder, Mapping):
        raise ConfigError(
            "data.vectors needs a model with an encoder of words, which this one has not. Choose "
            "another model, such as model=binary_tree_lstm."
        )
    return {**encoder, "size": size}


def build_model(
    config: Mapping[str, Any], schema: Schema, scalers: Mapping[str, tuple[float, ...]]
) -> Model:
    """The model of a complete config.

    Args:
        config: what `complete_model_config` returned.
        schema: the schema of encoded graphs.
        scalers: target -> (mean, standard deviation) of the training part.
    """
    parts = {**own_options(config), "_partial_": True}
    model = call(instantiate(parts, "model"), "model", schema=schema, scalers=scalers or None)
    if not isinstance(model, Model):
        raise ConfigError(
            f"model is a {type(model).__name__}. Give a graphfold.layers.GraphModel or a "
            "graphfold.blocks.BlockModel."
        )
    return model


def build_ensemble(
    config: Mapping[str, Any],
    size: int,
    schema: Schema,
    scalers: Mapping[str, tuple[float, ...]],
) -> Model:
    """The model of a complete config, or several of them as one; see `build_model`."""
    members = [build_model(config, schema, scalers) for _ in range(size)]
    return members[0] if size == 1 else Ensemble(members)
