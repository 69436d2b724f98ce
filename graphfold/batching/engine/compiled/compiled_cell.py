"""CompiledCell: the programs of one cell, and what forward and backward leave for each other."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import torch

from graphfold.batching.cell import Cell
from graphfold.batching.engine.compiled.derivatives import Gradients, differentiate
from graphfold.batching.engine.compiled.lowering import Lowered, lower
from graphfold.batching.engine.compiled.program import (
    ALL_EDGES,
    ONE,
    ROWS,
    TYPE_EDGES,
    TYPE_ROWS,
    Key,
    Place,
    Program,
    needed_values,
    write_program,
)
from graphfold.batching.engine.compiled.stages import lasting
from graphfold.batching.engine.compiled.trace import Signature, trace
from graphfold.batching.engine.compiled.values import (
    CONSTANT,
    EDGE,
    EDGES,
    FETCHES,
    GROUP,
    NODES,
    PREVIOUS,
    Value,
    View,
    X,
)

#: Where sources lie, and where their gradients go.
_SOURCES = {X: ("x", TYPE_ROWS), EDGE: ("edge", ALL_EDGES), PREVIOUS: ("given", ROWS)}
_GRADIENTS = {
    X: ("x_grad", TYPE_ROWS),
    EDGE: ("column_grad", ALL_EDGES),
    PREVIOUS: ("given_grad", ROWS),
    "gather": ("edge_grad", ALL_EDGES),
    "gather_sum": ("node_grad", ROWS),
    "gather_weighted": ("weighted_grad", ROWS),
    "gather_previous": ("previous_grad", ROWS),
}
#: What backward computes again instead of reading what forward kept of it.
_CHEAP = (*FETCHES, "count_edges", "integer", "fill", "standardise")


class Rows(NamedTuple):
    """One factor of the gradient of a weight: rows in a buffer of the pass.

    Args:
        key: the buffer; of children where they lie, ("read", field).
        offset: of the first number.
        row: from one row to the next.
        of_edges: whether there is a row for each edge of the type, or for each node.
        parts: how many children a row consists of, where they lie apart; 0 if it lies in one piece.
    """

    key: Key
    offset: int
    row: int
    of_edges: bool
    parts: int = 0


class WeightGradient(NamedTuple):
    """The gradient of a weight [k, m], x.T @ grad, and of a bias: the numbers of constants."""

    weight: int
    bias: int | None
    x: Rows
    grad: Rows


@dataclass(frozen=True)
class CompiledCell:
    """The programs of one cell.

    Args:
        lowered: what the cell computes.
        forward: the program of forward; it keeps what backward reads, if there is one.
        backward: the program of backward, or None.
        kept: what forward writes besides fields -> (space, numbers per row); backward reads it.
        buffers: what backward writes -> the same.
        products: the gradients of weights.
        accumulated: the numbers of constants whose gradient is added up -> their sizes.
        tables: the tables of edges that get a gradient.
    """

    lowered: Lowered
    forward: Program
    backward: Program | None = None
    kept: Mapping[Key, tuple[int, int]] = field(default_factory=dict)
    buffers: Mapping[Key, tuple[int, int]] = field(default_factory=dict)
    products: Sequence[WeightGradient] = ()
    accumulated: Mapping[int, int] = field(default_factory=dict)
    tables: tuple[str, ...] = ()

    @cached_property
    def reads(self) -> frozenset[str]:
        """The parts of x that it reads."""
        return frozenset(value.name for value in self.lowered.values if value.operation == X)

    @cached_property
    def reads_tables(self) -> frozenset[str]:
        """The tables of edges that it reads."""
        values = self.lowered.values
        return frozenset(value.name for value in values if value.operation == "look_up")

    @cached_property
    def read_constants(self) -> frozenset[Key]:
        """The constants that are read as they lie, not as packed weights."""
        programs = [self.forward, *([self.backward] if self.backward is not None else [])]
        read = {key for program in programs for key in program.keys if key[0] == "constant"}
        biases = {w.bias for program in programs for w in program.weights if w.bias is not None}
        return frozenset(read | {("constant", str(number)) for number in biases})

    def reads_back(self, key: Key) -> bool:
        """True if backward reads a part of x; what it computes from is kept anyway."""
        by_program = self.backward is not None and key in self.backward.keys
        return by_program or any(product.x.key == key for product in self.products)

    @cached_property
    def takes_means(self) -> bool:
        """True if it takes means over all nodes of a group."""
        return any(kind == "group" for kind, _ in self.kept)

    def reads_integers(self, name: str) -> bool:
        """True if it asks for "child_count" or "position" of its children."""
        return (name, "") in self.forward.keys


def compile_cell(
    cell: Cell, signature: Signature, written: frozenset[str], is_known: bool = False
) -> CompiledCell:
    """The programs of a cell.

    Args:
        cell: the cell.
        signature: what it may read.
        written: the fields that the pass writes.
        is_known: see `trace`.

    Raises:
        Untraceable: if it cannot be traced, or does something that native code does not.
    """
    found = trace(cell, signature, is_known)
    lowered = lower(cell, found, signature)
    places = _output_places(lowered)
    results = _copied_outputs(lowered, places)
    sources = {
        value: _source_place(value) for value in lowered.values if value.operation in _SOURCES
    }
    of_groups = _group_places(lowered.values)
    if not signature.differentiate:
        values = _computed(lowered, [])
        saved = _saved_places(value for value in lasting(values) if value not in places)
        kept = _sizes(of_groups | saved)
        given = sources | places | of_groups | saved
        program = write_program(signature.dtype, values, given, results)
        return CompiledCell(lowered, program, kept=kept)
    needed = _needed(signature, written, lowered)
    gradients = differentiate(lowered.values, lowered.outputs, needed, signature.arity)
    assembly = _Assembly(lowered, gradients, sources | places | of_groups, results)
    return assembly.build(signature.dtype)


def _source_place(value: Value) -> Place:
    kind, space = _SOURCES[value.operation]
    return Place((kind, value.name), space, value.size)


def _output_places(lowered: Lowered) -> dict[Value, Place]:
    """The values that are computed where the state of their field lies."""
    places: dict[Value, Place] = {}
    for name, view in lowered.outputs.items():
        own = view.value
        if view.is_all and own.space == NODES and own.operation not in (*_SOURCES, CONSTANT):
            places.setdefault(own, Place(("state", name), ROWS, own.size))
    return places


def _group_places(values: Sequence[Value]) -> dict[Value, Place]:
    """The places of the values of a group: there is one row of each."""
    return {v: Place(("group", v.name), ONE, v.size) for v in values if v.space == GROUP}


def _saved_places(values: Iterable[Value], kind: str = "saved") -> dict[Value, Place]:
    """Places with a row for each node or edge of the type."""
    return {
        value: Place((kind, str(number)), _own_space(value.space), value.size)
        for number, value in enumerate(values)
    }


def _sizes(places: Mapping[Value, Place]) -> dict[Key, tuple[int, int]]:
    """The buffers that are to be allocated for places: key -> (space, numbers per row)."""
    return {place.key: (place.space, place.size) for place in places.values()}


def _own_space(space: str) -> int:
    return TYPE_EDGES if space == EDGES else TYPE_ROWS


def _copied_outputs(lowered: Lowered, places: Mapping[Value, Place]) -> list[tuple[View, Place]]:
    """The outputs that are copied to where the state of their field lies."""
    found = []
    for name, view in lowered.outputs.items():
        place = Place(("state", name), ROWS, math.prod(view.shape))
        if places.get(view.value) != place:
            found.append((view, place))
    return found


def _computed(lowered: Lowered, more: Sequence[Value]) -> list[Value]:
    """The values that outputs, and some others, are computed from."""
    wanted = [*(view.value for view in lowered.outputs.values()), *more]
    return [v for v in needed_values(lowered.values, wanted) if v.operation not in _SOURCES]


def _needed(
    signature: Signature, written: frozenset[str], lowered: Lowered
) -> Callable[[Value], bool]:
    """True if the gradient of a source or constant is wanted."""
    wants = {(X, name): wanted for name, *_, wanted in signature.x}
    wants |= {(EDGE, name): wanted for name, *_, wanted in signature.edge}
    given = dict(signature.given)

    def needed(value: Value) -> bool:
        if value.operation == CONSTANT:
            return bool(value.name) and int(value.name) in lowered.learned
        if value.operation == PREVIOUS:
            return given.get(value.name, False)
        if value.operation == "look_up":
            return wants[EDGE, value.name]
        if value.operation in FETCHES:
            return value.name in written or given.get(value.name, False)
        return wants[value.operation, value.name]

    return needed


class _Assembly:
    """Decides what lies where, so that forward, backward and the gradients of weights meet."""

    def __init__(
        self,
        lowered: Lowered,
        gradients: Gradients,
        places: Mapping[Value, Place],
        results: Sequence[tuple[View, Place]],
    ) -> None:
        self._lowered, self._gradients = lowered, gradients
        self._forward_places = dict(places)
        self._places = dict(places)  # of backward
        self._results: list[tuple[View, Place]] = []
        self._forward_results = list(results)
        self._own = set(gradients.values)
        self._kept = _sizes(_group_places(lowered.values))
        self._places |= (of_groups := _group_places(gradients.values))
        self._buffers = _sizes(of_groups)
        self._again: list[Value] = []
        self._saved: list[Value] = []

    def build(self, dtype: torch.dtype) -> CompiledCell:
        """The programs."""
        gradients = self._gradients
        tables = {n: view for (kind, n), view in gradients.sources.items() if kind == "look_up"}
        for (operation, name), view in gradients.sources.items():
            if operation in _GRADIENTS:
                kind, space = _GRADIENTS[operation]
                self._put(view, (kind, name), space)
        self._keep_weights()
        products = [self._product(number) for number in range(len(gradients.products))]
        wanted = [view.value for view, _ in self._results]
        wanted += [value for value in self._places if value in self._own]
        wanted += [grad.value for pairs in gradients.constants.values() for _, grad in pairs]
        wanted += [view.value for view in tables.values()]
        own = needed_values(gradients.values, wanted)
        kept = self._keep(own)
        values = _computed(self._lowered, kept)
        for value in lasting(values):
            if value not in self._forward_places:
                self._save(value)
        forward = write_program(dtype, values, self._forward_places, self._forward_results)
        values = [*self._again, *own]
        again = [value for value in lasting(values) if value not in self._places]
        lasts = _saved_places(again, "lasting")
        self._places |= lasts
        self._buffers |= _sizes(lasts)
        backward = write_program(
            dtype, values, self._places, self._results, gradients.constants, tables
        )
        sizes = {int(value.name): value.size for value in gradients.constants}
        return CompiledCell(
            self._lowered,
            forward,
            backward,
            self._kept,
            self._buffers,
            products,
            sizes,
            tuple(tables),
        )

    def _keep_weights(self) -> None:
        """Lets forward leave the weights of weighted sums where the rows find them that pull."""
        for value in self._lowered.values:
            if (value.operation, value.name) not in self._gradients.sources:
                continue
            if value.operation == "gather_weighted":
                (weight,) = value.inputs
                place = Place(("edge_weight", value.name), ALL_EDGES, 1)
                self._kept[place.key] = ALL_EDGES, 1
                if weight.is_all and weight.value not in self._forward_places:
                    self._forward_places[weight.value] = self._places[weight.value] = place
                else:
                    self._forward_results.append((weight, place))

    def _put(self, view: View, key: Key, space: int) -> None:
        """Lets a view of backward be computed in a buffer, or be copied there."""
        place = Place(key, space, math.prod(view.shape))
        if view.is_all and view.value in self._own and view.value not in self._places:
            self._places[view.value] = place
            self._buffers[key] = space, place.size
        else:
            self._put_copy(view, key, space)

    def _put_copy(self, view: View, key: Key, space: int) -> None:
        """Lets a view be copied to a buffer."""
        size = math.prod(view.shape)
        self._results.append((view, Place(key, space, size)))
        self._buffers[key] = space, size

    def _product(self, number: int) -> WeightGradient:
        product = self._gradients.products[number]
        bias = None if product.bias is None else int(product.bias.name)
        x = self._rows(product.x, ("kept", f"x{number}"))
        grad = self._rows(product.grad, ("kept", f"grad{number}"))
        return WeightGradient(int(product.weight.name), bias, x, grad)

    def _rows(self, view: View, key: Key) -> Rows:
        """The place of a factor's rows; they are copied unless they lie one after the other."""
        value, of_edges = view.value, view.space == EDGES
        if value.operation == "gather" and view.is_all:
            parts = view.row // value.size
            return Rows(("read", value.name), 0, value.size, of_edges, parts)
        space = _own_space(view.space)
        place = self._places.get(value)
        if place is None and value in self._own and view.is_all:
            self._put(view, key, space)
            return Rows(key, 0, view.row, of_edges)
        is_kept = place is None and value not in self._own and value.operation not in _CHEAP
        if is_kept and value.operation != CONSTANT and view.space == value.space:
            place = self._save(value)
        if place is not None and place.space == space and view.space == value.space:
            return Rows(place.key, view.offset, view.row, of_edges)
        self._put_copy(view, key, space)
        return Rows(key, 0, math.prod(view.shape), of_edges)

    def _keep(self, own: Sequence[Value]) -> list[Value]:
        """The values that forward keeps; the cheap ones are computed again."""
        views = [view for value in own for view in value.inputs]
        views += [view for view, _ in self._results]
        views += [grad for pairs in self._gradients.constants.values() for _, grad in pairs]
        views += [v for (kind, _), v in self._gradients.sources.items() if kind == "look_up"]
        read = dict.fromkeys(
            view.value
            for view in views
            if view.value not in self._own and view.value.operation != CONSTANT
        )
        again = {value for value in read if value.operation in _CHEAP}
        for value in read:
            if value not in again and value not in self._forward_places:
                self._save(value)
        self._again = [value for value in self._lowered.values if value in again]
        return self._saved

    def _save(self, value: Value) -> Place:
        """Lets forward keep a value for backward."""
        space = _own_space(value.space)
        place = Place(("saved", str(len(self._saved))), space, value.size)
        self._forward_places[value] = self._places[value] = place
        self._kept[place.key] = space, value.size
        self._saved.append(value)
        return place
