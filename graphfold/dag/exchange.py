"""To and from networkx and PyTorch Geometric."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor

from graphfold.dag.assemble import Columns, Dictionaries, encode_strings, to_tensor
from graphfold.dag.builder import GraphBuilder
from graphfold.dag.depth import compute_depth, run_numbers
from graphfold.dag.schema import MISSING, Column, Schema
from graphfold.dag.typed_dag import Relation, TypedDAG, pointers
from graphfold.dag.validate import validate
from graphfold.errors import GraphError, SchemaError, did_you_mean

if TYPE_CHECKING:
    import networkx as nx
    from torch_geometric.data import Data


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

    _require_one_graph(dag)
    file, line = dag.place(0)
    graph = nx.MultiDiGraph(
        outputs=dag.output_index.tolist(), file=file, line=line, record=int(dag.origin[0, 2])
    )
    graph.graph.update(_row(dag, "graph", 0, GRAPH))
    type_row = [0] * len(dag.schema.types)
    for node, op_type in enumerate(dag.op_type.tolist()):
        name = dag.schema.types[op_type].name
        graph.add_node(
            node, type=name, span=tuple(dag.span[node].tolist()), arity=_arity(dag, node)
        )
        graph.nodes[node].update(_row(dag, f"type:{name}", type_row[op_type], NODE))
        graph.nodes[node].update(_row(dag, "node", node, NODE))
        type_row[op_type] += 1
    _add_edges(graph, dag, "inputs", dag.input_ptr, dag.input_index)
    for name, relation in dag.relations.items():
        _add_edges(graph, dag, f"relation:{name}", relation.ptr, relation.index)
    return graph


def from_networkx(graph: nx.Graph, schema: Schema) -> TypedDAG:
    """The inverse of `to_networkx`; nodes may have any names and are numbered in their order.

    Of the attributes that `to_networkx` writes, a graph made elsewhere needs only those that cannot
    be known without them. A node's `type` may be absent where the schema has one type; an edge's
    `kind` where only one is possible: the single relation of an undirected graph, the inputs of a
    directed graph whose schema has no relation. Without `position` the inputs of a node are in the
    order of its edges, and without `outputs` every node is an output. An edge of an undirected
    graph is two edges of its relation, one in each direction. A column without its attribute is
    missing.

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
    """Column -> what its attribute holds; the attributes whose names are taken are left out."""
    return {
        name.removeprefix(_PREFIX) if name.replace(_PREFIX, "") in taken else name: value
        for name, value in attributes.items()
        if name not in taken
    }


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
    edge_space, num_nodes = _edge_space(relation), int(data.num_nodes or 0)
    batch = _integers(data, "batch", _zeros(num_nodes))
    num_graphs = getattr(data, "num_graphs", None) or len({0, *batch.tolist()})
    source, target = _integers(data, "edge_index", _zeros(2, 0), any_length=True)
    if ((target < 0) | (target >= num_nodes)).any():
        raise GraphError(f"'edge_index' names nodes beyond 0 .. {num_nodes - 1}. Correct it.")
    order = torch.argsort(target, stable=True)
    edges = Relation(pointers(torch.bincount(target, minlength=num_nodes)), source[order])
    none = Relation(_zeros(num_nodes + 1), source[:0])
    inputs = edges if relation is None else none
    counts = {edge_space: len(source), "graph": num_graphs, "node": num_nodes}
    counts[f"type:{schema.types[0].name}"] = num_nodes
    columns: Columns = {space: {} for space in schema.spaces()}
    dictionaries: Dictionaries = {}
    for space, own in schema.spaces().items():
        for column in own:
            columns[space][column.name] = _missing(column, counts.get(space, 0))
            if column.dtype == "string":
                dictionaries[space, column.name] = ()
    for key, (space, column) in attributes.items():
        if data.get(key) is None:
            continue
        if column.dtype == "string":
            codes, words = encode_strings(_texts(data[key], key, num_graphs))
            columns[space][column.name] = to_tensor(space, column, codes)
            dictionaries[space, column.name] = words
            continue
        rows = _column(data, key, space, column, counts[space])
        columns[space][column.name] = rows[order] if space == edge_space else rows
    every = torch.arange(num_nodes, device="cpu")
    outputs = _integers(data, "output_index", every, any_length=True)
    origin = _zeros(num_graphs, 3)
    origin[:, 2] = torch.arange(num_graphs, device="cpu")
    origin = _integers(data, "origin", origin).clone()
    origin[:, 0] = 0  # the names of the files are not in a Data
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
        origin=origin,
        columns=columns,
        relations={e.name: edges if e.name == relation else none for e in schema.relations},
        dictionaries=dictionaries,
        files=("",),
    )
    validate(dag)
    return dag


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

#: Source, target and attributes of an edge of networkx.
_Edge: TypeAlias = tuple[Any, Any, dict[str, Any]]


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


def is_many(data: object) -> bool:
    """True for a list, and for a data set, which may only be asked for its items by number."""
    is_plain = isinstance(data, str | bytes | Mapping)
    return not is_plain and (isinstance(data, Iterable) or hasattr(data, "__getitem__"))


def _one_data(data: object) -> Data:
    """A `Data` as it is, those of a data set as a `Batch`."""
    from torch_geometric.data import Batch, Data, HeteroData

    if isinstance(data, Data):
        return data
    is_one = isinstance(data, HeteroData) or not is_many(data)
    items: list[Any] = [data] if is_one else list(data)  # type: ignore[call-overload]
    if items and all(isinstance(item, Data) for item in items):
        return Batch.from_data_list(items)
    has_types = any(isinstance(item, HeteroData) for item in items)
    remedy = "Of HeteroData use from_hetero." if has_types else "Give a Data, or a list of them."
    raise SchemaError(f"from_pyg takes a Data or a Batch, not a {type(data).__name__}. {remedy}")


def _refuse_unread(data: Data, attributes: Mapping[str, Any], ignore: Sequence[str]) -> None:
    """Raises if a `Data` has an attribute that nothing reads: none is lost without a word."""
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
    """An attribute that holds integers of the shape of the default, which is for its absence."""
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


def _missing(column: Column, count: int) -> Tensor:
    """[count, *shape] missing values."""
    shape = (count, *column.shape)
    return torch.full(shape, column.missing, dtype=column.torch_dtype, device="cpu")


def _texts(value: Any, key: str, count: int) -> list[str | None]:
    """[count] the strings of graphs; those of a `Batch` are in a list for each graph."""
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


def _node_type(
    schema: Schema, name: Any, data: Mapping[str, Any], values: Mapping[str, Any]
) -> str:
    """The type of a node of networkx, whose `values` all are columns of that type."""
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


def _arity(dag: TypedDAG, node: int) -> int:
    return int(dag.input_ptr[node + 1] - dag.input_ptr[node])


def _row(dag: TypedDAG, space: str, row: int, taken: Collection[str]) -> dict[str, Any]:
    """One row's attributes; strings decoded, missing codes as None."""
    values: dict[str, Any] = {}
    for name, column in dag.columns[space].items():
        value: Any = column[row].tolist()
        if (space, name) in dag.dictionaries:
            value = None if value == MISSING else dag.dictionaries[space, name][value]
        values[attribute_of(name, taken)] = value
    return values


def _require_one_graph(dag: TypedDAG) -> None:
    if dag.num_graphs != 1:
        raise SchemaError(
            f"to_networkx takes one graph, not {dag.num_graphs}. Call it on each of split(dag)."
        )
