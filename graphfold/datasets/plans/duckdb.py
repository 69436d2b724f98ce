"""Plans of DuckDB: `EXPLAIN (FORMAT json)`, and the JSON of its profiler."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from graphfold.datasets.plans.plan_node import PlanNode
from graphfold.datasets.plans.walk import build_tree
from graphfold.errors import RecordError

_NAMES = ("operator_name", "operator_type", "name", "type")
#: What is about the query as a whole, and no operator of it.
_WHOLE = (None, "EXPLAIN_ANALYZE", "Query", "RESULT_COLLECTOR")
_CARDINALITY = ("Estimated Cardinality", "EC")
_CONDITIONS = ("Filters", "Conditions", "Condition", "Expression")


def is_duckdb(document: Any) -> bool:
    """True for an operator, and for what the profiler writes of a query."""
    if not isinstance(document, Mapping):
        return False
    inputs = _inputs(document)
    return isinstance(inputs, list) and bool(_name(document) or any(map(_name, inputs)))


def read_duckdb(document: Mapping[str, Any]) -> PlanNode:
    """The tree of operators. Timings and measured cardinalities are not read.

    Format: https://duckdb.org/docs/stable/dev/profiling. What stands for the query itself is left
    out: the profile's top, `EXPLAIN_ANALYZE` and `RESULT_COLLECTOR`.

    Raises:
        RecordError: if an operator has no name, or an estimate is no number.
    """
    while _name(document) in _WHOLE:
        inputs = _inputs(document)
        if not (isinstance(inputs, list) and len(inputs) == 1 and isinstance(inputs[0], Mapping)):
            raise RecordError("the profile has no single operator at its top")
        document = inputs[0]
    return build_tree(document, _inputs, _node)


def _inputs(item: Mapping[str, Any]) -> Any:
    """The inputs of an operator; newer profiles call the last operator of a query `operator`."""
    return item.get("children", item.get("operator", ()))


def _name(item: Any) -> str | None:
    names = (item.get(key) for key in _NAMES) if isinstance(item, Mapping) else ()
    return next((name.strip() for name in names if isinstance(name, str) and name.strip()), None)


def _node(item: Mapping[str, Any], inputs: list[PlanNode]) -> PlanNode:
    operator = _name(item)
    if operator is None:
        raise RecordError("an operator of the plan has no name")
    facts = _facts(item.get("extra_info"))
    estimates: dict[str, Any] = {}
    for key in _CARDINALITY:
        if key in facts:
            estimates["rows"] = str(facts[key]).lstrip("~")
    conditions = [facts[key] for key in _CONDITIONS if facts.get(key)]
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
