"""One forward of a network: what the passes hand on to each other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from graphfold.batching.batch import Batch
from graphfold.batching.cell import REAL, Cell, NodeInput, State, makes_tables
from graphfold.batching.check_states import as_mapping
from graphfold.batching.engine.compiled.choice import EAGER, Choice, find_compiled
from graphfold.batching.engine.compiled.compiled_rounds import run_compiled_rounds
from graphfold.batching.engine.compiled.compiled_run import run_compiled
from graphfold.batching.engine.compiled.frozen_weights import FrozenWeights
from graphfold.batching.engine.compiled.programs import Programs
from graphfold.batching.engine.compiled.trial import RoundTrial
from graphfold.batching.engine.eager import run_eager, run_eager_rounds
from graphfold.batching.engine.field_sources import FieldsByType, FieldSources
from graphfold.batching.engine.pass_inputs import (
    PassInputs,
    as_many,
    cell_dtype,
    check_rows,
    parts,
    require_numbers,
)
from graphfold.batching.engine.refusals import refuse_changed_buffers, refuse_random
from graphfold.batching.engine.rounds import make_rounds, select
from graphfold.batching.engine.sections import find_sections
from graphfold.batching.engine.typed_fields import TypedFields
from graphfold.batching.kernels.kinds import Kinds, find_kinds
from graphfold.batching.kernels.segment import kernel_of
from graphfold.batching.native.linear import NativeLinear
from graphfold.batching.scheduling.passes import Pass, Rounds
from graphfold.batching.scheduling.schedule import PassSchedule
from graphfold.batching.states import States
from graphfold.errors import ShapeError, did_you_mean

SHARED_NUMBERS = (
    "the schedule computes equal nodes once, so they would all have the same. "
    "Build it with share=False (data.share=false)."
)
SHARED_STATISTICS = (
    "while it runs, but the schedule computes equal nodes once, so statistics would count them as "
    "one. Build it with share=False (data.share=false)."
)
OF_NODES = "one for each node of type '{owner}', in node order. Encode this batch's graphs."
OF_EDGES = "one for each edge. Build the graph with a value for every edge."


@dataclass(eq=False)
class RunInputs:
    """The inputs of a forward; see `Network`."""

    batch: Batch
    x: Mapping[str, NodeInput]  # type name -> [num_nodes_of_type or num_sources, ...]
    shared: Mapping[str, Tensor]
    absent: Mapping[str, Tensor]  # field -> [width], learned
    run: str
    backend: str
    programs: Sequence[Programs]  # of each pass
    frozen: FrozenWeights | None  # what is kept of compiled cells between calls
    # For each pass, type name -> how its cell ran, written as it runs.
    ran: list[dict[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        for name, value in self.shared.items():
            require_numbers(value, self.batch, f"shared['{name}']")

    def num_nodes(self, op_type: int) -> int:
        """The number of nodes of a type."""
        sources = self.batch.schedule.sources
        if sources is not None:
            return len(sources[op_type].of)
        return self.batch.schedule.passes[0].count_rows(op_type)

    def num_sources(self, op_type: int) -> int:
        """The number of rows of a type's input; of its sources, under a shared schedule."""
        sources = self.batch.schedule.sources
        return self.num_nodes(op_type) if sources is None else len(sources[op_type].node)

    def of_type(self, op_type: int, cell: Cell) -> NodeInput:
        """The input of a type for its cell; of its sources, under a shared schedule.

        Raises:
            ShapeError: if there is none, or it has another number of rows.
        """
        name = self.batch.dag.schema.types[op_type].name
        x, sources = self._given(name, cell), self.batch.schedule.sources
        is_of_sources = sources is not None and _num_rows(x) == self.num_sources(op_type)
        num_rows = self.num_sources(op_type) if is_of_sources else self.num_nodes(op_type)
        check_rows(x, num_rows, name, "x['{owner}']", OF_NODES)
        device = self.batch.dag.op_type.device
        for part, value in parts(x):
            if value.device != device or type(value) is not Tensor:
                part_name = f"['{part}']" if part else ""
                require_numbers(value, self.batch, f"x['{name}']{part_name}")
        if sources is None or is_of_sources:
            return x
        return select(x, self.batch.schedule.source_rows[op_type])

    def _given(self, name: str, cell: Cell) -> NodeInput:
        """The given input of a type, else its features, [num_nodes_of_type, width]."""
        if name in self.x:
            return self.x[name]
        dag = self.batch.dag
        columns, num_nodes = dag.features(name), dag.num_rows(f"type:{name}")
        codes = [name for name, column in columns.items() if not column.is_floating_point()]
        strange = self.x.keys() - {node_type.name for node_type in dag.schema.types}
        if codes or strange:
            raise _no_input(name, codes, strange)
        dtype = cell_dtype([cell], columns.values())
        empty = torch.zeros(num_nodes, 0, dtype=dtype, device=dag.op_type.device)
        rows = [column.reshape(num_nodes, -1).to(dtype) for column in columns.values()]
        return torch.cat([empty, *rows], 1)

    def before(self, op_type: int, cell: Cell, x: NodeInput) -> NodeInput:
        """The result of `Cell.before`, with a clearer error where torch raises one.

        torch does not say which tensor is elsewhere, or has no memory.
        """
        try:
            found: NodeInput = cell.before(x)
        except RuntimeError as error:
            for parameter in cell.parameters():
                require_numbers(parameter, self.batch, f"the parameter of {type(cell).__name__}")
            for part, value in parts(x):
                require_numbers(value, self.batch, " ".join(["the input", part]).strip())
            name = self.batch.dag.schema.types[op_type].name
            if name in self.x:
                raise
            shapes = " and ".join(str(list(value.shape)) for _, value in parts(x))
            raise ShapeError(
                f"there is no x['{name}'], so {type(cell).__name__}.before got the features of "
                f"'{name}', {shapes}, which it refuses: {error}. Give x['{name}'], or fit the cell."
            ) from error
        return found

    def nodes(self, op_type: int) -> Tensor:
        """[num_nodes_of_type] the nodes of a type, in node order."""
        return self.batch.dag.nodes_of_type(self.batch.dag.schema.types[op_type].name)

    def edge_columns(self, item: Pass) -> Mapping[str, Tensor]:
        """The columns of the edges that a pass follows, in the order of the graph.

        There are none of several relations, see `relation_columns`.

        Raises:
            ShapeError: if one has not a row for each edge.
        """
        return self._columns(item.spaces[0]) if len(item.spaces) == 1 else {}

    def relation_columns(self, item: Pass) -> dict[str, Mapping[str, Tensor]]:
        """Relation that a pass follows -> the columns of its edges, as in `edge_columns`."""
        return {name: self._columns(f"relation:{name}") for name in item.relations}

    def _columns(self, space: str) -> Mapping[str, Tensor]:
        columns = self.batch.dag.columns[space]
        if columns:
            num_edges = self.batch.dag.num_rows(space)
            check_rows(columns, num_edges, space, "columns['{owner}']", OF_EDGES)
        return columns

    def edge_kinds(self, item: Pass) -> Kinds:
        """The kinds of the edges that a pass follows; graphs on a GPU keep them."""
        dag, columns, spaces = self.batch.dag, self.edge_columns(item), item.spaces
        num_edges = sum(map(dag.num_rows, spaces))
        if dag.on_cpu is None:
            return find_kinds(columns, num_edges, dag.device)
        if spaces not in dag.indices:
            on_cpu = {name: dag.on_cpu.columns[spaces[0]][name] for name in columns}
            dag.indices[spaces] = find_kinds(columns, num_edges, dag.device, on_cpu)
        return dag.indices[spaces]  # type: ignore[no-any-return]


@contextmanager
def refuse_shared(cells: Iterable[Cell], device: torch.device) -> Iterator[None]:
    """Raises if cells do what no node may share with another while the block runs."""
    cells = list(dict.fromkeys(cells))
    names = ", ".join(dict.fromkeys(type(cell).__name__ for cell in cells))
    random = refuse_random(names, device, SHARED_NUMBERS)
    with random, refuse_changed_buffers(cells, SHARED_STATISTICS):
        yield


def _no_input(name: str, codes: Sequence[str], strange: Iterable[object]) -> ShapeError:
    """The error of a type for which neither the user nor its features give an input."""
    others = [str(key) for key in strange]
    what = f"x names {', '.join(others)}, which the schema lacks.{did_you_mean(name, others)}"
    why = f"its features {', '.join(codes)} are no floats, which only an encoder makes of them"
    return ShapeError(
        f"type '{name}' has a cell but no input{f': {why}' if codes else ''}. "
        f"{f'{what} ' if others else ''}Give x['{name}'] of shape [num_nodes_of_type, width]; the "
        "width may be 0."
    )


def _num_rows(x: NodeInput) -> int | None:
    values = [x] if isinstance(x, Tensor) else list(x.values())
    return values[0].shape[0] if values and values[0].dim() else None


class RowRun:
    """A forward of the fast engine or of the eager one: state in rows, moved between passes."""

    def __init__(self, inputs: RunInputs) -> None:
        self.inputs = inputs
        self.batch = inputs.batch
        self.fields: Mapping[str, Tensor] = {}
        self.index, self.plan = 0, inputs.batch.schedule.passes[0]
        self.sparse: set[str] = set()  # fields whose gradient may be sparse

    def step(self, index: int, item: Pass, sources: FieldSources) -> None:
        """Runs a pass with the cells of `sources`."""
        self.inputs.ran.append({})
        if isinstance(item, Rounds):
            self._rounds(index, item, sources)
        else:
            self._levels(index, item, sources)
        self.plan, self.index = self.batch.schedule.passes[index], index

    def _levels(self, index: int, item: Pass, sources: FieldSources) -> None:
        plan, (cells,) = self.batch.schedule.passes[index], sources.cells_by_round
        self.fields = self._given(plan)
        inputs = PassInputs(
            plan=plan,
            cells=cells,
            x={t: select(self._before(t, cell), plan.type_order[t]) for t, cell in cells.items()},
            given=self.fields,
            absent=self.inputs.absent,
            edge=self._edge(item, plan),
            shared=self.inputs.shared,
            kernel=kernel_of(self.inputs.backend),
            readable=sources.readable(),
            relations=self.inputs.relation_columns(item),
            **self._tables(item, plan, cells),
        )
        programs = self.inputs.programs[index]
        choice = find_compiled(inputs, self.inputs.run, self.inputs.backend, programs)
        if not choice.why_not:
            self._section(inputs, choice)
            return
        sections = find_sections(plan, cells.keys(), choice.why_not)
        if len(sections) > 1:  # a section may read what only types of a later one have
            self.fields = {**self._without_rows(inputs), **self.fields}
        for types in sections:
            own = choice.among(plan.types.keys() & types)
            self._section(inputs.section(types, self.fields), own)

    def _without_rows(self, inputs: PassInputs) -> dict[str, Tensor]:
        """The fields that a pass writes, [num_rows + 1, width], before any node has them."""
        found = {}
        for name, width in inputs.fields.items():
            size, dtype = (inputs.plan.num_rows, width), inputs.dtype(name)
            rows = torch.zeros(size, dtype=dtype, device=inputs.device)
            found[name] = torch.cat([self._absent(name, rows), rows])
        return found

    def _section(self, inputs: PassInputs, choice: Choice) -> None:
        """Runs some types of a pass, compiled if all of their cells are."""
        if choice.is_compiled:
            self.fields = run_compiled(inputs, choice.compiled, self.inputs.frozen)
            self.sparse = self.sparse | inputs.fields.keys()
        else:
            self.fields, self.sparse = run_eager(inputs), set()
        self._note(inputs.plan, inputs.cells, choice)

    def _note(self, plan: PassSchedule, cells: Mapping[int, Cell], choice: Choice) -> None:
        """Notes how the cells of types with nodes have run, for `Network.execution`."""
        types = self.batch.dag.schema.types
        for op_type in cells:
            if op_type in plan.types:
                self.inputs.ran[-1][types[op_type].name] = choice.how(op_type)

    def _rounds(self, index: int, item: Rounds, sources: FieldSources) -> None:
        schedule, cells_by_round = self.batch.schedule, sources.cells_by_round
        plan, unrolled = schedule.passes[index], schedule.unrolled[index]
        assert unrolled is not None
        state, self.sparse = self.fields, set()
        if not isinstance(state, TypedFields):
            state = TypedFields.split(plan, self._given(plan), sources.earlier)
        inputs = make_rounds(
            unrolled,
            plan.read_types,
            state,
            sources,
            [{t: self._before(t, cell) for t, cell in cells.items()} for cells in cells_by_round],
            relations=self.inputs.relation_columns(item),
            find_kinds=lambda: self.inputs.edge_kinds(item),
            absent=self.inputs.absent,
            shared=self.inputs.shared,
            kernel=kernel_of(self.inputs.backend),
        )
        choice = find_compiled(
            inputs.as_pass,
            self.inputs.run,
            self.inputs.backend,
            self.inputs.programs[index],
            RoundTrial,
            inputs.why_not_compiled,
        )
        # In rounds all types wait for each other.
        if choice.is_compiled:
            self.fields = run_compiled_rounds(inputs, choice.compiled, self.inputs.frozen)
        else:
            self.fields = run_eager_rounds(inputs, self.inputs.run != EAGER)
        self._note(plan, cells_by_round[0], choice)

    def _tables(self, item: Pass, plan: PassSchedule, cells: Mapping[int, Cell]) -> dict[str, Any]:
        """The tables that cells make of the edges' columns, and the row of each edge in them."""
        own = {t: cell for t, cell in cells.items() if makes_tables(cell)}
        if not own:
            return {}
        kinds = self.inputs.edge_kinds(item)
        tables = {
            t: as_many(cell.before_edges(kinds.columns), kinds.num_kinds, cell, "before_edges")
            for t, cell in own.items()
        }
        return {"tables": tables, "kind": kinds.kind.at(plan.edge_index)}

    def after(self, op_type: int, cell: Cell) -> list[str]:
        """Joins what `Cell.after` makes of the state; returns the names of the new fields."""
        if type(cell).after is Cell.after:
            return []
        if isinstance(self.fields, TypedFields):
            own = {name: self.fields.part(name, op_type) for name in cell.fields}
            new = _after(cell, own, self.plan.count_rows(op_type))
            absent = {name: self._absent(name, rows) for name, rows in new.items()}
            self.fields = self.fields.join(op_type, new, absent)
            return list(new)
        rows = self.plan.rows_of_type(op_type)
        own = {name: self.fields[name].index_select(0, rows) for name in cell.fields}
        new = _after(cell, own, len(rows))
        for name, values in new.items():
            base = self.fields.get(name)
            if base is None:
                zeros = values.new_zeros(self.plan.num_rows, values.shape[1])
                base = torch.cat([self._absent(name, values), zeros])
            self.fields = {**self.fields, name: base.index_copy(0, rows, values)}
            self.sparse.discard(name)
        return list(new)

    def _absent(self, field: str, values: Tensor) -> Tensor:
        """[1, width] what an absent child reads of a field, which is new."""
        zeros = values.new_zeros(1, values.shape[1])
        return self.inputs.absent.get(field, zeros).view_as(zeros).to(values.dtype)

    def result(self, fields: FieldsByType) -> States:
        """The state after all passes; `fields` lists those of each type."""
        rows = self.batch.schedule.node_rows[self.index]
        return States(self.fields, rows, fields, self.sparse)

    def _before(self, op_type: int, cell: Cell) -> NodeInput:
        x = self.inputs.of_type(op_type, cell)
        if type(cell).before is Cell.before:
            return x
        with NativeLinear():
            found = self.inputs.before(op_type, cell, x)
        real = self.batch.schedule.real
        if real is not None and cell.reads_real:
            found = {**dict(parts(found)), REAL: real[op_type].to(cell_dtype([cell], [found]))}
        return as_many(found, self.inputs.num_sources(op_type), cell, "before")

    def _given(self, plan: PassSchedule) -> Mapping[str, Tensor]:
        """The state so far, in the row order of the next pass."""
        if plan is self.plan or not self.fields:
            return self.fields
        self.sparse = set()
        moved = torch.cat([plan.row.new_zeros(1), self.plan.row[plan.node]])
        return {name: value.index_select(0, moved) for name, value in self.fields.items()}

    def _edge(self, item: Pass, plan: PassSchedule) -> dict[str, Tensor]:
        columns = self.inputs.edge_columns(item)
        return {name: column.index_select(0, plan.edge) for name, column in columns.items()}


def _after(cell: Cell, state: State, num_rows: int) -> State:
    with NativeLinear():
        found = as_mapping(cell.after(state), cell, "after")
    return as_many(found, num_rows, cell, "after")
