"""Rows of JSON as tables in Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

#: Variant -> its row, for one setting.
Line: TypeAlias = Mapping[str, Mapping[str, Any]]

#: What a line is about, with the row's own words (a workload, say); the variants are its columns.
_SETTING = ("shape", "hidden_size", "batch_size", "phase")

#: What a table is about.
_TABLE = ("benchmark", "threads", "isa", "products", "cpu", "torch")

#: Heading -> a variant of graphfold, and the products of its plan alone: the share of their speed.
_SHARES = {
    "of the products": ("graphfold", "product_floor"),
    "every_node of its products": ("every_node", "product_floor_every_node"),
}

#: Keys of every row that have no column of their own.
_FIGURES = ("variant", "examples_per_second", "ratio", "spread")


def tables(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """A table for each benchmark, number of threads, instruction set and machine.

    Further figures in which the variants of a line differ have a table each.
    """
    for about in dict.fromkeys(tuple(row[key] for key in _TABLE) for row in rows):
        own = [row for row in rows if tuple(row[key] for key in _TABLE) == about]
        name, threads, isa, products, *_ = about
        title = f"{name}, {threads} thread{'s' * (threads > 1)}, {isa}, {products} products"
        yield f"{title}:\n\n{table(own)}"
        for figure in _varied(own):
            yield f"{title}, {figure.replace('_', ' ')}:\n\n{table(own, figure)}"


def table(rows: Sequence[Mapping[str, Any]], figure: str = "") -> str:
    """A line for each setting, a column for each variant, then what else graphfold's row says.

    Args:
        rows: of one benchmark.
        figure: what the columns of the variants hold; by default examples per second, and only
            then there are further columns.
    """
    varied = _varied(rows)
    known = (*_SETTING, *_TABLE, *_FIGURES, *varied)
    further = dict.fromkeys(key for row in rows for key in row if key not in known)
    words = [key for key in further if any(isinstance(row.get(key), str) for row in rows)]
    numbers = [key for key in further if key not in words and not figure]
    keys = [key for key in (*words, *_SETTING) if any(row.get(key) for row in rows)]
    lines: dict[tuple[Any, ...], dict[str, Mapping[str, Any]]] = {}
    for row in rows:
        lines.setdefault(tuple(row.get(key) for key in keys), {})[row["variant"]] = row
    variants = list(dict.fromkeys(row["variant"] for row in rows))
    shares = [name for name, pair in _SHARES.items() if {*pair} <= {*variants} and not figure]
    headings = [*(key.removesuffix("_size") for key in keys), *variants, *shares, *numbers]
    return markdown(
        [heading.replace("_", " ") if heading in numbers else heading for heading in headings],
        [
            [
                *map(str, setting),
                *(_cell(line.get(variant), figure) for variant in variants),
                *(_share(line, *_SHARES[name]) for name in shares),
                *(_number(line, name) for name in numbers),
            ]
            for setting, line in lines.items()
        ],
    )


def markdown(headings: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A table of texts."""
    rule = ["---"] * len(headings)
    return "\n".join("| " + " | ".join(line) + " |" for line in (headings, rule, *lines))


def _varied(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The further numbers in which variants of one setting differ."""
    keys = dict.fromkeys(key for row in rows for key in row)
    known = (*_SETTING, *_TABLE, *_FIGURES)
    words = [key for key in keys if any(isinstance(row.get(key), str) for row in rows)]
    numbers = [key for key in keys if key not in (*known, *words)]
    lines: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        setting = tuple(row.get(key) for key in (*words, *_SETTING) if key != "variant")
        lines.setdefault(setting, []).append(row)
    return [
        key
        for key in numbers
        if any(len({row[key] for row in line if key in row}) > 1 for line in lines.values())
    ]


def _cell(row: Mapping[str, Any] | None, figure: str) -> str:
    if row is None:
        return ""
    return _text(row.get(figure)) if figure else f"{row['examples_per_second']:,.0f}"


def _share(line: Line, variant: str, products: str) -> str:
    """How much of the speed of the products of its plan alone a variant reaches."""
    if not {variant, products} <= line.keys():
        return ""
    own, floor = (line[name]["examples_per_second"] for name in (variant, products))
    return f"{own / floor:.0%}"


def _number(line: Line, name: str) -> str:
    return _text(line.get("graphfold", {}).get(name))


def _text(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.3g}" if isinstance(value, float) and value < 1000 else f"{value:,.0f}"
