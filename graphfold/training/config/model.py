"""From the config of a model and the schema of the data to a `Model`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphfold.dag import Schema, TypedDAG
from graphfold.errors import ConfigError
from graphfold.layers import Model
from graphfold.layers.heads.registry import choose_head
from graphfold.training.config.instantiate import find_target, instantiate

#: In place of a type's name, cells may be given by role; a type's own name comes first.
LEAF, INNER, EVERY = "_leaf_", "_inner_", "_every_"

#: In place of a readout's or head's class: what fits the targets of the data.
AUTO = "auto"

#: Values that several parts of a model share, and its wishes of the data; no arguments of its own.
SHARED = ("hidden_size", "dropout", "needs_data", "data_defaults")

_LAYERS = "graphfold.layers"


def complete_model_config(
    config: Mapping[str, Any], schema: Schema, dag: TypedDAG, task: str | None = None
) -> dict[str, Any]:
    """The config of a model with types in place of roles, and a readout and head in place of auto.

    What it returns depends on the data no more, so it is what a checkpoint keeps.

    Args:
        config: the config of the model.
        schema: the schema of the graphs.
        dag: graphs of the training part, to see how many outputs they have.
        task: the adapter's option of that name, "regression" or "classification".

    Raises:
        ConfigError: if no readout or head fits the targets.
    """
    own = {key: value for key, value in config.items() if key not in SHARED}
    for name in ("head", "readout"):
        if name in own and not isinstance(own[name], Mapping):
            raise ConfigError(
                f"model.{name} is {own[name]!r}, but it is a class with its options. Set "
                f"model.{name}._target_, for which auto takes what fits the targets."
            )
    outputs = set(dag.output_ptr.diff().tolist())
    if "root" in own:  # of blocks
        if own.get("level") == AUTO:
            own["level"] = "node" if _has_node_targets_only(schema) else "graph"
        is_pair = own.get("level", "graph") == "graph" and max(outputs, default=1) == 2
    elif "readout" not in own:  # of whole graphs
        is_pair = False
    else:
        own["readout"] = readout = dict(config["readout"])
        if readout["_target_"] == AUTO:
            readout["_target_"] = f"{_LAYERS}.{_choose_readout(schema, outputs)}"
        is_pair = getattr(find_target(readout["_target_"], "model.readout"), "pairs", False)
        own["cells"] = [_name_types(by_role, schema) for by_role in config["cells"]]
    head = dict(config["head"])
    if head["_target_"] == AUTO:
        targets = schema.graph_targets or schema.node_targets
        if not targets:
            raise ConfigError("the data has no target to learn from. Set the adapter's targets.")
        level = "graph" if schema.graph_targets else "node"
        chosen = choose_head(targets, level, is_pair, task)
        head["_target_"] = f"{_LAYERS}.{chosen.__name__}"
    return {**own, "head": head}


def build_model(
    config: Mapping[str, Any], schema: Schema, scalers: Mapping[str, tuple[float, float]]
) -> Model:
    """The model of a complete config.

    Args:
        config: what `complete_model_config` returned.
        schema: the schema of encoded graphs.
        scalers: target -> (mean, standard deviation) of the training part.
    """
    parts = {**config, "_partial_": True}
    model = instantiate(parts, "model")(schema=schema, scalers=scalers or None)
    if not isinstance(model, Model):
        raise ConfigError(
            f"model is a {type(model).__name__}. Give a graphfold.layers.GraphModel or a "
            "graphfold.blocks.BlockModel."
        )
    return model


def _name_types(by_role: Mapping[str, Any], schema: Schema) -> dict[str, Any]:
    named = {name: cell for name, cell in by_role.items() if name not in (LEAF, INNER, EVERY)}
    for node_type in schema.types:
        role = LEAF if node_type.arity == 0 else INNER
        cell = by_role.get(role, by_role.get(EVERY))
        if cell is not None:
            named.setdefault(node_type.name, cell)
    return named


def _choose_readout(schema: Schema, outputs: set[int]) -> str:
    if _has_node_targets_only(schema):
        return "NodeReadout"
    return {1: "RootReadout", 2: "PairReadout"}.get(max(outputs, default=1), "SumReadout")


def _has_node_targets_only(schema: Schema) -> bool:
    return bool(schema.node_targets) and not schema.graph_targets
