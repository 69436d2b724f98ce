"""To and from networkx and PyTorch Geometric."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from graphfold.dag.builder import GraphBuilder
from graphfold.dag.schema import MISSING, Schema
from graphfold.dag.typed_dag import TypedDAG
from graphfold.errors import SchemaError

if TYPE_CHECKING:
    import networkx as nx
    from torch_geometric.data import Data


def to_networkx(dag: TypedDAG) -> nx.MultiDiGraph:
    """One graph as a `networkx.MultiDiGraph`.

    A node carries `type`, `span` and its features and targets; an edge carries `kind` ("inputs" or
    a relation), for inputs `position` (the slot among the node's inputs), and its columns. The
    graph's own attributes are its columns, `outputs`, `file`, `line` and `record`.

    Raises:
        SchemaError: if `dag` holds more or less than one graph.
    """
    import networkx as nx

    _require_one_graph(dag)
    file, line = dag.place(0)
    graph = nx.MultiDiGraph(
        **_row(dag, "graph", 0),
        outputs=dag.output_index.tolist(),
        file=file,
        line=line,
        record=int(dag.origin[0, 2]),
    )
    type_row = [0] * len(dag.schema.types)
    for node, op_type in enumerate(dag.op_type.tolist()):
        name = dag.schema.types[op_type].name
        values = _row(dag, f"type:{name}", type_row[op_type]) | _row(dag, "node", node)
        graph.add_node(
            node, type=name, span=tuple(dag.span[node].tolist()), arity=_arity(dag, node), **values
        )
        type_row[op_type] += 1
    _add_edges(graph, dag, "inputs", dag.input_ptr, dag.input_index)
    for name, relation in dag.relations.items():
        _add_edges(graph, dag, f"relation:{name}", relation.ptr, relation.index)
    return graph


def from_networkx(graph: nx.MultiDiGraph, schema: Schema) -> TypedDAG:
    """The inverse of `to_networkx`; nodes may have any names and are numbered in their order.

    Raises:
        SchemaError: if an attribute is not in the schema.
        GraphError: if the inputs have a cycle.
    """
    builder = GraphBuilder(schema, graph.graph.get("file", ""))
    number = {name: index for index, name in enumerate(graph.nodes)}
    for _, data in graph.nodes(data=True):
        values = {k: v for k, v in data.items() if k not in ("type", "span", "arity")}
        builder.node(data["type"], span=data.get("span", (-1, -1)), **values)
    for name, data in graph.nodes(data=True):
        edges = [
            (attributes["position"], number[source], attributes)
            for source, _, attributes in graph.in_edges(name, data=True)
            if attributes["kind"] == "inputs"
        ]
        _set_inputs(builder, number[name], sorted(edges, key=lambda e: e[0]), data.get("arity", 0))
    by_position = sorted(graph.edges(data=True), key=lambda edge: edge[2].get("position", 0))
    for source, target, data in by_position:
        if data["kind"] != "inputs":
            values = {k: [v] for k, v in data.items() if k not in ("kind", "position")}
            builder.edges(data["kind"], [number[source]], [number[target]], **values)
    builder.output(*(number[name] for name in graph.graph["outputs"]))
    own = ("outputs", "file", "line", "record")
    values = {name: value for name, value in graph.graph.items() if name not in own}
    builder.finish(graph.graph.get("line", 0), graph.graph.get("record"), **values)
    return builder.build()


def to_pyg(dag: TypedDAG, relation: str | None = None) -> Data:
    """One or more graphs of a single relation as a PyTorch Geometric `Data`.

    `edge_index` [2, num_edges] has the source in row 0. It is derived from the relation, or from
    the inputs (child -> parent) where `relation` is None. Feature and target columns keep their
    names; the columns of the edges get the prefix "edge_".

    Raises:
        SchemaError: if the schema has several node types, which `Data` cannot hold.
    """
    from torch_geometric.data import Data

    (node_type,) = _single_type(dag.schema)
    space = "inputs" if relation is None else f"relation:{relation}"
    ptr = dag.input_ptr if relation is None else dag.relations[relation].ptr
    source = dag.input_index if relation is None else dag.relations[relation].index
    target = torch.repeat_interleave(torch.arange(dag.num_nodes), ptr.diff())
    present = source >= 0
    data = Data(
        edge_index=torch.stack([source[present], target[present]]),
        num_nodes=dag.num_nodes,
        batch=dag.batch,
        depth=dag.depth,
        span=dag.span,
        output_index=dag.output_index,
        output_ptr=dag.output_ptr,
        origin=dag.origin,
        **dag.features(node_type),
        **dag.node_targets,
        **dag.columns["graph"],
    )
    for name, column in dag.columns[space].items():
        data[f"edge_{name}"] = column[present]
    return data


def from_pyg(data: Data, schema: Schema, relation: str | None = None) -> TypedDAG:
    """The inverse of `to_pyg`: a `Data` (or a batch of them) as a `TypedDAG`.

    Columns of the schema are read from the attributes of the same name, an absent one is missing.
    String columns have no counterpart there and must be absent from the schema.

    Raises:
        SchemaError: if a string column is asked for.
        GraphError: if `relation` is None and the edges have a cycle.
    """
    (type_name,) = _single_type(schema)
    num_nodes = int(data.num_nodes)
    batch = data.batch if data.get("batch") is not None else torch.zeros(num_nodes).long()
    num_graphs = int(data.get("num_graphs") or (int(batch[-1]) + 1 if num_nodes else 0))
    builder = GraphBuilder(schema)
    spaces = schema.spaces()
    node_columns = [c.name for c in (*spaces["node"], *spaces[f"type:{type_name}"])]
    edge_space = "inputs" if relation is None else f"relation:{relation}"
    edge_columns = {c.name: f"edge_{c.name}" for c in spaces[edge_space]}
    for graph in range(num_graphs):
        nodes = torch.nonzero(batch == graph).view(-1)
        first = int(nodes[0]) if len(nodes) else 0
        builder.nodes(type_name, len(nodes), **_taken(data, node_columns, nodes))
        edges = torch.nonzero(batch[data.edge_index[1]] == graph).view(-1)
        source, target = (data.edge_index[:, edges] - first).tolist()
        values = {name: data[key][edges] for name, key in edge_columns.items() if key in data}
        _set_edges(builder, relation, source, target, values)
        builder.output(*_outputs(data, graph, first, len(nodes)))
        line, record = data.origin[graph, 1:].tolist() if "origin" in data else (0, graph)
        graph_columns = [c.name for c in spaces["graph"]]
        row = torch.tensor([graph])
        taken = {k: v[0].tolist() for k, v in _taken(data, graph_columns, row).items()}
        builder.finish(line, record, **taken)
    return builder.build()


def _single_type(schema: Schema) -> tuple[str]:
    if len(schema.types) != 1:
        raise SchemaError(
            f"PyTorch Geometric's Data holds one node type, but the schema has "
            f"{len(schema.types)}. Use to_networkx, which keeps them."
        )
    return (schema.types[0].name,)


def _taken(data: Data, names: list[str], rows: Tensor) -> dict[str, Any]:
    return {name: data[name][rows] for name in names if name in data}


def _outputs(data: Data, graph: int, first: int, count: int) -> list[int]:
    if "output_index" not in data:
        return list(range(count))
    begin, end = data.output_ptr[graph : graph + 2].tolist()
    outputs: list[int] = (data.output_index[begin:end] - first).tolist()
    return outputs


def _set_edges(
    builder: GraphBuilder,
    relation: str | None,
    source: list[int],
    target: list[int],
    values: dict[str, Any],
) -> None:
    if relation is not None:
        builder.edges(relation, source, target, **values)
        return
    rows_of: dict[int, list[int]] = {}
    for row, node in enumerate(target):
        rows_of.setdefault(node, []).append(row)
    for node, rows in rows_of.items():
        builder.inputs(node, [source[r] for r in rows], **{k: v[rows] for k, v in values.items()})


def _set_inputs(
    builder: GraphBuilder, node: int, edges: list[tuple[int, int, dict[str, Any]]], arity: int
) -> None:
    """Inputs at their positions; a slot without an edge is absent."""
    length = max([arity, *(position + 1 for position, _, _ in edges)])
    slots: list[int | None] = [None] * length
    names = {k for _, _, data in edges for k in data if k not in ("kind", "position")}
    values: dict[str, list[Any]] = {name: [None] * length for name in names}
    for position, source, data in edges:
        slots[position] = source
        for name in names:
            values[name][position] = data.get(name)
    builder.inputs(node, slots, **values)


def _add_edges(graph: Any, dag: TypedDAG, space: str, ptr: Tensor, index: Tensor) -> None:
    kind = space.split(":", 1)[-1]
    target = torch.repeat_interleave(torch.arange(dag.num_nodes), ptr.diff())
    position = torch.arange(len(index)) - ptr[target]
    for row, (s, t, p) in enumerate(
        zip(index.tolist(), target.tolist(), position.tolist(), strict=True)
    ):
        if s >= 0:
            graph.add_edge(s, t, kind=kind, position=p, **_row(dag, space, row))


def _arity(dag: TypedDAG, node: int) -> int:
    return int(dag.input_ptr[node + 1] - dag.input_ptr[node])


def _row(dag: TypedDAG, space: str, row: int) -> dict[str, Any]:
    """One row's values; strings decoded, missing codes as None."""
    values: dict[str, Any] = {}
    for name, column in dag.columns[space].items():
        value: Any = column[row].tolist()
        if (space, name) in dag.dictionaries:
            value = None if value == MISSING else dag.dictionaries[space, name][value]
        values[name] = value
    return values


def _require_one_graph(dag: TypedDAG) -> None:
    if dag.num_graphs != 1:
        raise SchemaError(
            f"to_networkx takes one graph, not {dag.num_graphs}. Call it on each of split(dag)."
        )
