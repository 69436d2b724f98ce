"""The ways in which the cells of a model ran, in words for its user."""

from __future__ import annotations

from graphfold.layers import Model

#: Types that are named one by one; more are counted.
MAX_NAMED = 6


def describe_ways(model: Model) -> str:
    """Such as "leaf, node compiled" or "node as it is (reason)"; "" if no cell says how it ran."""
    types: dict[str, list[str]] = {}  # how -> the types that ran so
    for name, how in model.network.ways.items():
        types.setdefault(" ".join(how.split()), []).append(name)
    return "; ".join(
        f"{', '.join(names) if len(names) <= MAX_NAMED else f'{len(names)} types'} {how}"
        for how, names in types.items()
    )
