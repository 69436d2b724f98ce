"""Graphs for tests: random ones of any schema, and the shapes that break things."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

from graphfold.dag import Column, EdgeType, GraphBuilder, NodeType, Relation, Schema, TypedDAG
from graphfold.dag.typed_dag import pointers, ragged_arange

#: Leaves, ordered pairs, phrases of any arity, and a relation: a bit of everything.
MIXED_SCHEMA = Schema(
    types=(
        NodeType("word", 0, (Column("form", "int64", size=5),)),
        NodeType("phrase", None),
        NodeType("pair", 2, (Column("weight"), Column("flag", "bool"))),
    ),
    inputs=EdgeType("inputs", (Column("label", "int64", size=3),)),
    relations=(EdgeType("next", (Column("kind", "int64", size=4), Column("length"))),),
    node_targets=(Column("tag", "int64", size=3),),
    graph_features=(Column("text", "string"),),
    graph_targets=(Column("score"), Column("answer", "int64", size=4)),
)


@st.composite
def dags(
    draw: st.DrawFn,
    schema: Schema = MIXED_SCHEMA,
    min_graphs: int = 1,
    max_graphs: int = 3,
    max_nodes: int = 7,
    max_arity: int = 3,
    absent: bool = False,
    missing: bool = True,
    symmetric: bool = False,
    outputs: str = "last",
) -> TypedDAG:
    """Random graphs of a schema: mixed types, shared children, any order of edges.

    Args:
        draw: given by hypothesis.
        schema: what the graphs consist of.
        min_graphs: the fewest graphs.
        max_graphs: the most graphs.
        max_nodes: the most nodes of one graph.
        max_arity: the most inputs of a node whose type may have any number.
        absent: whether slots of a fixed arity may be left absent.
        missing: whether targets may be missing.
        symmetric: whether each edge of a relation comes with its reverse, no edge leads from a
            node to itself, and no two edges are equal.
        outputs: "last", the last node; "some", a few nodes; "all", every node.
    """
    builder = GraphBuilder(schema, "random")
    for line in range(draw(st.integers(min_graphs, max_graphs))):
        count = draw(st.integers(1, max_nodes))
        names: list[str] = []
        for _ in range(count):
            names.append(_draw_node(draw, builder, names, max_arity, absent, missing))
        for relation in schema.relations:
            _draw_edges(draw, builder, relation, symmetric)
        nodes = list(range(builder.num_nodes))
        if outputs == "some":
            nodes = draw(st.lists(st.sampled_from(nodes), min_size=1, max_size=3))
        builder.output(*(nodes[-1:] if outputs == "last" else nodes))
        features = {c.name: draw(values(c)) for c in schema.graph_features}
        targets = {c.name: draw(values(c, missing)) for c in schema.graph_targets}
        builder.finish(line=line + 1, **features, **targets)
    return builder.build()


def values(column: Column, missing: bool = False) -> st.SearchStrategy[Any]:
    """Values of one row of a column; None for a missing one."""
    if column.shape:
        flat = values(replace(column, shape=()))
        size = int(torch.tensor(column.shape).prod())
        lists = st.lists(flat, min_size=size, max_size=size)
        one: st.SearchStrategy[Any] = lists.map(lambda v: torch.tensor(v).view(column.shape))
    elif column.dtype == "string":
        one = st.sampled_from(["a", "b", "ü", " "])
    elif column.dtype == "bool":
        one = st.booleans()
    elif column.dtype.startswith("float"):
        one = st.integers(-8, 8).map(lambda number: number / 4)
    else:
        one = st.integers(0, (column.size or 3) - 1)
    return one | st.none() if missing else one


def _draw_node(
    draw: st.DrawFn,
    builder: GraphBuilder,
    names: list[str],
    max_arity: int,
    absent: bool,
    missing: bool,
) -> str:
    """Adds a node of any type that can have its inputs by now; returns its type.

    Args:
        names: the types of the nodes so far.
    """
    schema, count = builder.schema, builder.num_nodes
    possible = [t for t in schema.types if not t.arity or _candidates(t, names)]
    node_type = draw(st.sampled_from(possible))
    candidates = _candidates(node_type, names)
    slots = node_type.arity
    if slots is None:
        slots = draw(st.integers(0, max_arity if candidates else 0))
    choices = st.sampled_from([*candidates, None] if absent and node_type.arity else candidates)
    inputs = [draw(choices) for _ in range(slots)]
    columns = {c.name: draw(values(c)) for c in node_type.features}
    columns |= {c.name: draw(values(c, missing)) for c in schema.node_targets}
    node = builder.node(node_type.name, span=(count, count + 1), **columns)
    edge = schema.inputs.features + schema.inputs.targets
    builder.inputs(node, inputs, **{c.name: [draw(values(c)) for _ in inputs] for c in edge})
    return node_type.name


def _candidates(node_type: NodeType, names: list[str]) -> list[int]:
    """The nodes that a node of this type may read."""
    allowed = node_type.inputs
    return [n for n, name in enumerate(names) if allowed is None or name in allowed]


def _draw_edges(
    draw: st.DrawFn, builder: GraphBuilder, relation: EdgeType, symmetric: bool
) -> None:
    node = st.integers(0, builder.num_nodes - 1)
    pairs = draw(st.lists(st.tuples(node, node), max_size=2 * builder.num_nodes))
    columns = relation.features + relation.targets
    if symmetric:
        pairs = sorted({(min(pair), max(pair)) for pair in pairs if pair[0] != pair[1]})
    rows = {c.name: [draw(values(c)) for _ in pairs] for c in columns}
    if symmetric:
        pairs = pairs + [(target, source) for source, target in pairs]
        rows = {name: column + column for name, column in rows.items()}
    builder.edges(relation.name, [p[0] for p in pairs], [p[1] for p in pairs], **rows)


def chain(schema: Schema, leaf: str, inner: str, length: int) -> TypedDAG:
    """A leaf, and `length` nodes one upon the other, each with one input."""
    builder = GraphBuilder(schema, "chain")
    builder.nodes(leaf, 1, **_zeros(schema, leaf, 1))
    nodes = builder.nodes(inner, length, **_zeros(schema, inner, length))
    for node in nodes:
        builder.inputs(node, [node - 1], **_edge_zeros(schema.inputs, 1))
    _link(builder, list(range(length)), list(range(1, length + 1)))
    builder.output(length)
    builder.finish()
    return builder.build()


def star(schema: Schema, leaf: str, inner: str, width: int) -> TypedDAG:
    """A node with `width` leaves for inputs."""
    builder = GraphBuilder(schema, "star")
    leaves = builder.nodes(leaf, width, **_zeros(schema, leaf, width))
    root = builder.node(inner, **{k: v[0] for k, v in _zeros(schema, inner, 1).items()})
    builder.inputs(root, list(leaves), **_edge_zeros(schema.inputs, width))
    _link(builder, list(leaves), [root] * width)
    builder.output(root)
    builder.finish()
    return builder.build()


def _link(builder: GraphBuilder, source: list[int], target: list[int]) -> None:
    """Edges of every relation, both ways."""
    for relation in builder.schema.relations:
        columns = _edge_zeros(relation, 2 * len(source))
        builder.edges(relation.name, source + target, target + source, **columns)


def _zeros(schema: Schema, type_name: str, count: int) -> dict[str, list[Any]]:
    features = schema.types[schema.type_index(type_name)].features
    return {c.name: [_zero(c)] * count for c in features}


def _edge_zeros(edge: EdgeType, count: int) -> dict[str, list[Any]]:
    return {c.name: [_zero(c)] * count for c in edge.features + edge.targets}


def _zero(column: Column) -> Any:
    return "" if column.dtype == "string" else torch.zeros(column.shape).tolist()


def with_empty_graph(dag: TypedDAG) -> TypedDAG:
    """The same graphs, and one without nodes in last place."""
    graph = {}
    for column in dag.schema.graph_features + dag.schema.graph_targets:
        rows = dag.columns["graph"][column.name]
        row = rows.new_full((1, *rows.shape[1:]), column.missing)
        graph[column.name] = torch.cat([rows, row])
    return replace(
        dag,
        num_graphs=dag.num_graphs + 1,
        output_ptr=torch.cat([dag.output_ptr, dag.output_ptr[-1:]]),
        origin=torch.cat([dag.origin, torch.full((1, 3), -1)]),
        columns={**dag.columns, "graph": graph},
    )


def empty(schema: Schema) -> TypedDAG:
    """No graph at all."""
    return GraphBuilder(schema).build()


def node_orders(dag: TypedDAG) -> st.SearchStrategy[Tensor]:
    """[num_nodes] orders of the nodes that keep every graph's nodes together."""
    parts = [
        st.permutations(range(start, stop))
        for start, stop in zip(dag.node_ptr[:-1].tolist(), dag.node_ptr[1:].tolist(), strict=True)
    ]
    return st.tuples(*parts).map(
        lambda orders: torch.tensor([node for part in orders for node in part], dtype=torch.int64)
    )


def renumber(dag: TypedDAG, order: Tensor) -> TypedDAG:
    """The same graphs; node i of the result is node order[i] of `dag`."""
    rank = torch.empty_like(order)
    rank[order] = torch.arange(len(order))
    input_ptr, inputs, input_index = _reorder(dag.input_ptr, dag.input_index, order, rank)
    columns = {space: dict(group) for space, group in dag.columns.items()}
    _take(columns, "node", order)
    _take(columns, "inputs", inputs)
    for node_type in dag.schema.types:
        old = dag.nodes_of_type(node_type.name)
        moved = order[torch.isin(order, old)]
        _take(columns, f"type:{node_type.name}", torch.searchsorted(old, moved))
    relations = {}
    for name, relation in dag.relations.items():
        ptr, edges, index = _reorder(relation.ptr, relation.index, order, rank)
        relations[name] = Relation(ptr, index)
        _take(columns, f"relation:{name}", edges)
    return replace(
        dag,
        op_type=dag.op_type[order],
        input_ptr=input_ptr,
        input_index=input_index,
        depth=dag.depth[order],
        span=dag.span[order],
        output_index=rank[dag.output_index],
        columns=columns,
        relations=relations,
    )


def _reorder(
    ptr: Tensor, index: Tensor, order: Tensor, rank: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Pointers, old positions and new sources of edges, for nodes in a new order."""
    count = ptr.diff()[order]
    edges = ragged_arange(ptr[order], count)
    source = index[edges]
    return pointers(count), edges, torch.where(source < 0, source, rank[source])


def _take(columns: dict[str, dict[str, Tensor]], space: str, rows: Tensor) -> None:
    columns[space] = {name: column[rows] for name, column in columns[space].items()}


def bond_schema(features: Sequence[Column] = (), atom: Sequence[Column] = ()) -> Schema:
    """Atoms and bonds, as molecules have them."""
    return Schema(
        types=(NodeType("atom", 0, tuple(atom)),),
        relations=(EdgeType("bond", tuple(features)),),
        graph_targets=(Column("y"),),
    )
