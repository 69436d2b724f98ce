"""Exchange with PyTorch Geometric: `HeteroData`, one graph of several node types.

`from_hetero` leads over networkx, whose exchange checks every attribute against the schema.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor

from graphfold.dag.builder import GraphBuilder
from graphfold.dag.collate import collate
from graphfold.dag.depth import run_numbers
from graphfold.dag.exchange import (
    EDGE,
    GRAPH,
    NODE,
    attribute_of,
    columns_of,
    from_networkx,
    require_one_graph,
)
from graphfold.dag.pyg import is_many, zeros
from graphfold.dag.schema import Column, Schema
from graphfold.dag.typed_dag import Relation, TypedDAG
from graphfold.errors import GraphError, SchemaError, did_you_mean

if TYPE_CHECKING:
    import networkx as nx
    from torch_geometric.data import HeteroData

#: Where a graph comes from.
_PLACE = ("file", "line", "record")

#: What nodes and edges have beside their columns.
_OF_NODE = ("node", "span", "arity", "output", "num_nodes", "batch", "ptr")
_OF_EDGE = ("edge_index", "position")

#: Source type, kind and target type of edges.
EdgeKey: TypeAlias = tuple[str, str, str]

_Spaces: TypeAlias = Mapping[str, tuple[Column, ...]]


def to_hetero(dag: TypedDAG, edge_types: Iterable[EdgeKey] = ()) -> HeteroData:
    """One graph as a `HeteroData`.

    Nodes stand under the name of their type, edges under (source type, kind, target type), where
    the kind is "inputs" (child -> parent) or the name of a relation. Columns keep their names;
    strings are lists. Beside them, nodes have `node` (their number in the graph), `span`, `arity`
    (their slots of inputs) and `output` (the place among the outputs; -1 for none), edges have
    `position` (the slot among the inputs, or among the edges into the node), the graph `file`,
    `line` and `record`. A column that has the name of one of these has "column_" before it.

    Args:
        dag: the graph.
        edge_types: (source type, kind, target type) of edges that are stored even if there are
            none: PyTorch Geometric joins graphs in a `Batch` only if all have the same.

    Raises:
        SchemaError: if `dag` holds more or less than one graph.
    """
    from torch_geometric.data import HeteroData

    require_one_graph(dag, "to_hetero")
    edge_types = {*edge_types}
    data, names = HeteroData(), [kind.name for kind in dag.schema.types]
    row, place = zeros(dag.num_nodes), zeros(dag.num_nodes) - 1
    place[dag.output_index] = torch.arange(len(dag.output_index), device="cpu")
    for name in names:
        store, nodes = data[name], dag.nodes_of_type(name)
        row[nodes] = torch.arange(len(nodes), device="cpu")
        store.num_nodes, store.node, store.output = len(nodes), nodes, place[nodes]
        store.arity, store.span = dag.input_ptr.diff()[nodes], dag.span[nodes]
        _store_columns(store, _OF_NODE, dag, f"type:{name}", row[nodes])
        _store_columns(store, _OF_NODE, dag, "node", nodes)
    relations = {"inputs": Relation(dag.input_ptr, dag.input_index), **dag.relations}
    for kind, edges in relations.items():
        space = kind if kind == "inputs" else f"relation:{kind}"
        source, targets = edges.index, torch.from_numpy(run_numbers(edges.ptr.numpy()))
        for first, second in product(range(len(names)), repeat=2):
            is_here = (dag.op_type[source] == first) & (dag.op_type[targets] == second)
            chosen = (is_here & (source >= 0)).nonzero().view(-1)
            key = names[first], kind, names[second]
            if len(chosen) or key in edge_types:
                chosen = chosen[source[chosen].argsort(stable=True)]
                store, target = data[key], targets[chosen]
                store.edge_index = torch.stack([row[source[chosen]], row[target]])
                store.position = chosen - edges.ptr[target]
                _store_columns(store, _OF_EDGE, dag, space, chosen)
    _store_columns(data, _PLACE, dag, "graph", zeros(1))
    (data.file, data.line), data.record = dag.place(0), int(dag.origin[0, 2])
    return data


def _store_columns(
    store: Any, taken: Collection[str], dag: TypedDAG, space: str, rows: Tensor
) -> None:
    """Writes some rows of the columns of a space into attributes; strings are lists."""
    for name, column in dag.columns[space].items():
        values: Any = column[rows]
        if (space, name) in dag.dictionaries:
            strings = dag.strings(space, name)
            values = [strings[row] for row in rows.tolist()]
        store[attribute_of(name, taken)] = values


def from_hetero(
    data: HeteroData | Iterable[HeteroData], schema: Schema, ignore: Sequence[str] = ()
) -> TypedDAG:
    """The inverse of `to_hetero`: a `HeteroData`, a `Batch` of them, or a data set.

    Graphs made elsewhere need their columns and `edge_index` alone. Without `node`, nodes are
    numbered type by type, in the order of the schema; without `position`, inputs are in the order
    of their edges; without `output` every node is an output. A column of graphs has one row, and a
    number may be a row of one. A column without its attribute is missing.

    Args:
        data: the graphs.
        schema: what they consist of.
        ignore: attributes that are left out on purpose, wherever they stand.

    Raises:
        SchemaError: if the schema lacks a type, a kind of edges, or a column for an attribute that
            is not ignored, or an attribute does not fit its column.
        GraphError: if the inputs have a cycle, or an edge names a node that is not there.
    """
    from torch_geometric.data import Batch, HeteroData

    if isinstance(data, Batch):
        data = data.to_data_list()
    if not isinstance(data, HeteroData):
        if not is_many(data):
            raise SchemaError(
                f"from_hetero takes a HeteroData or several, not a {type(data).__name__}. Of Data "
                "use from_pyg."
            )
        parts = [from_hetero(item, schema, ignore) for item in data]
        return collate(parts) if parts else GraphBuilder(schema).build()
    return from_networkx(_to_graph(data, schema, set(ignore)), schema)


def _to_graph(data: HeteroData, schema: Schema, ignored: set[str]) -> nx.MultiDiGraph:
    """The graph as `to_networkx` has it; nodes are called (type, row)."""
    import networkx as nx

    spaces = schema.spaces()
    stores: dict[Any, dict[str, Any]] = {
        key: {name: value for name, value in store.items() if name not in ignored}
        for key, store in data.to_dict().items()
    }
    names = [kind.name for kind in schema.types]
    for name in data.node_types:
        if name not in names:
            raise SchemaError(
                f"HeteroData has nodes of the type '{name}', which the schema lacks."
                f"{did_you_mean(name, names)} It has: {', '.join(names)}."
            )
    facts = stores["_global_store"]
    graph = nx.MultiDiGraph(**{name: facts[name] for name in _PLACE if name in facts})
    rows = _table(columns_of(facts, _PLACE), spaces["graph"], 1, GRAPH)
    graph.graph.update({name: values[0] for name, values in rows.items()})
    present = [name for name in names if name in data.node_types]
    _add_nodes(graph, {name: stores[name] for name in present}, spaces)
    _add_edges(graph, {key: stores[key] for key in data.edge_types}, spaces)
    return graph


def _add_nodes(
    graph: nx.MultiDiGraph, stores: Mapping[str, Mapping[str, Any]], spaces: _Spaces
) -> None:
    """The nodes in the order of their numbers, and the outputs."""
    nodes: list[tuple[int, tuple[str, int], dict[str, Any]]] = []
    outputs: dict[int, tuple[str, int]] = {}
    for kind, store in stores.items():
        count = _num_nodes(kind, store)
        columns = (*spaces[f"type:{kind}"], *spaces["node"])
        table = _table(columns_of(store, _OF_NODE), columns, count, NODE)
        names = [name for name in ("node", "output", "span", "arity") if name in store]
        place = _table({name: store[name] for name in names}, (), count)
        numbers = place.pop("node", range(len(nodes), len(nodes) + count))
        outputs |= {n: (kind, row) for row, n in enumerate(place.pop("output", ())) if n >= 0}
        for row, number in enumerate(numbers):
            values = {name: rows[row] for name, rows in (table | place).items()}
            nodes.append((number, (kind, row), values))
    for _, node, values in sorted(nodes, key=lambda item: item[0]):
        graph.add_node(node, type=node[0])
        graph.nodes[node].update(values)
    if outputs:
        graph.graph["outputs"] = [outputs[number] for number in sorted(outputs)]


def _add_edges(
    graph: nx.MultiDiGraph, stores: Mapping[EdgeKey, Mapping[str, Any]], spaces: _Spaces
) -> None:
    """The edges with their positions; without them, in the order in which they stand."""
    count: Counter[Any] = Counter()  # networkx has its own order of edges
    for (source_type, kind, target_type), store in stores.items():
        index = torch.as_tensor(store["edge_index"], device="cpu").tolist()
        space = "inputs" if kind == "inputs" else f"relation:{kind}"
        size = len(index[0])
        table = _table(columns_of(store, _OF_EDGE), spaces.get(space, ()), size, EDGE)
        if "position" in store:
            table |= _table({"position": store["position"]}, (), size)
        for number, (source, target) in enumerate(zip(*index, strict=True)):
            ends = (source_type, source), (target_type, target)
            for end in ends:
                if end not in graph:
                    raise GraphError(
                        f"an edge of '{kind}' names the node {end[1]} of the type '{end[0]}', "
                        "which is not there. Number nodes within their type, from 0."
                    )
            place = kind, ends[1] if kind == "inputs" else None
            values = {name: rows[number] for name, rows in table.items()}
            edge = graph.add_edge(*ends, kind=kind, position=count[place])
            graph.edges[(*ends, edge)].update(values)
            count[place] += 1


def _table(
    values: Mapping[str, Any],
    columns: Iterable[Column],
    count: int,
    taken: Collection[str] = (),
) -> dict[str, Sequence[Any]]:
    """The rows of each column as plain values, by the attribute of networkx that holds them."""
    by_name = {column.name: column for column in columns}
    return {
        attribute_of(name, taken): _rows(name, value, by_name, count)
        for name, value in values.items()
    }


def _num_nodes(kind: str, store: Mapping[str, Any]) -> int:
    """The number of nodes of a type: `num_nodes`, else the rows of an attribute."""
    lengths = [len(value) for value in store.values() if hasattr(value, "__len__") and len(value)]
    count = store.get("num_nodes", lengths[0] if lengths else None)
    if count is None:
        raise SchemaError(
            f"HeteroData does not say how many nodes of the type '{kind}' it has. Set "
            f"data['{kind}'].num_nodes."
        )
    return int(count)


def _rows(name: str, value: Any, columns: Mapping[str, Column], count: int) -> list[Any]:
    """The rows of an attribute as plain values."""
    rows = value
    if isinstance(value, Tensor) or hasattr(value, "tolist"):
        rows = torch.as_tensor(value, device="cpu").detach()
        shape = columns[name].shape if name in columns else tuple(rows.shape[1:])
        if rows.numel() == count * torch.Size(shape).numel() and name in columns:
            rows = rows.reshape(count, *shape)  # a number may be a row of one
        rows = rows.tolist()
    if count == 1 and not isinstance(rows, list):
        rows = [rows]
    if not isinstance(rows, list) or len(rows) != count:
        what = f"{len(rows)} rows" if isinstance(rows, list) else f"a {type(value).__name__}"
        raise SchemaError(f"'{name}' has {what} for {count}. Give one row for each.")
    return rows
