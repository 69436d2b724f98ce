"""Makes plans over random databases; their costs are the same each time."""

import json
import sqlite3
from pathlib import Path

import pytest

from graphfold.datasets.corpora.sqlite_plans import count_steps, write_plans
from graphfold.datasets.readers.plans import read_plan
from graphfold.errors import ConfigError


def records(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_plans_are_the_same_each_time_and_all_are_read(tmp_path: Path) -> None:
    parts = {"train": 2, "test": 1}
    first = write_plans(tmp_path / "a", parts, 15, seed=3)
    again = write_plans(tmp_path / "b", parts, 15, seed=3)
    for part, count in parts.items():
        assert first[part].read_bytes() == again[part].read_bytes()
        made = records(first[part])
        assert len(made) == 15 * count
        for record in made:
            plan = read_plan(record)
            operators = {node.operator for node in plan.postorder()}
            assert operators & {"SCAN", "SEARCH"}, record
            # Every loop knows its table, for the statistics are those of the query's tables.
            for node in plan.postorder():
                if node.operator in ("SCAN", "SEARCH"):
                    assert "table_rows" in node.estimates, (node, record)
    other = write_plans(tmp_path / "c", parts, 15, seed=4)
    assert other["train"].read_bytes() != first["train"].read_bytes()


def test_steps_grow_with_the_work_and_endless_queries_stop() -> None:
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE t (a)")
    connection.executemany("INSERT INTO t VALUES (?)", [(i,) for i in range(2_000)])
    few = count_steps(connection, "SELECT * FROM t WHERE a < 10 LIMIT 5")
    many = count_steps(connection, "SELECT * FROM t")
    assert few is not None
    assert many is not None
    assert few < 100 < 5_000 < many < 20_000
    assert count_steps(connection, "SELECT count(*) FROM t x, t y") is None


def test_numbers_have_to_be_positive(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="number of queries is 0"):
        write_plans(tmp_path, {"train": 1}, 0, seed=0)
