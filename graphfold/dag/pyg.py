"""Exchange with PyTorch Geometric: `Data` of one node type, and `HeteroData` of several.

`from_hetero` leads over networkx, whose exchange checks every attribute against the schema.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor

from graphfold.dag.assemble import Columns, Dictionaries, encode_strings, to_tensor
from graphfold.dag.builder import GraphBuilder
from graphfold.dag.collate import collate
from graphfold.dag.depth import compute_depth, run_numbers
from graphfold.dag.exchange import (
    EDGE,
    GRAPH,
    NODE,
    attribute_of,
    columns_of,
    from_networkx,
    require_one_graph,
)
from graphfold.dag.schema import Column, Schema
from graphfold.dag.typed_dag import Relation, TypedDAG, pointers
from graphfold.dag.validate import validate
from graphfold.errors import GraphError, SchemaError, did_you_mean

if TYPE_CHECKING:
    import networkx as nx
    from torch_geometric.data import Data, HeteroData


def to_pyg(dag: TypedDAG, relation: str | None = None, ignore: Sequence[str] = ()) -> Data:
    """One or more graphs of a single relation as a PyTorch Geometric `Data`.

    `edge_index` [2, num_edges] has the source in row 0. It is derived from the relation, or from
    the inputs (child -> parent) where `relation` is None; the other edges are left out. Feature and
    target columns keep their names; the columns of the edges get the prefix "edge_". Strings of
    graphs, such as `smiles`, are a list.

    Args:
        dag: the graphs.
        relation: the relation that becomes `edge_index`; None for the inputs.
        ignore: attributes that are left out on purpose.

    Raises:
        SchemaError: if `Data` cannot hold the graphs: several node types, strings of nodes or
            edges, absent slots of inputs, or two columns under one name.
    """
    from torch_geometric.data import Data

    attributes = _attributes(dag.schema, relation, ignore)
    ptr, source = dag.input_ptr, dag.input_index
    if relation is not None:
        ptr, source = dag.relations[relation].ptr, dag.relations[relation].index
    if (source < 0).any():
        raise SchemaError(
            "PyTorch Geometric's Data cannot hold an absent slot of inputs. Use to_networkx, which "
            "keeps it."
        )
    data = Data(
        edge_index=torch.stack([source, torch.from_numpy(run_numbers(ptr.numpy()))]),
        num_nodes=dag.num_nodes,
        batch=dag.batch,
        depth=dag.depth,
        span=dag.span,
        output_index=dag.output_index,
        output_ptr=dag.output_ptr,
        origin=dag.origin,
    )
    for key, (space, column) in attributes.items():
        is_text = column.dtype == "string"
        name = column.name
        data[key] = dag.strings(space, name) if is_text else dag.columns[space][name]
    return data


def from_pyg(
    data: Data | Iterable[Data],
    schema: Schema,
    relation: str | None = None,
    ignore: Sequence[str] = (),
) -> TypedDAG:
    """The inverse of `to_pyg`: a `Data`, a `Batch` of them, or a data set, as a `TypedDAG`.

    A column of the schema is read from the attribute of its name, a column of the edges from
    "edge_" and its name; a column without its attribute is missing. A column of graphs may stand
    without the dimension of the graphs, as `y` [num_targets] of a `Data` does, and a number may be
    a row of one, a string without its list. Without `output_index` every node is an output.

    Args:
        data: the graphs.
        schema: what they consist of: one node type, strings of graphs alone.
        relation: the relation that `edge_index` becomes; None for the inputs.
        ignore: attributes that are left out on purpose.

    Raises:
        SchemaError: if the schema has no column for an attribute that is not ignored, or an
            attribute does not fit its column.
        GraphError: if `relation` is None and the edges have a cycle, or an edge or an output leads
            out of its graph.
    """
    attributes = _attributes(schema, relation, ignore)
    data = _one_data(data)
    _refuse_unread(data, attributes, ignore)
    num_nodes = int(data.num_nodes or 0)
    batch = _integers(data, "batch", _zeros(num_nodes))
    num_graphs = getattr(data, "num_graphs", None) or len({0, *batch.tolist()})
    edges, order = _edges(data, num_nodes)
    none = Relation(_zeros(num_nodes + 1), edges.index[:0])
    inputs = edges if relation is None else none
    counts = {"graph": num_graphs, "node": num_nodes, f"type:{schema.types[0].name}": num_nodes}
    edge_space = _edge_space(relation)
    columns, dictionaries = _columns(data, schema, attributes, {**counts, edge_space: len(order)})
    columns[edge_space] = {name: rows[order] for name, rows in columns[edge_space].items()}
    every = torch.arange(num_nodes, device="cpu")
    outputs = _integers(data, "output_index", every, any_length=True)
    dag = TypedDAG(
        schema=schema,
        op_type=_zeros(num_nodes),
        input_ptr=inputs.ptr,
        input_index=inputs.index,
        batch=batch,
        num_graphs=num_graphs,
        depth=compute_depth(inputs.ptr, inputs.index),
        output_ptr=pointers(torch.bincount(batch[outputs], minlength=num_graphs)),
        output_index=outputs[torch.argsort(batch[outputs], stable=True)],
        span=_integers(data, "span", _zeros(num_nodes, 2) - 1),
        origin=_origin(data, num_graphs),
        columns=columns,
        relations={e.name: edges if e.name == relation else none for e in schema.relations},
        dictionaries=dictionaries,
        files=("",),
    )
    validate(dag)
    return dag


def _edges(data: Data, num_nodes: int) -> tuple[Relation, Tensor]:
    """The edges sorted by their target, and the order that sorts their columns."""
    source, target = _integers(data, "edge_index", _zeros(2, 0), any_length=True)
    if ((target < 0) | (target >= num_nodes)).any():
        raise GraphError(f"'edge_index' names nodes beyond 0 .. {num_nodes - 1}. Correct it.")
    order = torch.argsort(target, stable=True)
    return Relation(pointers(torch.bincount(target, minlength=num_nodes)), source[order]), order


def _origin(data: Data, num_graphs: int) -> Tensor:
    """[num_graphs, 3] file, line and record; a `Data` does not have the names of the files."""
    origin = _zeros(num_graphs, 3)
    origin[:, 2] = torch.arange(num_graphs, device="cpu")
    origin = _integers(data, "origin", origin).clone()
    origin[:, 0] = 0
    return origin


def _columns(
    data: Data,
    schema: Schema,
    attributes: Mapping[str, tuple[str, Column]],
    counts: Mapping[str, int],
) -> tuple[Columns, Dictionaries]:
    """All columns of the schema; missing values where `data` lacks the attribute.

    Args:
        data: the graphs.
        schema: of the graphs.
        attributes: the attribute of each column, with its space.
        counts: space -> number of rows; 0 for the others.
    """
    columns: Columns = {}
    dictionaries: Dictionaries = {}
    key_of = {place: key for key, place in attributes.items()}
    # A fault in a type's columns first: a `Data` may count its nodes by their rows.
    for space, group in reversed(schema.spaces().items()):
        columns[space] = {}
        for column in group:
            key, count = key_of.get((space, column), ""), counts.get(space, 0)
            is_absent = data.get(key) is None
            if column.dtype == "string":
                texts: list[str | None] = [None] * count
                if not is_absent:
                    texts = _texts(data[key], key, count)
                codes, dictionaries[space, column.name] = encode_strings(texts)
                rows = to_tensor(space, column, codes)
            elif is_absent:
                rows = to_tensor(space, column, [None] * count)
            else:
                rows = _column(data, key, space, column, count)
            columns[space][column.name] = rows
    return columns, dictionaries


#: What `to_pyg` gives a `Data` beside its columns, and what PyTorch Geometric gives a `Batch`.
_OWN_ATTRIBUTES = (
    "edge_index",
    "num_nodes",
    "batch",
    "ptr",
    "depth",
    "span",
    "output_index",
    "output_ptr",
    "origin",
)


def _attributes(
    schema: Schema, relation: str | None, ignore: Sequence[str]
) -> dict[str, tuple[str, Column]]:
    """The attribute of a `Data` that holds each column, with the column and its space.

    `Batch` adds numbers of nodes to attributes that are called after an index or a batch.
    """
    if len(schema.types) != 1:
        raise SchemaError(
            f"PyTorch Geometric's Data holds one node type, but the schema has "
            f"{len(schema.types)}. Use to_hetero or to_networkx, which keep them."
        )
    if relation is not None:
        schema.relation(relation)  # refuses an unknown one
    edge_space = _edge_space(relation)
    attributes: dict[str, tuple[str, Column]] = {}
    spaces = schema.spaces()
    for space in (f"type:{schema.types[0].name}", "node", "graph", edge_space):
        for column in spaces[space]:
            key = f"edge_{column.name}" if space == edge_space else column.name
            if key in ignore:
                continue
            if column.dtype == "string" and space != "graph":
                raise SchemaError(
                    f"column '{column.name}' of {space} holds strings, which a Data of PyTorch "
                    f"Geometric cannot. Leave it out with ignore=['{key}']."
                )
            is_shifted = "index" in key or "batch" in key or key == "face"
            if key in attributes or key in _OWN_ATTRIBUTES or is_shifted:
                raise SchemaError(
                    f"column '{column.name}' of {space} needs the attribute '{key}' of a Data, "
                    "which holds something else, or to which a Batch adds numbers of nodes. Rename "
                    f"the column, or leave it out with ignore=['{key}']."
                )
            attributes[key] = space, column
    return attributes


def _edge_space(relation: str | None) -> str:
    return "inputs" if relation is None else f"relation:{relation}"


def _is_many(data: object) -> bool:
    """True for a list, and for a data set, which may have no iterator, only items by number."""
    is_plain = isinstance(data, str | bytes | Mapping)
    return not is_plain and (isinstance(data, Iterable) or hasattr(data, "__getitem__"))


def _one_data(data: object) -> Data:
    """A `Data`, unchanged; the items of a list or a data set as a `Batch`."""
    from torch_geometric.data import Batch, Data, HeteroData

    if isinstance(data, Data):
        return data
    is_one = isinstance(data, HeteroData) or not _is_many(data)
    items: list[Any] = [data] if is_one else list(data)  # type: ignore[call-overload]
    if items and all(isinstance(item, Data) for item in items):
        return Batch.from_data_list(items)
    has_types = any(isinstance(item, HeteroData) for item in items)
    remedy = "Of HeteroData use from_hetero." if has_types else "Give a Data, or a list of them."
    raise SchemaError(f"from_pyg takes a Data or a Batch, not a {type(data).__name__}. {remedy}")


def _refuse_unread(data: Data, attributes: Mapping[str, Any], ignore: Sequence[str]) -> None:
    """Raises SchemaError for an attribute that is no column and is not ignored."""
    unread = sorted({*data.keys()} - {*attributes, *_OWN_ATTRIBUTES, *ignore})
    if unread:
        hint = did_you_mean(unread[0], (key for key in attributes if key not in data))
        names = ", ".join(f"'{name}'" for name in unread)
        raise SchemaError(
            f"{type(data).__name__} has {names}, for which there is no column.{hint} Add columns, "
            f"or leave the attributes out with ignore={unread}.",
            attributes=unread,
        )


def _integers(data: Data, key: str, default: Tensor, *, any_length: bool = False) -> Tensor:
    """An attribute of integers in the shape of `default`; the default where it is absent."""
    if data.get(key) is None:
        return default
    value = torch.as_tensor(data[key], device="cpu").detach()
    want = [*default.shape[:-1], "any"] if any_length else [*default.shape]
    shape = [*value.shape[:-1], "any"] if any_length else [*value.shape]
    if shape != want or value.is_floating_point():
        raise SchemaError(
            f"'{key}' is {value.dtype}{list(value.shape)}, but it has to be integers of the shape "
            f"[{', '.join(map(str, want))}]. Correct it."
        )
    return value.long()


def _zeros(*shape: int) -> Tensor:
    return torch.zeros(shape, dtype=torch.int64, device="cpu")


def _texts(value: Any, key: str, count: int) -> list[str | None]:
    """[count] the strings of graphs; a `Batch` has a list of them for each graph."""
    items = [value] if isinstance(value, str) else value
    if isinstance(items, list):
        items = [text for item in items for text in (item if isinstance(item, list) else [item])]
        if len(items) == count and all(isinstance(text, str | None) for text in items):
            return items
    raise SchemaError(
        f"'{key}' is {value!r:.80}, but {count} graphs need a string each. Correct it."
    )


def _column(data: Data, key: str, space: str, column: Column, count: int) -> Tensor:
    """[count, *shape] a column out of an attribute, which may lack the dimension of the graphs."""
    want = (count, *column.shape)
    fault = f"column '{column.name}' of {space} is {column.dtype}{list(want)}"
    try:
        value = torch.as_tensor(data[key], device="cpu").detach()
    except (TypeError, ValueError, RuntimeError) as error:
        kind = type(data[key]).__name__
        raise SchemaError(f"'{key}' is a {kind}, but {fault}. Give a tensor.") from error
    shapes = [want] if column.shape else [want, (count, 1)]
    if space == "graph" and column.shape:  # joined along their first dimension by a Batch
        shapes.append((count * column.shape[0], *column.shape[1:]))
    elif space == "graph" and count == 1:
        shapes.append(())
    if tuple(value.shape) not in shapes:
        raise SchemaError(f"'{key}' has the shape {list(value.shape)}, but {fault}. Correct it.")
    rows = value.reshape(want).to(column.torch_dtype)
    if not rows.is_floating_point() and not torch.equal(rows.to(value.dtype), value.reshape(want)):
        raise SchemaError(f"'{key}' is {value.dtype} with values that {fault}, cannot hold.")
    return rows


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
    row, place = _zeros(dag.num_nodes), _zeros(dag.num_nodes) - 1
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
    _store_columns(data, _PLACE, dag, "graph", _zeros(1))
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
        if not _is_many(data):
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
