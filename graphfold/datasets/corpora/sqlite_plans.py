"""Random queries over random databases of SQLite, with their plans and what they took.

Queries join tables along foreign keys, with conditions, groups, orders and subqueries.
"""

from __future__ import annotations

import json
import math
import random
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from graphfold.errors import ConfigError
from graphfold.files import write_text

_MOST_TABLES = 4


@dataclass
class Query:
    """A query with what a database could estimate of it.

    Args:
        sql: its text.
        tables: the tables that it reads.
        selectivity: table -> column -> the share of rows that the conditions on it keep, as if its
            values were uniform.
    """

    sql: str = ""
    tables: list[str] = field(default_factory=list)
    selectivity: dict[str, dict[str, float]] = field(default_factory=dict)

    def condition(self, table: str, column: str, share: float) -> None:
        """Notes one condition more."""
        known = self.selectivity.setdefault(table, {})
        known[column] = known.get(column, 1.0) * share


def draw_query(tables: Sequence[Table], rng: random.Random) -> Query:
    """A query over one to four of the tables."""
    by_name = {table.name: table for table in tables}
    query = Query()
    joins = _draw_joins(tables, rng, query)
    conditions = list(joins)
    chosen = [name for name in query.tables if rng.random() < 0.6]
    conditions += [_draw_condition(by_name[name], rng, query) for name in chosen]
    outside = [name for name in by_name if name not in query.tables]
    if outside and rng.random() < 0.2:
        conditions += _draw_subquery(by_name, rng.choice(outside), rng, query)
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    joined = query.tables[: len(joins) + 1]
    query.sql = _draw_result(f"FROM {', '.join(joined)}{where}", by_name[joined[0]], rng)
    return query


def _draw_joins(tables: Sequence[Table], rng: random.Random, query: Query) -> list[str]:
    """Chooses tables that hang together; returns the conditions that join them."""
    query.tables = [rng.choice(tables).name]
    joins = []
    for _ in range(rng.randint(0, _MOST_TABLES - 1)):
        ways = [
            (child.name, key, parent)
            for child in tables
            for key, parent in child.parents.items()
            if (child.name in query.tables) != (parent in query.tables)
        ]
        if not ways:
            break
        child, key, parent = rng.choice(ways)
        query.tables.append(parent if child in query.tables else child)
        joins.append(f"{child}.{key} = {parent}.id")
    return joins


def _draw_condition(table: Table, rng: random.Random, query: Query) -> str:
    name, count = rng.choice([*table.attributes.items()])
    value = rng.randrange(count)
    if rng.random() < 0.4:
        query.condition(table.name, name, 1 / count)
        return f"{table.name}.{name} = {value}"
    if rng.random() < 0.7:
        query.condition(table.name, name, value / count)
        return f"{table.name}.{name} < {value}"
    high = rng.randrange(value, count)
    query.condition(table.name, name, (high - value + 1) / count)
    return f"{table.name}.{name} BETWEEN {value} AND {high}"


def _draw_subquery(
    by_name: Mapping[str, Table], inner: str, rng: random.Random, query: Query
) -> list[str]:
    """Keeps the rows of a child whose parent meets a condition of its own."""
    keys = [(n, k) for n in query.tables for k, p in by_name[n].parents.items() if p == inner]
    if not keys:
        return []
    child, key = rng.choice(keys)
    condition = _draw_condition(by_name[inner], rng, query)
    query.condition(child, key, math.prod(query.selectivity[inner].values()))
    query.tables.append(inner)
    return [f"{child}.{key} IN (SELECT id FROM {inner} WHERE {condition})"]


def _draw_result(source: str, table: Table, rng: random.Random) -> str:
    column = f"{table.name}.{rng.choice([*table.attributes])}"
    other = f"{table.name}.{rng.choice([*table.attributes])}"
    return rng.choice(
        (
            f"SELECT count(*) {source}",
            f"SELECT sum({other}) {source}",
            f"SELECT {column}, count(*) {source} GROUP BY {column}",
            f"SELECT {column}, {other} {source} ORDER BY {other}",
            f"SELECT DISTINCT {column} {source}",
            f"SELECT {column}, {table.name}.id {source}",
        )
    )


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
