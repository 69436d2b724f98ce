"""Numbers of neighbours in the training part, for cells whose scale depends on them."""

from __future__ import annotations

from typing import Any

import torch

from graphfold.dag import TypedDAG
from graphfold.layers.node_pairs import NodePairs
from graphfold.layers.virtual_node import VirtualNode

#: The option of a cell, and in its place: the number of the training part.
OPTION, AUTO = "mean_log_degree", "auto"


def fill_degrees(
    config: dict[str, Any], dag: TypedDAG, adds: VirtualNode | NodePairs | None = None
) -> None:
    """Puts a number in the place of every `mean_log_degree: auto` of the cells of a model.

    Args:
        config: of the model, with types in place of roles; its cells are replaced.
        dag: the training part.
        adds: the nodes that the model adds to it.
    """
    asked = [
        (number, name)
        for number, by_type in enumerate(config["cells"])
        for name, cell in by_type.items()
        if cell is not None and cell.get(OPTION) == AUTO
    ]
    if not asked:
        return
    dag = dag if adds is None else adds.lower(dag)
    config["cells"] = [dict(by_type) for by_type in config["cells"]]
    for number, name in asked:
        relation = config["passes"][number].get("relation")
        found = mean_log_degree(dag, relation, name)
        config["cells"][number][name] = {**config["cells"][number][name], OPTION: found}


def mean_log_degree(dag: TypedDAG, relation: str | None, type_name: str) -> float:
    """The mean of log(neighbours + 1) over the nodes of a type; 0 where there are none.

    Nodes of a graph of weight 2 count like two.

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
