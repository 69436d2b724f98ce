"""Plans of SQLite: the rows of `EXPLAIN QUERY PLAN`, with what is known of the tables."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from graphfold.datasets.files.json_documents import finite_number
from graphfold.datasets.plans.plan_node import PlanNode
from graphfold.errors import RecordError

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
