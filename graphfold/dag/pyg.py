"""Exchange with PyTorch Geometric: `Data`, graphs of one node type and one relation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from graphfold.dag.assemble import Columns, Dictionaries, encode_strings, to_tensor
from graphfold.dag.depth import compute_depth, run_numbers
from graphfold.dag.schema import DTYPES, Column, EdgeType, NodeType, Schema
from graphfold.dag.typed_dag import Relation, TypedDAG, pointers
from graphfold.dag.validate import validate
from graphfold.errors import GraphError, SchemaError, did_you_mean

if TYPE_CHECKING:
    from torch_geometric.data import Data


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
    schema: Schema | None = None,
    relation: str | None = None,
    ignore: Sequence[str] = (),
) -> TypedDAG:
    """The inverse of `to_pyg`: a `Data`, a `Batch` of them, or a data set, as a `TypedDAG`.

    Without a schema, nodes are of the type "node" and `edge_index` is the relation "edge". The
    attributes are features of nodes, of edges or of graphs, by their number of rows as PyTorch
    Geometric counts it, and `y` is a target; integers are codes from 0.

    With a schema, its columns are read from the attributes of their names, those of edges from
    "edge_" and the name; a column without its attribute is missing. A column of graphs may stand
    without the dimension of the graphs, as `y` [num_targets] of a `Data` does, and a number may be
    a row of one, a string without its list. Without `output_index` every node is an output.

    Args:
        data: the graphs.
        schema: what they consist of: one node type, strings of graphs alone; None for what the
            attributes say.
        relation: the relation that `edge_index` becomes; None for the inputs, or for "edge" without
            a schema.
        ignore: attributes that are left out on purpose.

    Raises:
        SchemaError: if the schema has no column for an attribute that is not ignored, or an
            attribute does not fit its column; or, without a schema, an attribute is no tensor of
            rows and no string of a graph, or codes are negative.
        GraphError: if `relation` is None and the edges have a cycle, or an edge or an output leads
            out of its graph.
    """
    data = _one_data(data)
    if schema is None:
        relation = relation or "edge"
        schema = _infer_schema(data, relation, ignore)
    attributes = _attributes(schema, relation, ignore)
    _refuse_unread(data, attributes, ignore)
    num_nodes = int(data.num_nodes or 0)
    batch = _integers(data, "batch", zeros(num_nodes))
    num_graphs = _count(data)
    edges, order = _edges(data, num_nodes)
    none = Relation(zeros(num_nodes + 1), edges.index[:0])
    inputs = edges if relation is None else none
    counts = {"graph": num_graphs, "node": num_nodes, f"type:{schema.types[0].name}": num_nodes}
    edge_space = _edge_space(relation)
    columns, dictionaries = _columns(data, schema, attributes, {**counts, edge_space: len(order)})
    columns[edge_space] = {name: rows[order] for name, rows in columns[edge_space].items()}
    every = torch.arange(num_nodes, device="cpu")
    outputs = _integers(data, "output_index", every, any_length=True)
    dag = TypedDAG(
        schema=schema,
        op_type=zeros(num_nodes),
        input_ptr=inputs.ptr,
        input_index=inputs.index,
        batch=batch,
        num_graphs=num_graphs,
        depth=compute_depth(inputs.ptr, inputs.index),
        output_ptr=pointers(torch.bincount(batch[outputs], minlength=num_graphs)),
        output_index=outputs[torch.argsort(batch[outputs], stable=True)],
        span=_integers(data, "span", zeros(num_nodes, 2) - 1),
        origin=_origin(data, num_graphs),
        columns=columns,
        relations={e.name: edges if e.name == relation else none for e in schema.relations},
        dictionaries=dictionaries,
        files=("",),
    )
    validate(dag)
    return dag


def _infer_schema(data: Data, relation: str, ignore: Sequence[str]) -> Schema:
    """The schema of graphs by their attributes; see `from_pyg`."""
    found: dict[str, list[Column]] = {"node": [], "edge": [], "graph": []}
    targets: dict[str, list[Column]] = {"node": [], "edge": [], "graph": []}
    for key in sorted({*data.keys()} - {*_OWN_ATTRIBUTES, *ignore}):
        level = "edge" if data.is_edge_attr(key) else "node" if data.is_node_attr(key) else "graph"
        if level == "edge" and not key.startswith("edge_"):
            raise SchemaError(
                f"'{key}' has a row for each edge, but attributes of edges are called edge_ and a "
                f"name. Rename it, or leave it out with ignore=['{key}']."
            )
        columns = targets if key in ("y", "edge_y") else found
        columns[level].append(_infer_column(data, key, level))
    return Schema(
        types=(NodeType("node", None, tuple(found["node"])),),
        relations=(EdgeType(relation, tuple(found["edge"]), tuple(targets["edge"])),),
        node_targets=tuple(targets["node"]),
        graph_features=tuple(found["graph"]),
        graph_targets=tuple(targets["graph"]),
    )


def _infer_column(data: Data, key: str, level: str) -> Column:
    """The column of an attribute; one of integers has as many codes as occur."""
    name, value = key.removeprefix("edge_") if level == "edge" else key, data[key]
    if level == "graph" and (isinstance(value, str) or _holds_text(value)):
        return Column(name, "string")
    kind = value.dtype if isinstance(value, Tensor) else None
    dtype = next((own for own in DTYPES if own != "string" and DTYPES[own] == kind), None)
    if dtype is None:
        raise SchemaError(
            f"'{key}' is {kind or f'a {type(value).__name__}'}, which no column holds. Make it a "
            f"tensor of one of {', '.join(DTYPES)}, or leave it out with ignore=['{key}']."
        )
    shape, size = value.shape[1:], None
    if level == "graph" and (not value.dim() or len(value) != _count(data)):
        shape = (value.numel() // _count(data),)  # joined along their first dimension by a Batch
    if dtype in ("int32", "int64") and value.numel():
        size = int(value.max()) + 1
        if int(value.min()) < 0:
            raise SchemaError(
                f"'{key}' has {int(value.min())}, but integers are codes from 0. Give a schema."
            )
    return Column(name, dtype, () if tuple(shape) == (1,) else tuple(shape), size=size)


def _count(data: Data) -> int:
    """The number of graphs: a `Batch` says it, of a `Data` its `batch` does."""
    graphs = [] if data.get("batch") is None else data["batch"].tolist()
    return getattr(data, "num_graphs", None) or len({0, *graphs})


def _holds_text(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


def _edges(data: Data, num_nodes: int) -> tuple[Relation, Tensor]:
    """The edges sorted by their target, and the order that sorts their columns."""
    source, target = _integers(data, "edge_index", zeros(2, 0), any_length=True)
    if ((target < 0) | (target >= num_nodes)).any():
        raise GraphError(f"'edge_index' names nodes beyond 0 .. {num_nodes - 1}. Correct it.")
    order = torch.argsort(target, stable=True)
    return Relation(pointers(torch.bincount(target, minlength=num_nodes)), source[order]), order


def _origin(data: Data, num_graphs: int) -> Tensor:
    """[num_graphs, 3] file, line and record; a `Data` does not have the names of the files."""
    origin = zeros(num_graphs, 3)
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


def is_many(data: object) -> bool:
    """True for a list, and for a data set, which may have no iterator, only items by number."""
    is_plain = isinstance(data, str | bytes | Mapping)
    return not is_plain and (isinstance(data, Iterable) or hasattr(data, "__getitem__"))


def _one_data(data: object) -> Data:
    """A `Data`, unchanged; the items of a list or a data set as a `Batch`."""
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


def zeros(*shape: int) -> Tensor:
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
