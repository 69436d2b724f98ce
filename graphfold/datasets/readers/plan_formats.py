"""Query plans of SQLite, PostgreSQL and DuckDB as trees of operators, whichever made them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from graphfold.datasets.readers.json_documents import finite_number
from graphfold.errors import RecordError

#: What a database estimates of an operator before it runs. A plan has some of them.
#:
#: - `rows`: rows that the operator returns, each time that it runs.
#: - `loops`: how often it runs, for the inner side of nested loops.
#: - `width`: bytes of a row.
#: - `startup_cost`, `total_cost`: in the database's own units.
#: - `table_rows`: rows of the table that it reads.
#: - `selectivity`: the share of rows that its conditions keep.
#: - `conditions`: how many conditions it tests.
ESTIMATES = (
    "rows",
    "loops",
    "width",
    "startup_cost",
    "total_cost",
    "table_rows",
    "selectivity",
    "conditions",
)


@dataclass
class PlanNode:
    """An operator with what the database estimated of it; nothing that was measured.

    Args:
        operator: the kind of operator, such as "Hash Join".
        variant: how it does that, such as "Left"; empty if there is one way.
        estimates: some of `ESTIMATES`.
        inputs: the operators whose rows it reads, in order.
        text: what the plan says of it, for people.
    """

    operator: str
    variant: str = ""
    estimates: Mapping[str, float] = field(default_factory=dict)
    inputs: Sequence[PlanNode] = ()
    text: str = ""

    def postorder(self) -> Iterator[PlanNode]:
        """Every operator after its inputs; without recursion, for plans nested thousands deep."""
        stack = [(self, iter(self.inputs))]
        while stack:
            node, rest = stack[-1]
            following = next(rest, None)
            if following is None:
                stack.pop()
                yield node
            else:
                stack.append((following, iter(following.inputs)))


def estimate(name: str, value: Any) -> float:
    """An estimate as a model reads it: the decimal logarithm, of 1 + value but for shares.

    Costs and cardinalities range over ten orders of magnitude, and their errors are ratios.

    Args:
        name: one of `ESTIMATES`.
        value: what the plan says; a number, or text of one.

    Raises:
        RecordError: if it is no number, not finite or negative.
    """
    try:
        number = finite_number(float(value) if isinstance(value, str) else value)
    except ValueError:
        number = None
    if number is None or number < 0:
        raise RecordError(f"the estimate of {name} is {value!r}, which is no number of 0 or more")
    if name == "selectivity":
        return math.log10(max(number, 1e-9))
    return math.log10(1 + number)


def build_tree(
    root: Mapping[str, Any],
    inputs_of: Callable[[Mapping[str, Any]], Any],
    make: Callable[[Mapping[str, Any], list[PlanNode]], PlanNode],
) -> PlanNode:
    """The tree under a JSON object.

    Args:
        root: the object of the last operator.
        inputs_of: the list of the objects that an object's operator reads.
        make: an operator, from its object and the operators that it reads.

    Raises:
        RecordError: if an operator is no object, or its inputs are no list.
    """
    stack: list[tuple[Mapping[str, Any], Iterator[Any], list[PlanNode]]] = []

    def push(item: Any) -> None:
        inputs = inputs_of(item) if isinstance(item, Mapping) else None
        if not isinstance(inputs, list | tuple):
            what = "is no object" if inputs is None else "has inputs that are no list"
            raise RecordError(f"an operator of the plan {what}")
        stack.append((item, iter(inputs), []))

    push(root)
    while True:
        item, rest, done = stack[-1]
        for following in rest:
            push(following)
            break
        else:
            node = make(item, done)
            stack.pop()
            if not stack:
                return node
            stack[-1][2].append(node)


_LOOP = re.compile(
    r"(?P<way>SCAN|SEARCH) (?:TABLE )?(?P<table>\S+)(?: AS (?P<alias>\S+))?"
    r"(?: USING (?P<with>AUTOMATIC (?:PARTIAL )?COVERING INDEX|COVERING INDEX|INDEX"
    r"|INTEGER PRIMARY KEY|PRIMARY KEY)(?: (?P<index>[^\s(]+))?)?(?: \((?P<terms>.*)\))?"
)
#: Operators that are followed by the name of a table, a view or a number.
_NAMED = re.compile(
    r"(CO-ROUTINE|MATERIALIZE|BLOOM FILTER ON|REUSE (?:LIST|SCALAR) SUBQUERY"
    r"|(?:CORRELATED )?(?:LIST|SCALAR) SUBQUERY)\b.*"
)


def is_sqlite(document: Any) -> bool:
    """True for an object whose `plan` has rows of id, parent, (unused,) detail."""
    if not (isinstance(document, Mapping) and isinstance(document.get("plan"), list)):
        return False
    rows = document["plan"]
    return bool(rows) and all(isinstance(row, list) and len(row) in (3, 4) for row in rows)


def read_sqlite(document: Mapping[str, Any]) -> PlanNode:
    """The tree of operators, with estimates of how often each loop runs.

    SQLite joins by loops inside one another, in the order of the plan. So each loop reads the one
    before it; and what follows the loops (a sort, a group) reads the last of them. A subquery is
    one more input of the operator that names it.

    SQLite prints no estimates. `tables` (name or alias -> `rows`, and `selectivity`, the share of
    rows that each condition on a constant keeps, by column) and `indexes` (name -> rows of a key)
    may give them, as ANALYZE counts them. The rows of a loop are then those of the loops before it,
    times the rows that it finds, times the shares, as if conditions were independent.

    Format: https://www.sqlite.org/eqp.html.

    Raises:
        RecordError: if the rows are not those of a plan.
    """
    children: dict[int, list[tuple[int, str]]] = {}
    seen = {0}
    for row in document["plan"]:
        number, parent, detail = row[0], row[1], row[-1]
        is_row = type(number) is type(parent) is int and isinstance(detail, str)
        if not (is_row and parent in seen):
            raise RecordError(f"the row {row!r} of the plan is not id, parent, detail")
        seen.add(number)
        children.setdefault(parent, []).append((number, detail))
    statistics = _Statistics(document)
    made: dict[int, PlanNode] = {}
    # A row stands after its parent, so that backwards every row has its children ready.
    for number, level in reversed(children.items()):
        made[number] = _chain(level, made, statistics)
    return made[0]


def _chain(
    items: Sequence[tuple[int, str]], made: Mapping[int, PlanNode], known: _Statistics
) -> PlanNode:
    """The operators of one level, each of which reads the one before it."""
    node: PlanNode | None = None
    rows: float | None = 1.0  # of the loops so far
    for number, detail in items:
        inputs = [part for part in (node, made.get(number)) if part is not None]
        loop = _LOOP.fullmatch(detail)
        if loop is None:
            operator = _NAMED.sub(r"\1", detail)
            # A sort reads the rows of the loops, another operator no known number.
            known_rows = {"loops": rows} if node is not None and rows is not None else {}
            node = PlanNode(operator, "", known_rows, inputs, detail)
        else:
            node, rows = known.loop(loop, rows, inputs, detail)
    assert node is not None
    return node


class _Statistics:
    """The sizes of tables and indexes, as a record gives them.

    Raises:
        RecordError: if `tables` or `indexes` are no objects.
    """

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.tables = _mapping(document, "tables")
        self.indexes = _mapping(document, "indexes")

    def loop(
        self, loop: re.Match[str], before: float | None, inputs: list[PlanNode], detail: str
    ) -> tuple[PlanNode, float | None]:
        """The operator of a loop, and how many rows there are after it, if that is known."""
        name = loop["alias"] or loop["table"]
        table = _mapping(self.tables, name)
        shares = {c: _number(s, "selectivity") for c, s in _mapping(table, "selectivity").items()}
        used = {c: share for c, share in shares.items() if _names(loop["terms"], c)}
        left = math.prod(share for column, share in shares.items() if column not in used)
        found = self._found(loop, table, used)
        estimates = {"selectivity": left, "conditions": len(shares)}
        estimates |= {"table_rows": table["rows"]} if "rows" in table else {}
        estimates |= {} if before is None else {"loops": before}
        estimates |= {} if found is None else {"rows": found}
        after = None if before is None or found is None else before * found * left
        variant = (loop["with"] or "").replace("PARTIAL ", "")
        return PlanNode(loop["way"], variant, estimates, inputs, detail), after

    def _found(
        self, loop: re.Match[str], table: Mapping[str, Any], used: Mapping[str, float]
    ) -> float | None:
        """The rows that a loop finds each time, before the conditions that its index does not test.

        Args:
            loop: the loop.
            table: what is known of the table.
            used: column -> selectivity, of the conditions on constants that its index tests.
        """
        rows = _number(table["rows"], "rows") if "rows" in table else None
        if loop["way"] == "SCAN" or used:
            return None if rows is None else rows * math.prod(used.values())
        if loop["index"] in self.indexes:
            return _number(self.indexes[loop["index"]], "rows of a key")
        return 1.0 if "PRIMARY KEY" in (loop["with"] or "") else None


def _names(terms: str | None, column: str) -> bool:
    return re.search(rf"\b{re.escape(column)}[<>=]", terms or "") is not None


def _number(value: Any, name: str) -> float:
    number = finite_number(value)
    if number is None:
        raise RecordError(f"{name} is {value!r}, which is no number")
    return number


def _mapping(owner: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = owner.get(name, {})
    if not isinstance(value, Mapping):
        raise RecordError(f"'{name}' is {value!r}, but it is an object")
    return value


_POSTGRESQL_ESTIMATES = {
    "rows": "Plan Rows",
    "width": "Plan Width",
    "startup_cost": "Startup Cost",
    "total_cost": "Total Cost",
}
_POSTGRESQL_VARIANTS = ("Join Type", "Strategy", "Scan Direction", "Command", "Operation")
_POSTGRESQL_CONDITIONS = (
    "Filter",
    "Index Cond",
    "Hash Cond",
    "Merge Cond",
    "Join Filter",
    "Recheck Cond",
)


def is_postgresql(document: Any) -> bool:
    """True for one statement of the output: an object with `Plan`."""
    return isinstance(document, Mapping) and isinstance(document.get("Plan"), Mapping)


def read_postgresql(document: Mapping[str, Any]) -> PlanNode:
    """The tree of operators. `Actual ...` is what ANALYZE measured, and is not read.

    Format: https://www.postgresql.org/docs/current/sql-explain.html.

    Raises:
        RecordError: if an operator has no type, or an estimate is no number.
    """
    return build_tree(document["Plan"], _postgresql_inputs, _postgresql_node)


def _postgresql_inputs(item: Mapping[str, Any]) -> Any:
    return item.get("Plans", ())


def _postgresql_node(item: Mapping[str, Any], inputs: list[PlanNode]) -> PlanNode:
    operator = item.get("Node Type")
    if not isinstance(operator, str):
        raise RecordError("an operator of the plan has no 'Node Type'")
    conditions = [item[key] for key in _POSTGRESQL_CONDITIONS if isinstance(item.get(key), str)]
    estimates = {name: item[key] for name, key in _POSTGRESQL_ESTIMATES.items() if key in item}
    table = item.get("Relation Name") or item.get("Index Name") or ""
    return PlanNode(
        operator,
        " ".join(str(item[key]) for key in _POSTGRESQL_VARIANTS if key in item),
        {**estimates, "conditions": sum(text.count(" AND ") + 1 for text in conditions)},
        inputs,
        f"{operator} on {table}" if table else operator,
    )


_NAMES = ("operator_name", "operator_type", "name", "type")
#: What is about the query as a whole, and no operator of it.
_WHOLE = (None, "EXPLAIN_ANALYZE", "Query", "RESULT_COLLECTOR")
_CARDINALITY = ("Estimated Cardinality", "EC")
_DUCKDB_CONDITIONS = ("Filters", "Conditions", "Condition", "Expression")


def is_duckdb(document: Any) -> bool:
    """True for an operator, and for what the profiler writes of a query."""
    if not isinstance(document, Mapping):
        return False
    inputs = _duckdb_inputs(document)
    return isinstance(inputs, list) and bool(_name(document) or any(map(_name, inputs)))


def read_duckdb(document: Mapping[str, Any]) -> PlanNode:
    """The tree of operators. Timings and measured cardinalities are not read.

    Format: https://duckdb.org/docs/stable/dev/profiling. What stands for the query itself is left
    out: the profile's top, `EXPLAIN_ANALYZE` and `RESULT_COLLECTOR`.

    Raises:
        RecordError: if an operator has no name, or an estimate is no number.
    """
    while _name(document) in _WHOLE:
        inputs = _duckdb_inputs(document)
        if not (isinstance(inputs, list) and len(inputs) == 1 and isinstance(inputs[0], Mapping)):
            raise RecordError("the profile has no single operator at its top")
        document = inputs[0]
    return build_tree(document, _duckdb_inputs, _duckdb_node)


def _duckdb_inputs(item: Mapping[str, Any]) -> Any:
    """The inputs of an operator; newer profiles call the last operator of a query `operator`."""
    return item.get("children", item.get("operator", ()))


def _name(item: Any) -> str | None:
    names = (item.get(key) for key in _NAMES) if isinstance(item, Mapping) else ()
    return next((name.strip() for name in names if isinstance(name, str) and name.strip()), None)


def _duckdb_node(item: Mapping[str, Any], inputs: list[PlanNode]) -> PlanNode:
    operator = _name(item)
    if operator is None:
        raise RecordError("an operator of the plan has no name")
    facts = _facts(item.get("extra_info"))
    estimates: dict[str, Any] = {}
    for key in _CARDINALITY:
        if key in facts:
            estimates["rows"] = str(facts[key]).lstrip("~")
    conditions = [facts[key] for key in _DUCKDB_CONDITIONS if facts.get(key)]
    listed = [c if isinstance(c, list) else str(c).split(" AND ") for c in conditions]
    estimates["conditions"] = sum(map(len, listed))
    variant = facts.get("Join Type", "")
    table = facts.get("Table") or facts.get("Text") or ""
    return PlanNode(
        operator, str(variant), estimates, inputs, f"{operator} {table}" if table else operator
    )


def _facts(extra: Any) -> Mapping[str, Any]:
    """The facts that a plan gives of an operator: an object, or in older versions a text."""
    if isinstance(extra, Mapping):
        return extra
    found = re.search(r"\bEC: *~?(\d+)", extra) if isinstance(extra, str) else None
    return {} if found is None else {"EC": found[1]}
