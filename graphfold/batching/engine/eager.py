"""The eager way to run a pass: the cells' own code, group by group, under ordinary autograd.

It runs whatever autograd runs, double backward included. Each group's output stays a tensor of its
own until all are joined, and whatever groups read parts of is cut up once for all of them; so time
and memory grow with the nodes and edges, however deep the graphs are.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

from torch import Tensor

from graphfold.batching.cell import Cell, NodeInput
from graphfold.batching.check_states import check_state, unknown_field
from graphfold.batching.children import Children, StateReader
from graphfold.batching.engine.group_states import GroupStates, LevelStates, RoundStates
from graphfold.batching.engine.pass_inputs import (
    LazyColumns,
    PassInputs,
    parts,
    select_columns,
)
from graphfold.batching.engine.refusals import refuse_group_statistics
from graphfold.batching.engine.rounds import RoundsInputs
from graphfold.batching.engine.typed_fields import TypedFields
from graphfold.batching.native.linear import NativeLinear
from graphfold.batching.scheduling.schedule import Group
from graphfold.errors import SchemaError


def run_eager(inputs: PassInputs) -> dict[str, Tensor]:
    """Runs one Up or Down pass; arguments and result as in `run_compiled`.

    Raises:
        EngineError: if a cell takes or keeps statistics over a group.
        ShapeError: if a cell returns something else than its fields.
    """
    states, seen = LevelStates(inputs), set[Cell]()

    def check(cell: Cell) -> AbstractContextManager[None]:
        if cell in seen:  # what a cell does in one group it does in every group
            return nullcontext()
        seen.add(cell)
        return refuse_group_statistics(cell)

    _run_groups(inputs, states, check)
    return {**inputs.given, **states.join()}


def run_eager_rounds(inputs: RoundsInputs, use_native: bool) -> TypedFields:
    """Runs rounds of message passing, each cell once per type and round.

    So they may normalise over all nodes of a type.

    Args:
        inputs: the rounds.
        use_native: whether linear layers are native products.

    Raises:
        ShapeError: if a cell returns something else than its fields.
    """
    states, one_pass = RoundStates(inputs), inputs.as_pass
    edge = select_columns(inputs.edge, one_pass.plan.edge)
    wrap = NativeLinear if use_native else nullcontext
    _run_groups(replace(one_pass, edge=edge), states, lambda cell: wrap())
    return inputs.result(states.last())


def _run_groups(
    inputs: PassInputs,
    states: GroupStates,
    context: Callable[[Cell], AbstractContextManager[object]],
) -> None:
    """Runs all groups; cells are called in the context that belongs to them."""
    read = GroupInputs(inputs)
    for group in inputs.plan.groups:
        cell = inputs.cells.get(group.op_type)
        new: Mapping[str, Tensor] = {}
        if cell is not None:
            with context(cell):
                new = _call(cell, inputs, group, states, read)
        states.add(group, new)


def _call(
    cell: Cell, inputs: PassInputs, group: Group, states: GroupStates, read: GroupInputs
) -> Mapping[str, Tensor]:
    children = Children(
        EagerReader(inputs, states, group),
        group.size,
        cell.arity,
        read.edge(group),
        inputs.shared,
        inputs.readable[group.op_type],
        inputs.relations,
        inputs.kernel,
    )
    new: Mapping[str, Tensor] = cell(read.x(group), children)
    check_state(cell, new, group.size)
    return {name: new[name] for name in cell.fields}


class EagerReader(StateReader):
    """Reads the children of one group.

    Args:
        inputs: the pass.
        states: what the groups before have computed.
        group: the group that reads.
    """

    def __init__(self, inputs: PassInputs, states: GroupStates, group: Group) -> None:
        self._inputs, self._plan = inputs, states.plan
        self._states = states
        self._group = group
        self.parent = self._plan.group_parent(group)
        self.ptr = self._plan.group_ptr(group)

    def rows(self, field: str) -> Tensor:
        return self._states.children(field, self._group)

    def child_count(self) -> Tensor:
        return self._plan.child_counts[self._group.edges]

    def is_self(self) -> Tensor:
        return self._plan.self_loops[self._group.edges]

    def sum(self, field: str, weight: Tensor | None) -> Tensor:
        return self._states.sum(field, weight, self._group)

    def previous(self, field: str) -> Tensor:
        return self._states.previous(field, self._group)

    def of_relation(self, relation: str) -> tuple[StateReader, Mapping[str, Tensor]]:
        states = self._states.of_relation(relation)
        group = states.plan.types[self._group.op_type]
        columns = self._inputs.relations[relation]
        edges = states.plan.edge_index.derive(group.start, lambda rows: rows[group.edges])
        return EagerReader(self._inputs, states, group), select_columns(columns, edges)

    def unknown_field(self, field: str, names: Collection[str]) -> SchemaError:
        return unknown_field(self._inputs.cells[self._group.op_type], field, names)


class GroupInputs:
    """The inputs of groups besides state, cut up for all of them at once.

    Args:
        inputs: the pass.
    """

    def __init__(self, inputs: PassInputs) -> None:
        self._inputs, self._plan = inputs, inputs.plan
        self._edge: dict[str, dict[int, Tensor]] = {}
        self._x = {
            op_type: {name: self._plan.split_type(part, op_type) for name, part in parts(value)}
            for op_type, value in inputs.x.items()
            if len(self._plan.groups_by_type.get(op_type, ())) != 1
        }

    def x(self, group: Group) -> NodeInput:
        """The rows of a group of what `Cell.before` returned."""
        whole = self._inputs.x[group.op_type]
        if group.op_type not in self._x:
            return whole
        own = {name: rows[group.start] for name, rows in self._x[group.op_type].items()}
        return own[""] if isinstance(whole, Tensor) else own

    def edge(self, group: Group) -> Mapping[str, Tensor]:
        """The columns of a group's edges, or what its cell has made of them."""
        inputs = self._inputs
        if group.op_type in inputs.tables and inputs.kind is not None:
            kind = inputs.kind.derive(group.start, lambda rows: rows[group.edges])
            return select_columns(inputs.tables[group.op_type], kind)
        return LazyColumns(inputs.edge.keys(), lambda name: self._split_edges(name)[group.start])

    def _split_edges(self, name: str) -> dict[int, Tensor]:
        if name not in self._edge:
            self._edge[name] = self._plan.split_edges(self._inputs.edge[name])
        return self._edge[name]
