"""Assembly: where all that a cell computes lies, so that forward, backward and weights meet."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import torch

from graphfold.batching.cell import Cell
from graphfold.batching.compiler import operations as op
from graphfold.batching.compiler.backend import Backend
from graphfold.batching.compiler.compiled_cell import CompiledCell
from graphfold.batching.compiler.derivatives import Gradients, differentiate
from graphfold.batching.compiler.lowering import Lowered, lower
from graphfold.batching.compiler.order import (
    costs_nothing,
    is_cheap,
    lasting,
    placed_before_readers,
)
from graphfold.batching.compiler.program import (
    ALL_EDGES,
    ONE,
    ROWS,
    TYPE_EDGES,
    TYPE_ROWS,
    Key,
    Place,
    Rows,
    WeightGradient,
)
from graphfold.batching.compiler.trace import Signature, trace
from graphfold.batching.compiler.values import (
    CONSTANT,
    COPY,
    EDGES,
    GROUP,
    SINK,
    Value,
    View,
    needed_values,
)


def compile_cell(cell: Cell, signature: Signature, backend: Backend) -> CompiledCell:
    """The programs of a cell.

    Args:
        cell: the cell.
        signature: what it may read.
        backend: what runs them.

    Raises:
        Untraceable: if it cannot be traced, or does something that programs do not.
        Unwritable: if it can, but the backend has no program for it.
    """
    traced = trace(cell, signature)
    lowered = lower(cell, traced, signature)
    traced.release()
    places = _group_places(lowered.values)
    for value in lowered.values:
        if value.operation.source is not None:
            kind, space = value.operation.source
            places[value] = Place((kind, value.name), space, value.size)
    for name, view in lowered.outputs.items():
        places[view.value] = Place(("state", name), ROWS, view.value.size)
    gradients = Gradients([])
    if signature.differentiate:
        needed = _needed(signature, lowered)
        gradients = differentiate(lowered.values, lowered.outputs, needed, signature.arity)
    assembly = _Assembly(lowered, gradients, places, backend)
    return assembly.build(signature.dtype, signature.differentiate)


def _group_places(values: Sequence[Value]) -> dict[Value, Place]:
    """The places of the values that a group has once, in one row each."""
    own = (v for v in values if v.space == GROUP and v.operation.kind != SINK)
    return {value: Place(("group", value.name), ONE, value.size) for value in own}


def _sizes(places: Mapping[Value, Place]) -> dict[Key, tuple[int, int]]:
    """The buffers that are to be allocated for places: key -> (space, numbers per row)."""
    return {place.key: (place.space, place.size) for place in places.values()}


def _own_space(space: str) -> int:
    return TYPE_EDGES if space == EDGES else TYPE_ROWS


def _needed(signature: Signature, lowered: Lowered) -> Callable[[Value], bool]:
    """True if the gradient of a source or constant is wanted."""
    x, edge = (
        {name: wanted for name, *_, wanted in kinds} for kinds in (signature.x, signature.edge)
    )
    given = dict(signature.given)
    read = {**given, **dict.fromkeys(signature.written, True)}
    by_operation = {op.X: x, op.EDGE: edge, op.LOOK_UP: edge, op.PREVIOUS: given}

    def needed(value: Value) -> bool:
        if value.operation is CONSTANT:
            return value.literal is None and int(value.name) in lowered.learned
        return by_operation.get(value.operation, read).get(value.name, False)

    return needed


class _Assembly:
    """Decides what lies where, so that forward, backward and the gradients of weights meet."""

    def __init__(
        self,
        lowered: Lowered,
        gradients: Gradients,
        places: Mapping[Value, Place],
        backend: Backend,
    ) -> None:
        self._lowered, self._gradients, self._backend = lowered, gradients, backend
        self._forward, self._backward = list(lowered.values), gradients.values
        self._forward_places = dict(places)
        self._own = set(gradients.values)
        self._kept = _sizes(_group_places(lowered.values))
        self._places = {**places, **(of_groups := _group_places(gradients.values))}  # of backward
        self._buffers = _sizes(of_groups)

    def build(self, dtype: torch.dtype, with_backward: bool) -> CompiledCell:
        """The programs, written by the backend."""
        gradients, backward = self._gradients, None
        for (operation, name), view in gradients.sources.items():
            if operation.gradient is not None:
                kind, space = operation.gradient
                self._put(view, (kind, name), space)
        self._keep_weights()
        products = [
            self._product(number, value, grad)
            for number, (value, grad) in enumerate(gradients.products.items())
        ]
        own = self._wanted(self._backward, self._places)
        own = placed_before_readers(self._keep(own), own)
        forward = self._wanted(self._forward, self._forward_places)
        for value in lasting(forward):
            if value not in self._forward_places:
                self._save(value)
        if with_backward:
            for value in lasting(own):
                if value not in self._places:
                    key = "lasting", str(len(self._buffers))
                    self._place(value, key, _own_space(value.space), value.size)
            backward = self._backend.write_program(dtype, own, self._places)
        return CompiledCell(
            self._lowered,
            self._backend,
            self._backend.write_program(dtype, forward, self._forward_places),
            backward,
            self._kept,
            self._buffers,
            products,
            {int(v.name): v.number.value.size for v in own if v.operation is op.ACCUMULATE},
            tuple(v.name for v in own if v.operation is op.LOOK_UP_ADD),
        )

    @staticmethod
    def _wanted(values: Sequence[Value], places: Mapping[Value, Place]) -> list[Value]:
        """The values that results need, directly or through others."""
        wanted = [value for value in values if value in places or value.operation.kind == SINK]
        return [v for v in needed_values(values, wanted) if v.operation.source is None]

    def _keep_weights(self) -> None:
        """Lets forward leave the weights of weighted sums where the rows find them that pull."""
        for value in self._lowered.values:
            is_asked = (value.operation, value.name) in self._gradients.sources
            if value.operation is op.GATHER_WEIGHTED and is_asked:
                (weight,) = value.inputs
                if not weight.is_all or weight.value in self._forward_places:
                    weight = _copied(weight, self._forward)
                self._save(weight.value, Place(("edge_weight", value.name), ALL_EDGES, 1))

    def _place(self, value: Value, key: Key, space: int, size: int) -> None:
        self._places[value] = Place(key, space, size)
        self._buffers[key] = space, size

    def _put(self, view: View, key: Key, space: int) -> None:
        """Lets a view of backward be computed in a buffer, or be copied there."""
        if not view.is_all or view.value not in self._own or view.value in self._places:
            view = _copied(view, self._backward)
        self._place(view.value, key, space, math.prod(view.shape))

    def _product(self, number: int, value: Value, grad: View) -> WeightGradient:
        x, *constants = value.inputs
        weight, *biases = (int(view.value.name) for view in constants)
        return WeightGradient(
            weight,
            next((bias for bias in biases if bias in self._lowered.learned), None),
            self._rows(x, ("kept", f"x{number}")),
            self._rows(grad, ("kept", f"grad{number}")),
            value.operation is op.MULTIPLY_TRANSPOSED,
        )

    def _rows(self, view: View, key: Key) -> Rows:
        """The place of a factor's rows; they are copied unless they lie one after the other."""
        value, of_edges = view.value, view.space == EDGES
        if value.operation is op.GATHER and view.is_all:
            parts = view.row // value.size
            return Rows(("read", value.name), 0, value.size, of_edges, parts)
        space, place = _own_space(view.space), self._places.get(value)
        if view.space == value.space and (place or value not in self._own):
            if place is None and not self._is_cheap(value) and value.operation is not CONSTANT:
                place = self._save(value)
            if place is not None and place.space == space:
                return Rows(place.key, view.offset, view.row, of_edges)
            if place is None and self._is_cheap(value) and view.is_all:  # computed again
                self._place(value, key, space, value.size)
                return Rows(key, 0, value.size, of_edges)
        self._put(view, key, space)
        return Rows(key, 0, math.prod(view.shape), of_edges)

    def _keep(self, own: Sequence[Value]) -> list[Value]:
        """Has forward keep what backward reads; returns what backward computes again."""
        read, again = {view.value for value in own for view in value.inputs}, []
        read |= self._places.keys() - self._forward_places.keys()
        for value in reversed(self._lowered.values):
            if value in read and self._is_cheap(value) and value not in self._forward_places:
                read |= {view.value for view in value.inputs}
                again.append(value)
            elif value in read and value not in self._places:
                self._save(value)
        return again[::-1]

    def _is_cheap(self, value: Value) -> bool:
        return is_cheap(value) if self._backend.recomputes else costs_nothing(value)

    def _save(self, value: Value, place: Place | None = None) -> Place:
        """Lets forward keep a value for backward, in a certain place or in one of its own."""
        key = "saved", str(len(self._kept))
        place = place or Place(key, _own_space(value.space), value.size)
        self._forward_places[value] = place
        self._places.setdefault(value, place)  # a factor of a weight's gradient may lie elsewhere
        self._kept[place.key] = place.space, value.size
        return place


def _copied(view: View, values: list[Value]) -> View:
    """A copy of a view, which is computed behind some values."""
    value = Value(COPY, view.space, view.shape, (view,))
    values.append(value)
    return value.view
