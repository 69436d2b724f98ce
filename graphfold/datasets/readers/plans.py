"""Query plans: what a database means to do, with what it took as the target."""

from __future__ import annotations

import copy
import re
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from graphfold.dag import Column, GraphBuilder, NodeType, Schema
from graphfold.datasets.adapter import Adapter, Record
from graphfold.datasets.files.text_files import at_least_one
from graphfold.datasets.readers.json_documents import (
    ABSENT,
    JsonPath,
    finite_number,
    join_path,
    scan_documents,
)
from graphfold.datasets.readers.plan_formats import (
    ESTIMATES,
    PlanNode,
    estimate,
    is_duckdb,
    is_postgresql,
    is_sqlite,
    read_duckdb,
    read_postgresql,
    read_sqlite,
)
from graphfold.errors import LeftOut, RecordError

_READERS = (
    (is_postgresql, read_postgresql),
    (is_sqlite, read_sqlite),
    (is_duckdb, read_duckdb),
)


class PlansAdapter(Adapter):
    """Reads query plans of PostgreSQL, DuckDB and SQLite; the format is told by what is there.

    A file holds JSON documents (see `scan_documents`), each of which is

    - one statement of PostgreSQL's `EXPLAIN (FORMAT JSON)`, in the list that it prints or without;
    - what DuckDB's `EXPLAIN (FORMAT json)` or its JSON profiler writes;
    - an object whose `plan` has the rows of SQLite's `EXPLAIN QUERY PLAN`; see `read_sqlite`;
    - an object whose `plan` is one of the first two, with the target beside it.

    Schema: the types `leaf`, `unary` and `binary`, for operators with so many inputs; one with more
    is a chain of binary nodes of one name, as in Marcus et al. (2019), Neo,
    https://arxiv.org/abs/1904.03711. A node has the strings `operator` and `variant`, and the
    `ESTIMATES` as decimal logarithms. What was measured while the query ran is never a feature.
    Graph target: the cost, a number above zero. Graph feature: `text`. The output is the root.

    Args:
        target: where the measured cost is, see `JsonPath`: "Execution Time" for PostgreSQL,
            "latency" for DuckDB's profiler, from DuckDB 2 on "$.query.total_time".
        unit: the unit of the target.
    """

    expands_folders = True

    def __init__(self, target: str = "cost", unit: str | None = None) -> None:
        self.target: JsonPath | None = JsonPath(target)
        features = (
            Column("operator", "string"),
            Column("variant", "string"),
            *(Column(name) for name in ESTIMATES),
        )
        self.schema = Schema(
            types=tuple(
                NodeType(name, arity, features)
                for arity, name in enumerate(("leaf", "unary", "binary"))
            ),
            graph_features=(Column("text", "string"),),
            graph_targets=(Column(self.target.name, unit=unit),),
        )

    def records(self, path: Path) -> Iterator[Record]:
        """One record per plan, `content` being the JSON value."""
        yield from at_least_one(self._cut(path), path, "plans")

    def _cut(self, path: Path) -> Iterator[Record]:
        for file in self.sources(path):
            for line, value, fault in scan_documents(file):
                # PostgreSQL prints a list of statements.
                values = value if isinstance(value, list) and value else [value]
                yield from (Record(line, item, fault) for item in values)

    def record_of(self, item: Any) -> Record:
        """A string holds JSON; anything else is the document itself, or a list of one."""
        if isinstance(item, str):
            return super().record_of(item)
        return Record(1, item[0] if isinstance(item, list) and len(item) == 1 else item)

    def parse(self, record: Record, graph: GraphBuilder) -> None:
        """Writes one plan; see `Adapter.parse`."""
        columns = {}
        if self.target is not None:
            columns[self.target.name] = _cost(record.content, self.target)
        plan = read_plan(record.content)
        numbers: dict[int, int] = {}
        for node in plan.postorder():
            numbers[id(node)] = _write(graph, node, [numbers[id(part)] for part in node.inputs])
        graph.output(numbers[id(plan)])
        graph.finish(line=record.line, text=outline(plan), columns=columns)

    def without_targets(self) -> PlansAdapter:
        """See `Adapter.without_targets`."""
        adapter = copy.copy(self)
        adapter.target = None
        return adapter


def read_plan(document: Any) -> PlanNode:
    """The tree of operators of a JSON document, whichever database wrote it.

    Raises:
        RecordError: if it is no plan of PostgreSQL, DuckDB or SQLite.
    """
    for is_this, read in _READERS:
        if is_this(document):
            return read(document)
    inner = document.get("plan") if isinstance(document, Mapping) else None
    if isinstance(inner, list) and len(inner) == 1:
        inner = inner[0]
    if isinstance(inner, Mapping) and inner is not document:
        for is_this, read in _READERS:
            if is_this(inner):
                return read(inner)
    keys = f"has the keys {', '.join(map(repr, document))}" if isinstance(document, Mapping) else ""
    raise RecordError(
        f"the record {keys or 'is no object'}, and is no plan",
        "Give PostgreSQL's EXPLAIN (FORMAT JSON), DuckDB's JSON, or an object whose 'plan' has the "
        "rows of SQLite's EXPLAIN QUERY PLAN.",
    )


def outline(plan: PlanNode) -> str:
    """The plan for people: a line for each operator, indented under the one that reads it."""
    lines: list[str] = []
    stack = [(plan, 0)]
    while stack:
        node, depth = stack.pop()
        lines.append("  " * depth + (node.text or node.operator))
        stack += [(part, depth + 1) for part in reversed(node.inputs)]
    return "\n".join(lines)


def _write(graph: GraphBuilder, node: PlanNode, inputs: list[int]) -> int:
    """Adds the nodes of an operator; returns that of its result."""
    values: dict[str, Any] = {"operator": node.operator, "variant": node.variant}
    values |= {name: estimate(name, value) for name, value in node.estimates.items()}
    if len(inputs) < 2:
        return graph.node("unary" if inputs else "leaf", inputs, **values)
    joined = inputs[0]
    for other in inputs[1:]:
        joined = graph.node("binary", (joined, other), **values)
    return joined


#: Names of what a plan may have taken.
_TAKEN = re.compile(r"[._ ](time|latency|cost|duration|seconds)$", re.IGNORECASE)


def _paths_of_numbers(document: Any) -> Iterator[str]:
    """The places of numbers above zero outside of lists, the outermost first."""
    rest = deque([("$", document)])
    while rest:
        path, value = rest.popleft()
        if isinstance(value, Mapping):
            rest.extend((join_path(path, str(key)), inner) for key, inner in value.items())
        elif (finite_number(value) or 0) > 0:
            yield path


def _cost(document: Any, target: JsonPath) -> float:
    value = target.find(document)
    if value is ABSENT or value is None:
        known = sorted(_paths_of_numbers(document), key=lambda path: not _TAKEN.search(path))
        remedy = f"Set data.target to a number of it: {', '.join(known[:8])}." if known else ""
        raise LeftOut(f"there is no '{target.text}' in the record", remedy)
    cost = finite_number(value)
    if cost is None:
        raise RecordError(f"'{target.text}' is {value!r}, which is no number")
    if cost <= 0:
        raise RecordError(f"'{target.text}' is {value}, but a cost is above zero")
    return cost
