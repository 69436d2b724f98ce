"""Equality of two `TypedDAG`s: by what they say, not by how their strings are coded."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from graphfold.dag.typed_dag import TENSORS, TypedDAG


def equal(first: TypedDAG, second: TypedDAG) -> bool:
    """True if both hold the same graphs, in the same order, read from the same places."""
    return difference(first, second) is None


def difference(first: TypedDAG, second: TypedDAG) -> str | None:
    """The name of the first part that differs, or None if the graphs are equal.

    Strings are compared as strings, whatever their codes. A missing float (NaN) equals another.
    """
    if first.schema != second.schema:
        return "schema"
    if first.num_graphs != second.num_graphs:
        return "num_graphs"
    for name, left, right in _parts(first, second):
        if not same_values(left, right):
            return name
    for name in first.schema.spaces():
        for column in first.schema.spaces()[name]:
            if not _same_column(first, second, name, column.name):
                return f"column '{column.name}' of {name}"
    return None if _places(first) == _places(second) else "origin"


def same_values(first: Tensor, second: Tensor) -> bool:
    """True if two tensors have the same dtype, shape and values; NaN equals NaN."""
    if first.dtype != second.dtype or first.shape != second.shape:
        return False
    if not first.is_floating_point():
        return torch.equal(first, second)
    return bool(((first == second) | (first.isnan() & second.isnan())).all())


def _parts(first: TypedDAG, second: TypedDAG) -> Iterator[tuple[str, Tensor, Tensor]]:
    for name in TENSORS:
        if name != "origin":  # it numbers files, whose names are compared
            yield name, getattr(first, name), getattr(second, name)
    for edge in first.schema.relations:
        left, right = first.relations[edge.name], second.relations[edge.name]
        yield f"relation '{edge.name}'", left.ptr, right.ptr
        yield f"relation '{edge.name}'", left.index, right.index


def _same_column(first: TypedDAG, second: TypedDAG, space: str, name: str) -> bool:
    left, right = first.columns[space][name], second.columns[space][name]
    words = first.dictionaries.get((space, name))
    if words is None or words == second.dictionaries[space, name]:
        return same_values(left, right)
    code = {word: index for index, word in enumerate(words)}
    # A string that the first lacks becomes -2, which is no code at all.
    lookup = [code.get(word, -2) for word in second.dictionaries[space, name]] + [-1]
    return same_values(left, torch.tensor(lookup, device="cpu")[right])


def _places(dag: TypedDAG) -> tuple[list[str], list[list[int]]]:
    file, *place = dag.origin.T.tolist()
    names = (*dag.files, "?")  # the last one answers for -1, an unknown file
    return [names[code] for code in file], place
