"""Reads plans of three databases into one tree of operators."""

import math

import pytest
from datasets.readers.plan_documents import (
    DUCKDB_EXPLAIN,
    DUCKDB_NEWER_PROFILE,
    DUCKDB_PROFILE,
    POSTGRESQL,
    SQLITE,
)

from graphfold.datasets.readers.plan_formats import estimate
from graphfold.datasets.readers.plans import outline, read_plan
from graphfold.errors import RecordError


def test_postgresql_plans_keep_estimates_and_drop_measurements() -> None:
    plan = read_plan(POSTGRESQL[0])
    assert outline(plan).splitlines() == [
        "Hash Join",
        "  Seq Scan on a",
        "  Hash",
        "    Seq Scan on b",
    ]
    assert (plan.operator, plan.variant) == ("Hash Join", "Left")
    assert plan.estimates == {
        "rows": 999,
        "width": 8,
        "startup_cost": 10.0,
        "total_cost": 99.0,
        "conditions": 1,
    }
    assert plan.inputs[0].estimates == {"rows": 100, "conditions": 2}


@pytest.mark.parametrize(
    ("document", "lines", "rows"),
    [
        (DUCKDB_EXPLAIN[0], ["HASH_JOIN", "  SEQ_SCAN a", "  SEQ_SCAN b"], "9"),
        (DUCKDB_PROFILE, ["PROJECTION", "  SEQ_SCAN"], "9"),
        (DUCKDB_NEWER_PROFILE, ["TOP_N"], "3"),
    ],
)
def test_duckdb_plans_of_every_version(document: object, lines: list[str], rows: str) -> None:
    plan = read_plan(document)
    assert outline(plan).splitlines() == lines
    assert plan.estimates["rows"] == rows


def test_sqlite_loops_are_a_chain_with_products_of_their_rows() -> None:
    plan = read_plan(SQLITE)
    sort = plan
    subquery, search = sort.inputs[0], sort.inputs[0].inputs[0]
    scan = search.inputs[0]
    assert [sort.operator, subquery.operator] == ["USE TEMP B-TREE FOR ORDER BY", "LIST SUBQUERY"]
    assert (scan.operator, scan.variant) == ("SCAN", "COVERING INDEX")
    assert (scan.estimates["rows"], scan.estimates["selectivity"]) == (99, 0.1)
    assert search.estimates["loops"] == pytest.approx(9.9)  # 99 rows, a tenth of them kept
    assert search.estimates["rows"] == 4
    assert sort.estimates["loops"] == pytest.approx(39.6)
    assert subquery.inputs[1].operator == "SEARCH"


def test_a_condition_that_the_index_tests_is_not_counted_twice() -> None:
    document = {
        "plan": [[2, 0, 0, "SEARCH a USING INDEX a_k (k=?)"], [5, 0, 0, "SCAN b"]],
        "tables": {"a": {"rows": 100, "selectivity": {"k": 0.05, "x": 0.5}}, "b": {"rows": 7}},
        "indexes": {"a_k": 5},
    }
    search = read_plan(document).inputs[0]
    assert search.estimates["rows"] == pytest.approx(5)
    assert search.estimates["selectivity"] == 0.5
    assert read_plan(document).estimates["loops"] == pytest.approx(2.5)


def test_plans_nested_thousands_deep_need_no_recursion() -> None:
    plan: dict[str, object] = {"Node Type": "Result"}
    for _ in range(5_000):
        plan = {"Node Type": "Subquery Scan", "Plans": [plan]}
    assert sum(1 for _ in read_plan({"Plan": plan}).postorder()) == 5_001


@pytest.mark.parametrize(
    ("document", "fault"),
    [
        (3, "is no object"),
        ({"a": 1}, "has the keys 'a'"),
        ({"Plan": {"Plans": []}}, "no 'Node Type'"),
        ({"Plan": {"Node Type": "Sort", "Plans": 3}}, "inputs that are no list"),
        ({"Plan": {"Node Type": "Sort", "Plans": [3]}}, "is no object"),
        ({"plan": [[1, 7, 0, "SCAN a"]]}, "not id, parent, detail"),
        ({"plan": [[1, 0, 0, "SCAN a"]], "tables": 3}, "'tables' is 3"),
        ({"plan": [[1, 0, 0, "SCAN a"]], "tables": {"a": {"rows": "9"}}}, "which is no number"),
        ({"plan": [[1, {}, 0, "SCAN a"]]}, "not id, parent, detail"),
        ({"plan": [[1, 0, 0, "SCAN a"]], "tables": {"a": {"rows": 10**400}}}, "no number"),
        ({"Plan": {"Node Type": "Sort", "Plans": [None, {"Node Type": "X"}]}}, "is no object"),
        ({"operator": [], "children": [{"name": "X"}, {"name": "Y"}]}, "no single operator"),
    ],
)
def test_what_is_no_plan_is_refused(document: object, fault: str) -> None:
    with pytest.raises(RecordError, match=fault):
        read_plan(document)


def test_estimates_are_logarithms() -> None:
    assert estimate("rows", 999) == pytest.approx(3)
    assert estimate("rows", "9") == pytest.approx(1)
    assert estimate("selectivity", 0.01) == pytest.approx(-2)
    assert math.isfinite(estimate("selectivity", 0))
    for value in ("many", None, -1, math.inf, True, 10**400, "1e400", []):
        with pytest.raises(RecordError, match="estimate of rows"):
            estimate("rows", value)
