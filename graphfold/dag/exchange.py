"""Exchange with networkx."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor

from graphfold.dag.builder import GraphBuilder
from graphfold.dag.depth import run_numbers
from graphfold.dag.schema import MISSING, Schema
from graphfold.dag.typed_dag import TypedDAG
from graphfold.dag.validate import validate
from graphfold.errors import GraphError, SchemaError, did_you_mean

if TYPE_CHECKING:
    import networkx as nx

#: Source, target and attributes of an edge of networkx.
_Edge: TypeAlias = tuple[Any, Any, dict[str, Any]]


def to_networkx(dag: TypedDAG) -> nx.MultiDiGraph:
    """One graph as a `networkx.MultiDiGraph`.

    A node carries `type`, `span` and its features and targets; an edge carries `kind` ("inputs" or
    a relation), for inputs `position` (the slot among the node's inputs), and its columns. The
    graph's own attributes are its columns, `outputs`, `file`, `line` and `record`. A column that
    has the name of one of these is the attribute "column_" and its name.

    Raises:
        SchemaError: if `dag` holds more or less than one graph.
    """
    import networkx as nx

    require_one_graph(dag, "to_networkx")
    file, line = dag.place(0)
    graph = nx.MultiDiGraph(
        outputs=dag.output_index.tolist(), file=file, line=line, record=int(dag.origin[0, 2])
    )
    graph.graph.update(_row(dag, "graph", 0, GRAPH))
    arity = dag.input_ptr.diff().tolist()
    type_row = [0] * len(dag.schema.types)
    for node, op_type in enumerate(dag.op_type.tolist()):
        name = dag.schema.types[op_type].name
        graph.add_node(node, type=name, span=tuple(dag.span[node].tolist()), arity=arity[node])
        graph.nodes[node].update(_row(dag, f"type:{name}", type_row[op_type], NODE))
        graph.nodes[node].update(_row(dag, "node", node, NODE))
        type_row[op_type] += 1
    _add_edges(graph, dag, "inputs", dag.input_ptr, dag.input_index)
    for name, relation in dag.relations.items():
        _add_edges(graph, dag, f"relation:{name}", relation.ptr, relation.index)
    return graph


def from_networkx(graph: nx.Graph, schema: Schema) -> TypedDAG:
    """The inverse of `to_networkx`; nodes may have any names and are numbered in their order.

    A graph made elsewhere may lack attributes that `to_networkx` writes. A node's `type` may be
    absent where the schema has one type; an edge's `kind` where only one is possible: the single
    relation of an undirected graph, the inputs of a directed graph whose schema has no relation.
    Without `position` the inputs of a node are in the order of its edges, and without `outputs`
    every node is an output. An edge of an undirected graph is two edges of its relation, one in
    each direction. A column without its attribute is missing.

    Raises:
        SchemaError: if an attribute is not in the schema or does not fit its column, or one that is
            needed is absent.
        GraphError: if the inputs have a cycle, no direction or one position twice, or an output is
            no node.
    """
    import networkx as nx

    if not isinstance(graph, nx.Graph):
        raise SchemaError(
            f"from_networkx takes a graph of networkx, not a {type(graph).__name__}. "
            "Give a Graph, DiGraph, MultiGraph or MultiDiGraph."
        )
    builder = GraphBuilder(schema, graph.graph.get("file", ""))
    number = {name: index for index, name in enumerate(graph.nodes)}
    for name, data in graph.nodes(data=True):
        values = columns_of(data, NODE)
        node_type = _node_type(schema, name, data, values)
        builder.node(node_type, span=data.get("span", (-1, -1)), columns=values)
    inputs: dict[Any, list[_Edge]] = {name: [] for name in graph.nodes}
    relations: list[tuple[str, _Edge]] = []
    for edge in graph.to_directed(as_view=True).edges(data=True):
        kind = _edge_kind(schema, edge, graph.is_directed())
        if kind == "inputs":
            inputs[edge[1]].append(edge)
        else:
            relations.append((kind, edge))
    for name, edges in inputs.items():
        _set_inputs(builder, number, name, edges, graph.nodes[name].get("arity", 0))
    for kind, (source, target, data) in sorted(relations, key=lambda r: r[1][2].get("position", 0)):
        values = {name: [value] for name, value in columns_of(data, EDGE).items()}
        builder.edges(kind, [number[source]], [number[target]], columns=values)
    builder.output(*_networkx_outputs(graph, number))
    columns = columns_of(graph.graph, GRAPH)
    builder.finish(graph.graph.get("line", 0), graph.graph.get("record"), columns)
    dag = builder.build()
    validate(dag, is_built=True)
    return dag


#: Attributes of networkx by which a graph is put together: of graphs, nodes and edges.
GRAPH = ("outputs", "file", "line", "record")
NODE = ("type", "span", "arity")
EDGE = ("kind", "position")

_PREFIX = "column_"


def attribute_of(column: str, taken: Collection[str]) -> str:
    """The attribute that holds a column: its name, or that with a prefix where it is taken."""
    is_taken = column.replace(_PREFIX, "") in taken
    return f"{_PREFIX}{column}" if is_taken else column


def columns_of(attributes: Mapping[str, Any], taken: Collection[str]) -> dict[str, Any]:
    """Column -> the value of its attribute; attributes named in `taken` are no columns."""
    return {
        name.removeprefix(_PREFIX) if name.replace(_PREFIX, "") in taken else name: value
        for name, value in attributes.items()
        if name not in taken
    }


def _node_type(
    schema: Schema, name: Any, data: Mapping[str, Any], values: Mapping[str, Any]
) -> str:
    """The type of a node of networkx; refuses `values` that are no columns of that type."""
    types = [node_type.name for node_type in schema.types]
    node_type = data.get("type", types[0] if len(types) == 1 else None)
    if node_type not in types:
        fault = "no 'type'" if node_type is None else f"the type '{node_type}'"
        raise SchemaError(f"node {name!r} has {fault}. Set it to one of: {', '.join(types)}.")
    spaces = schema.spaces()
    columns = [column.name for column in (*spaces["node"], *spaces[f"type:{node_type}"])]
    for key in values:
        if key not in columns:
            raise SchemaError(
                f"node {name!r} has '{key}', which is no column of the type '{node_type}'."
                f"{did_you_mean(str(key), columns)} It has: {', '.join(columns) or 'none'}."
            )
    return str(node_type)


def _edge_kind(schema: Schema, edge: _Edge, is_directed: bool) -> str:
    """The kind of an edge of networkx: "inputs", or the name of a relation."""
    source, target, data = edge
    relations = [relation.name for relation in schema.relations]
    kinds = ["inputs", *relations]
    possible = relations if not is_directed else kinds
    kind = data.get("kind", possible[0] if len(possible) == 1 else None)
    if kind is None or kind not in kinds:
        fault = "no 'kind'" if kind is None else f"the kind '{kind}'"
        raise SchemaError(
            f"edge {source!r} - {target!r} has {fault}. Set it to one of: "
            f"{', '.join(possible) or 'inputs, in a DiGraph'}."
        )
    if kind == "inputs" and not is_directed:
        raise GraphError(
            f"edge {source!r} - {target!r} is an input without a direction. Use a DiGraph, with "
            "edges from the input to the node that reads it."
        )
    return str(kind)


def _networkx_outputs(graph: nx.Graph, number: Mapping[Any, int]) -> list[int]:
    outputs = graph.graph.get("outputs", list(graph.nodes))
    for name in outputs:
        if name not in number:
            raise GraphError(f"output {name!r} is not a node of the graph. Name one of its nodes.")
    return [number[name] for name in outputs]


def _set_inputs(
    builder: GraphBuilder, number: Mapping[Any, int], name: Any, edges: list[_Edge], arity: int
) -> None:
    """The inputs of one node at their positions; a slot without an edge is absent."""
    positions: list[Any] = [data.get("position") for _, _, data in edges]
    if all(position is None for position in positions):
        positions = list(range(len(edges)))
    is_place = [isinstance(place, int) and place >= 0 for place in positions]
    if not all(is_place) or len(set(positions)) < len(positions):
        raise GraphError(
            f"the inputs of node {name!r} have the positions {positions}. Give each its own, from "
            "0 on, or give none of them one."
        )
    length = max([arity, *(position + 1 for position in positions)])
    slots: list[int | None] = [None] * length
    values: dict[str, list[Any]] = {}
    for position, (source, _, data) in zip(positions, edges, strict=True):
        slots[position] = number[source]
        for column, value in columns_of(data, EDGE).items():
            values.setdefault(column, [None] * length)[position] = value
    builder.inputs(number[name], slots, columns=values)


def _add_edges(graph: Any, dag: TypedDAG, space: str, ptr: Tensor, index: Tensor) -> None:
    kind = space.split(":", 1)[-1]
    target = torch.from_numpy(run_numbers(ptr.numpy()))
    position = torch.arange(len(index), device="cpu") - ptr[target]
    for row, (s, t, p) in enumerate(
        zip(index.tolist(), target.tolist(), position.tolist(), strict=True)
    ):
        if s >= 0:
            key = graph.add_edge(s, t, kind=kind, position=p)
            graph.edges[s, t, key].update(_row(dag, space, row, EDGE))


def _row(dag: TypedDAG, space: str, row: int, taken: Collection[str]) -> dict[str, Any]:
    """One row's attributes; strings decoded, missing codes as None."""
    values: dict[str, Any] = {}
    for name, column in dag.columns[space].items():
        value: Any = column[row].tolist()
        if (space, name) in dag.dictionaries:
            value = None if value == MISSING else dag.dictionaries[space, name][value]
        values[attribute_of(name, taken)] = value
    return values


def require_one_graph(dag: TypedDAG, function: str) -> None:
    """Raises SchemaError, in the name of a function, for several graphs or none."""
    if dag.num_graphs != 1:
        raise SchemaError(
            f"{function} takes one graph, not {dag.num_graphs}. Call it on each of split(dag)."
        )
