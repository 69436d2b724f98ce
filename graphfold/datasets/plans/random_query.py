"""Random queries: joins along foreign keys, with conditions, groups, orders and subqueries."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from graphfold.datasets.plans.sqlite_corpus import Table

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
