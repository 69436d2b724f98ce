"""Plans of PostgreSQL: `EXPLAIN (FORMAT JSON)`, with or without ANALYZE."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphfold.datasets.plans.plan_node import PlanNode
from graphfold.datasets.plans.walk import build_tree
from graphfold.errors import RecordError

_ESTIMATES = {
    "rows": "Plan Rows",
    "width": "Plan Width",
    "startup_cost": "Startup Cost",
    "total_cost": "Total Cost",
}
_VARIANTS = ("Join Type", "Strategy", "Scan Direction", "Command", "Operation")
_CONDITIONS = ("Filter", "Index Cond", "Hash Cond", "Merge Cond", "Join Filter", "Recheck Cond")


def is_postgresql(document: Any) -> bool:
    """True for one statement of the output: an object with `Plan`."""
    return isinstance(document, Mapping) and isinstance(document.get("Plan"), Mapping)


def read_postgresql(document: Mapping[str, Any]) -> PlanNode:
    """The tree of operators. `Actual ...` is what ANALYZE measured, and is not read.

    Format: https://www.postgresql.org/docs/current/sql-explain.html.

    Raises:
        RecordError: if an operator has no type, or an estimate is no number.
    """
    return build_tree(document["Plan"], _inputs, _node)


def _inputs(item: Mapping[str, Any]) -> Any:
    return item.get("Plans", ())


def _node(item: Mapping[str, Any], inputs: list[PlanNode]) -> PlanNode:
    operator = item.get("Node Type")
    if not isinstance(operator, str):
        raise RecordError("an operator of the plan has no 'Node Type'")
    conditions = [item[key] for key in _CONDITIONS if isinstance(item.get(key), str)]
    estimates = {name: item[key] for name, key in _ESTIMATES.items() if key in item}
    table = item.get("Relation Name") or item.get("Index Name") or ""
    return PlanNode(
        operator,
        " ".join(str(item[key]) for key in _VARIANTS if key in item),
        {**estimates, "conditions": sum(text.count(" AND ") + 1 for text in conditions)},
        inputs,
        f"{operator} on {table}" if table else operator,
    )
