"""Equality of two `TypedDAG`s: strings are compared, not their codes."""

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

    Strings are compared, not their codes. A missing float (NaN) equals another.
    """
    if first.schema != second.schema:
        return "schema"
    if first.num_graphs != second.num_graphs:
        return "num_graphs"
    for name, tensor, other in _parts(first, second):
        if not same_values(tensor, other):
            return name
    for space, columns in first.schema.spaces().items():
        for column in columns:
            if not _same_column(first, second, space, column.name):
                return f"column '{column.name}' of {space}"
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
        relation, other = first.relations[edge.name], second.relations[edge.name]
        yield f"relation '{edge.name}'", relation.ptr, other.ptr
        yield f"relation '{edge.name}'", relation.index, other.index


def _same_column(first: TypedDAG, second: TypedDAG, space: str, name: str) -> bool:
    column, other = first.columns[space][name], second.columns[space][name]
    words = first.dictionaries.get((space, name))
    if words is None or words == second.dictionaries[space, name]:
        return same_values(column, other)
    code = {word: index for index, word in enumerate(words)}
    # A string that the first lacks becomes -2, which is no code.
    lookup = [code.get(word, -2) for word in second.dictionaries[space, name]] + [-1]
    return same_values(column, torch.tensor(lookup, device="cpu")[other])


def _places(dag: TypedDAG) -> tuple[list[str], list[list[int]]]:
    file, *place = dag.origin.T.tolist()
    names = (*dag.files, "?")  # the last one answers for -1, an unknown file
    return [names[code] for code in file], place
