"""Queries over random databases of SQLite, with their plans and what they took."""

from __future__ import annotations

import json
import random
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphfold.datasets.plans.random_query import Query, draw_query
from graphfold.errors import ConfigError
from graphfold.files import write_text

#: Instructions between two looks at the counter; the label is exact to so many.
_EVERY = 4

#: Queries that take more are interrupted and drawn again, for the corpus is to be made in a minute.
_MOST_STEPS = 500_000


@dataclass(frozen=True)
class Table:
    """A table of a random database.

    Args:
        name: its name.
        rows: how many rows it has.
        parents: foreign key -> the table whose `id` it names.
        attributes: column -> how many different values it has.
    """

    name: str
    rows: int
    parents: Mapping[str, str]
    attributes: Mapping[str, int]


def write_plans(
    folder: Path, schemas: Mapping[str, int], queries: int, seed: int
) -> dict[str, Path]:
    """Writes plans with their costs, as `PART.jsonl`; no database is in two parts.

    The cost is the number of instructions of SQLite's virtual machine, which is the same each time,
    whatever the machine and its load.

    Args:
        folder: where to; made if need be.
        schemas: the number of databases of each part.
        queries: how many queries are asked of each.
        seed: the same seed gives the same files, with the same version of SQLite.

    Returns:
        The file of each part. Each is written whole or not at all.

    Raises:
        ConfigError: if a number is not positive.
    """
    for name, value in {**schemas, "queries": queries}.items():
        if value < 1:
            raise ConfigError(f"the number of {name} is {value}. Give at least 1.")
    folder.mkdir(parents=True, exist_ok=True)
    paths = {}
    for part, count in schemas.items():
        rng = random.Random(f"{seed} {part}")
        lines = [json.dumps(r) for _ in range(count) for r in _records(rng, queries)]
        paths[part] = folder / f"{part}.jsonl"
        write_text(paths[part], "".join(f"{line}\n" for line in lines))
    return paths


def _records(rng: random.Random, count: int) -> Iterator[dict[str, Any]]:
    """Records of `count` queries of one database."""
    with closing(sqlite3.connect(":memory:")) as connection:
        tables = _fill(connection, rng)
        keys = _rows_of_keys(connection)
        made = 0
        while made < count:
            query = draw_query(tables, rng)
            steps = count_steps(connection, query.sql)
            if steps is not None:
                made += 1
                yield _record(connection, query, steps, tables, keys)


def _fill(connection: sqlite3.Connection, rng: random.Random) -> list[Table]:
    """Makes the tables of a database, some indexes, and the statistics of ANALYZE."""
    tables: list[Table] = []
    for number in range(rng.randint(3, 6)):
        rows = round(50 * 60 ** rng.random())
        chosen = rng.sample(tables, min(len(tables), rng.choice((1, 1, 2))))
        parents = {f"{table.name}_id": table.name for table in chosen}
        values = {f"a{i}": round(2 * (rows / 2) ** rng.random()) for i in range(rng.randint(2, 4))}
        table = Table(f"t{number}", rows, parents, values)
        _create(connection, table, {t.name: t.rows for t in tables}, rng)
        tables.append(table)
    connection.execute("ANALYZE")
    return tables


def _create(
    connection: sqlite3.Connection, table: Table, sizes: Mapping[str, int], rng: random.Random
) -> None:
    names = [*table.parents, *table.attributes]
    connection.execute(f"CREATE TABLE {table.name} (id INTEGER PRIMARY KEY, {', '.join(names)})")
    ranges = [sizes[parent] for parent in table.parents.values()] + [*table.attributes.values()]
    # Some columns are skewed, as keys of real tables are.
    skews = [rng.choice((1.0, 1.0, 1.5)) for _ in names]
    draws = [*zip(ranges, skews, strict=True)]
    rows = [[int(n * rng.random() ** skew) for n, skew in draws] for _ in range(table.rows)]
    places = ", ".join("?" * len(names))
    connection.executemany(f"INSERT INTO {table.name} ({', '.join(names)}) VALUES ({places})", rows)
    for name in names:
        if rng.random() < (0.6 if name in table.parents else 0.3):
            connection.execute(f"CREATE INDEX {table.name}_{name} ON {table.name} ({name})")


def _rows_of_keys(connection: sqlite3.Connection) -> dict[str, int]:
    """Index -> the rows of one key on average, as ANALYZE counted them."""
    found = connection.execute("SELECT idx, stat FROM sqlite_stat1 WHERE idx IS NOT NULL")
    return {index: int(stat.split()[1]) for index, stat in found}


def count_steps(connection: sqlite3.Connection, sql: str) -> int | None:
    """The instructions of the virtual machine that a query takes; None if they are too many."""
    count = 0

    def look() -> bool:
        nonlocal count
        count += 1
        return count * _EVERY > _MOST_STEPS

    connection.set_progress_handler(look, _EVERY)
    try:
        connection.execute(sql).fetchall()
    except sqlite3.OperationalError as error:
        if "interrupted" not in str(error):
            raise
        return None
    finally:
        connection.set_progress_handler(None, 0)
    return (count + 1) * _EVERY


def _record(
    connection: sqlite3.Connection,
    query: Query,
    steps: int,
    tables: list[Table],
    keys: Mapping[str, int],
) -> dict[str, Any]:
    plan = [list(row) for row in connection.execute(f"EXPLAIN QUERY PLAN {query.sql}")]
    details = " ".join(row[-1] for row in plan)
    return {
        "sql": query.sql,
        "plan": plan,
        "tables": {
            table.name: {"rows": table.rows, "selectivity": query.selectivity.get(table.name, {})}
            for table in tables
            if table.name in query.tables
        },
        "indexes": {name: rows for name, rows in keys.items() if name in details},
        "cost": steps,
    }
