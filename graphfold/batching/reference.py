"""The reference: one node at a time, straight from the graph; the definition of correct.

It reads like the algorithm and shares nothing with the engines but the cell interface and what a
forward is given: no plan, no rows, no buffers. Call it with cells and inputs in float64 to judge
the others.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from graphfold._torch import outside_modes
from graphfold.batching.cell import Cell, NodeInput
from graphfold.batching.check_states import as_mapping, check_state, unknown_field
from graphfold.batching.children import Children, Readable, StateReader
from graphfold.batching.engine.field_sources import FieldsByType, FieldSources
from graphfold.batching.engine.pass_inputs import (
    as_many,
)
from graphfold.batching.engine.rounds import select
from graphfold.batching.run import RunInputs
from graphfold.batching.scheduling.passes import Down, Pass, Rounds, Up
from graphfold.batching.states import States
from graphfold.dag import TypedDAG
from graphfold.dag.depth import input_edges, longest_path
from graphfold.errors import SchemaError

NodeState = dict[str, Tensor]  # field -> [width]
#: Of every node, (edge number, node read) in order; -1 for an absent child.
Neighbours = list[list[tuple[int, int]]]


class ReferenceRun:
    """A forward of the reference: a dict of tensors per node."""

    def __init__(self, inputs: RunInputs) -> None:
        self.inputs = inputs
        self.batch = inputs.batch
        self.states: list[dict[str, Tensor]] = [{} for _ in range(inputs.batch.dag.num_nodes)]
        self.widths: dict[str, int] = {}

    def step(self, index: int, item: Pass, sources: FieldSources) -> None:
        """Runs a pass with the cells of `sources`."""
        columns, dag = self.inputs.edge_columns(item), self.batch.dag
        num_edges = sum(dag.num_rows(space) for space in item.spaces)
        along = {name: neighbours(dag, Rounds(name, 1)) for name in item.relations}
        for number, cells in enumerate(sources.cells_by_round):
            for cell in cells.values():
                self.widths |= cell.fields
            inputs = _PassInputs(
                dag=dag,
                cells=cells,
                x={t: self._before(t, cell) for t, cell in cells.items()},
                absent=self.inputs.absent,
                edge={
                    t: as_many(cell.before_edges(columns), num_edges, cell, "before_edges")
                    for t, cell in cells.items()
                },
                relations=self.inputs.relation_columns(item),
                along=along,
                shared=self.inputs.shared,
                readable=sources.readable(number),
                widths=self.widths,
            )
            if number == 0:
                self._initial(inputs, sources)
            self.states = _run_pass(inputs, item, self.states)

    def _before(self, op_type: int, cell: Cell) -> NodeInput:
        """The result of `Cell.before` for every node of a type."""
        x, sources = self.inputs.of_type(op_type, cell), self.batch.schedule.sources
        x = x if sources is None else select(x, sources[op_type].of)
        found = self.inputs.before(op_type, cell, x)
        return as_many(found, self.inputs.num_nodes(op_type), cell, "before")

    def _initial(self, inputs: _PassInputs, sources: FieldSources) -> None:
        for op_type, cell in inputs.cells.items():
            nodes, names = self.inputs.nodes(op_type).tolist(), sources.initial(op_type)
            if nodes and names:
                state = cell.initial(inputs.x[op_type])
                check_state(cell, state, len(nodes))
                for position, node in enumerate(nodes):
                    self.states[node] |= {name: state[name][position] for name in names}

    def after(self, op_type: int, cell: Cell) -> list[str]:
        """Joins what `Cell.after` makes of each node; returns the names of the new fields."""
        nodes = self.inputs.nodes(op_type).tolist()
        device = self.batch.dag.op_type.device
        empty = {
            name: torch.zeros(0, width, dtype=torch.float64, device=device)
            for name, width in cell.fields.items()
        }
        new = as_mapping(cell.after(empty), cell, "after")
        self.widths |= {name: value.shape[1] for name, value in new.items()}
        for node in nodes:
            state = {name: self.states[node][name].unsqueeze(0) for name in cell.fields}
            values = as_many(cell.after(state), 1, cell, "after")
            self.states[node] |= {name: value[0] for name, value in values.items()}
        return list(new)

    def result(self, of_type: FieldsByType) -> States:
        """The state after all passes; `of_type` lists the fields of each type."""
        fields = {name: self._field(name, width) for name, width in self.widths.items()}
        dag = self.batch.dag
        row = torch.arange(1, dag.num_nodes + 1, device=dag.op_type.device)
        return States(fields, row, of_type)

    def _field(self, name: str, width: int) -> Tensor:
        present = [state[name] for state in self.states if name in state]
        dtype = present[0].dtype if present else torch.float64
        zeros = torch.zeros(width, dtype=dtype, device=self.batch.dag.op_type.device)
        # Row 0 belongs to no node. The engines keep there what absent children read, so a learned
        # one has the gradient zero here as there if no child is absent.
        absent = self.inputs.absent.get(name, zeros).to(dtype)
        return torch.stack([absent, *(state.get(name, zeros) for state in self.states)])


@dataclass(frozen=True)
class _PassInputs:
    """The graph and what the cells of a pass, or of a round, may read, in node order."""

    dag: TypedDAG
    cells: Mapping[int, Cell]
    x: Mapping[int, NodeInput]  # op type -> [num_nodes_of_type, ...]
    absent: Mapping[str, Tensor]  # field -> [width]
    edge: Mapping[int, Mapping[str, Tensor]]  # op type -> column -> [num_edges, ...], graph's order
    relations: Mapping[str, Mapping[str, Tensor]]  # relation -> the same, for all types
    along: Mapping[str, Neighbours]  # relation -> those along it alone
    shared: Mapping[str, Tensor]
    readable: Mapping[int, Readable]  # op type -> the fields that its cell can read
    widths: Mapping[str, int]  # of all fields so far


def _run_pass(inputs: _PassInputs, item: Pass, given: Sequence[NodeState]) -> list[NodeState]:
    """The state of every node after a pass, or a round, from that before it."""
    dag = inputs.dag
    edges = neighbours(dag, item)
    number = _numbers_within_type(dag)
    states = list(given)
    read_from = list(given) if isinstance(item, Rounds) else states
    for node in _order(dag, item):
        op_type = int(dag.op_type[node])
        if op_type not in inputs.cells:
            continue  # the node keeps its state
        cell = inputs.cells[op_type]
        reader = NodeReader(cell, inputs, read_from, node, given[node], edges)
        x = _row(inputs.x[op_type], number[node])
        state = cell(x, reader.children(op_type))
        check_state(cell, state, 1)
        states[node] = {**given[node], **{name: state[name][0] for name in cell.fields}}
    return states


class NodeReader(StateReader):
    """Reads the children of one node from a list of states."""

    def __init__(
        self,
        cell: Cell,
        inputs: _PassInputs,
        states: Sequence[NodeState],
        node: int,
        previous: NodeState,
        edges: Neighbours,
    ) -> None:
        self._cell = cell
        self._inputs = inputs
        self._previous = previous
        self._node, self._edges = node, edges[node]
        self._all_edges = edges
        self._states = states
        self._device = inputs.dag.op_type.device
        self.ptr = torch.tensor([0, len(self._edges)], device=self._device)
        self.parent = torch.zeros(len(self._edges), dtype=torch.int64, device=self._device)

    def children(self, op_type: int) -> Children:
        """The view that the cell is called with."""
        inputs = self._inputs
        return Children(
            self,
            1,
            self._cell.arity,
            self._columns(inputs.edge[op_type]),
            inputs.shared,
            inputs.readable[op_type],
            inputs.relations,
        )

    def of_relation(self, relation: str) -> tuple[StateReader, Mapping[str, Tensor]]:
        inputs, edges = self._inputs, self._inputs.along[relation]
        reader = NodeReader(self._cell, inputs, self._states, self._node, self._previous, edges)
        return reader, reader._columns(inputs.relations[relation])

    def _columns(self, columns: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The rows of the node's edges."""
        own = [number for number, _ in self._edges]
        numbers = torch.tensor(own, dtype=torch.int64, device=self._device)
        return {name: column[numbers] for name, column in columns.items()}

    def rows(self, field: str) -> Tensor:
        if not self._edges:
            return self._zeros(field).unsqueeze(0)[:0]
        return torch.stack([self._child(node, field) for _, node in self._edges])

    def child_count(self) -> Tensor:
        counts = [
            sum(other != node for _, other in self._all_edges[node]) if node >= 0 else 0
            for _, node in self._edges
        ]
        return torch.tensor(counts, dtype=torch.int64, device=self._device)

    def is_self(self) -> Tensor:
        own = [int(node == self._node) for _, node in self._edges]
        return torch.tensor(own, dtype=torch.int64, device=self._device)

    def sum(self, field: str, weight: Tensor | None) -> Tensor:
        rows = self.rows(field)
        rows = rows if weight is None else rows * weight.unsqueeze(1)
        return rows.sum(0, keepdim=True)

    def previous(self, field: str) -> Tensor:
        return self._previous[field].unsqueeze(0)

    def unknown_field(self, field: str, names: Collection[str]) -> SchemaError:
        return unknown_field(self._cell, field, names)

    def _child(self, node: int, field: str) -> Tensor:
        if node < 0 and field in self._inputs.absent:
            return self._inputs.absent[field]
        # A child in another slot may lack the field: it is stacked as zeros, and not looked at.
        state = {} if node < 0 else self._states[node]
        return state[field] if field in state else self._zeros(field)

    def _zeros(self, field: str) -> Tensor:
        parameters = [p for p in self._cell.parameters() if p.is_floating_point()]
        dtype = parameters[0].dtype if parameters else torch.float64
        return torch.zeros(self._inputs.widths[field], dtype=dtype, device=self._device)


def neighbours(dag: TypedDAG, item: Pass) -> Neighbours:
    """The edges that every node reads, along the first relation first."""
    found: Neighbours = [[] for _ in range(dag.num_nodes)]
    for ptr, index in _edges(dag, item):
        bounds, source = ptr.tolist(), index.tolist()
        for node in range(dag.num_nodes):
            for number in range(bounds[node], bounds[node + 1]):
                if not isinstance(item, Down):
                    found[node].append((number, source[number]))
                elif source[number] >= 0:
                    found[source[number]].append((number, node))
    return found


def _edges(dag: TypedDAG, item: Pass) -> list[tuple[Tensor, Tensor]]:
    """The beginning of each node's edges, and what they come from, for each relation in turn."""
    if not item.relations:
        return [(dag.input_ptr, dag.input_index)]
    return [(dag.relations[name].ptr, dag.relations[name].index) for name in item.relations]


@outside_modes
def _order(dag: TypedDAG, item: Pass) -> list[int]:
    depth = dag.depth
    if isinstance(item, Down) or (isinstance(item, Up) and item.relation is not None):
        ((ptr, index),) = _edges(dag, item)
        child, parent = input_edges(ptr.cpu(), index.cpu())
        ends = (parent, child) if isinstance(item, Down) else (child, parent)
        depth = torch.from_numpy(longest_path(dag.num_nodes, *ends))
    return torch.argsort(depth, stable=True).tolist()


def _numbers_within_type(dag: TypedDAG) -> list[int]:
    seen: dict[int, int] = {}
    numbers = []
    for op_type in dag.op_type.tolist():
        numbers.append(seen.get(op_type, 0))
        seen[op_type] = numbers[-1] + 1
    return numbers


def _row(x: NodeInput, number: int) -> NodeInput:
    if isinstance(x, Tensor):
        return x[number : number + 1]
    return {name: value[number : number + 1] for name, value in x.items()}
