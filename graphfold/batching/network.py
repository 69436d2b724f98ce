"""Network: passes of cells over a batch, whichever engine runs them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from graphfold.batching.batch import Batch
from graphfold.batching.cell import Cell, NodeInput
from graphfold.batching.engine import run_fast
from graphfold.batching.kernels import get_kernel
from graphfold.batching.pass_inputs import PassInputs, describe
from graphfold.batching.passes import Pass, Rounds
from graphfold.batching.plain import initial_state, run_plain, run_round
from graphfold.batching.reference import ReferenceInputs, run_reference
from graphfold.batching.schedule import PassSchedule
from graphfold.batching.states import States
from graphfold.dag import Schema
from graphfold.errors import ConfigError, SchemaError, ShapeError

ENGINES = ("fast", "autograd", "reference")
CellsByType = Mapping[str, Cell | Sequence[Cell]]


class Network(nn.Module):
    """Runs the cells of each pass over a batch, group by group.

    A type without a cell in a pass keeps the state that an earlier pass gave it. A node's own
    state before the pass is `children.previous`.

    Args:
        schema: the schema of the graphs.
        passes: the passes, in order; the schedule is built from the same list.
        cells: for each pass, type name -> cell; in `Rounds` a sequence of cells gives every round
            weights of its own.
        engine: "fast"; "autograd", which can be differentiated twice; or "reference", one node at
            a time.
        learned_absent: fields whose value for an absent child is learned instead of zero.
        kernel: what reduces over children, see `graphfold.batching.kernels`.

    Raises:
        ConfigError: if passes, cells and schema do not fit together.
        ShapeError: if two cells disagree about the width of a field.
        SchemaError: if a cell reads a field that a type among its inputs lacks.
    """

    def __init__(
        self,
        schema: Schema,
        passes: Sequence[Pass],
        cells: Sequence[CellsByType],
        engine: str = "fast",
        learned_absent: Sequence[str] = (),
        kernel: str = "native",
    ) -> None:
        super().__init__()
        if engine not in ENGINES:
            raise ConfigError(f"there is no engine '{engine}'. Use one of {', '.join(ENGINES)}.")
        if len(passes) != len(cells):
            raise ConfigError(
                f"there are {len(passes)} passes but cells for {len(cells)}. Give each its own."
            )
        self.schema = schema
        self.passes = tuple(passes)
        self.engine = engine
        self.kernel = kernel
        self.cells = nn.ModuleList(
            nn.ModuleDict({name: _as_list(cell, item, name) for name, cell in by_type.items()})
            for item, by_type in zip(passes, cells, strict=True)
        )
        widths = _check(schema, self.passes, [self._by_type(i, 0) for i in range(len(passes))])
        self.absent = nn.ParameterDict(
            {name: nn.Parameter(torch.zeros(widths[name])) for name in learned_absent}
        )

    def forward(
        self,
        batch: Batch,
        x: Mapping[str, NodeInput],
        shared: Mapping[str, Tensor] | None = None,
    ) -> States:
        """The state of every node after all passes.

        Args:
            batch: the graphs, with the schedule of this network's passes.
            x: what is known of the nodes before they run, by type name.
            shared: further tensors for all cells, found in `children.shared`.

        Shape:
            x: type name -> [num_nodes_of_type, ...] in node order, or a mapping of such tensors
        """
        run = _ReferenceRun if self.engine == "reference" else _RowRun
        state = run(self, batch, x, shared or {})
        has: dict[str, frozenset[int]] = {}
        for index, item in enumerate(self.passes):
            count = item.rounds if isinstance(item, Rounds) else 1
            for turn in range(count):
                cells = self._by_type(index, turn)
                state.step(index, item, cells, first=turn == 0)
            for op_type, cell in cells.items():
                for name in (*cell.fields, *state.after(op_type, cell)):
                    has[name] = has.get(name, frozenset()) | {op_type}
        return state.result(has)

    def _by_type(self, index: int, turn: int) -> dict[int, Cell]:
        """The cells of a pass, or of one of its rounds, by op type."""
        found = {}
        for name, cells in self.cells[index].items():  # type: ignore[operator]
            found[self.schema.type_index(name)] = cells[min(turn, len(cells) - 1)]
        return found


class _RowRun:
    """A forward of the fast or the plain engine: state in rows, permuted between passes."""

    def __init__(
        self,
        network: Network,
        batch: Batch,
        x: Mapping[str, NodeInput],
        shared: Mapping[str, Tensor],
    ) -> None:
        self.network, self.batch, self.x, self.shared = network, batch, x, shared
        self.fields: dict[str, Tensor] = {}
        self.plan = batch.schedule.passes[0]

    def step(self, index: int, item: Pass, cells: dict[int, Cell], first: bool) -> None:
        """Runs a pass, or one round."""
        plan = self.batch.schedule.passes[index]
        _check_reads(self.network.schema, plan, cells, self.fields)
        given = self._given(plan)
        fields = {*given, *(name for cell in cells.values() for name in cell.fields)}
        inputs = PassInputs(
            plan=plan,
            cells=cells,
            x={t: self._rows(t, cell, plan) for t, cell in cells.items()},
            given=given,
            absent={n: value for n, value in self.network.absent.items() if n in fields},
            edge=self._edge(item, plan),
            shared=self.shared,
            kernel=get_kernel(self.network.kernel),
        )
        self.plan = plan
        if not isinstance(item, Rounds):
            run = run_fast if self.network.engine == "fast" else run_plain
            self.fields = run(inputs)
            return
        if first:
            inputs = PassInputs(**{**vars(inputs), "given": initial_state(inputs)})
        self.fields = run_round(inputs)

    def after(self, op_type: int, cell: Cell) -> list[str]:
        """Joins what `Cell.after` makes of the state; returns the names of the new fields."""
        if type(cell).after is Cell.after:
            return []
        name = self.network.schema.types[op_type].name
        rows = self.plan.row[self.batch.dag.nodes_of_type(name)]
        own = {field: self.fields[field].index_select(0, rows) for field in cell.fields}
        new = cell.after(own)
        for field, values in new.items():
            base = self.fields.get(field)
            if base is None:
                base = values.new_zeros(self.plan.num_nodes + 1, values.shape[1])
            self.fields[field] = base.index_copy(0, rows, values)
        return list(new)

    def result(self, has: Mapping[str, frozenset[int]]) -> States:
        return States(self.fields, self.plan.row, has)

    def _rows(self, op_type: int, cell: Cell, plan: PassSchedule) -> NodeInput:
        """The cell's input in row order."""
        x = cell.before(_input(self.network.schema, self.x, op_type))
        order = plan.type_order[op_type]
        if order is None:
            return x
        if isinstance(x, Tensor):
            return x.index_select(0, order)
        return {name: value.index_select(0, order) for name, value in x.items()}

    def _given(self, plan: PassSchedule) -> dict[str, Tensor]:
        """The state so far, in the row order of the next pass."""
        if plan is self.plan or not self.fields:
            return self.fields
        moved = torch.cat([plan.row.new_zeros(1), self.plan.row[plan.node]])
        return {name: value.index_select(0, moved) for name, value in self.fields.items()}

    def _edge(self, item: Pass, plan: PassSchedule) -> dict[str, Tensor]:
        columns = _edge_columns(self.batch, item)
        return {name: column.index_select(0, plan.edge) for name, column in columns.items()}


class _ReferenceRun:
    """A forward of the reference: a dict of tensors per node."""

    def __init__(
        self,
        network: Network,
        batch: Batch,
        x: Mapping[str, NodeInput],
        shared: Mapping[str, Tensor],
    ) -> None:
        self.network, self.batch, self.x, self.shared = network, batch, x, shared
        self.states: list[dict[str, Tensor]] = [{} for _ in range(batch.dag.num_nodes)]
        self.widths: dict[str, int] = {}

    def step(self, index: int, item: Pass, cells: dict[int, Cell], first: bool) -> None:
        schema, dag = self.network.schema, self.batch.dag
        inputs = ReferenceInputs(
            dag=dag,
            cells=cells,
            x={t: cell.before(_input(schema, self.x, t)) for t, cell in cells.items()},
            absent=dict(self.network.absent.items()),
            edge=_edge_columns(self.batch, item),
            shared=self.shared,
        )
        for cell in cells.values():
            self.widths |= cell.fields
        if isinstance(item, Rounds) and first:
            self._initial(inputs)
        self.states = run_reference(inputs, item, self.states)

    def _initial(self, inputs: ReferenceInputs) -> None:
        for op_type, cell in inputs.cells.items():
            nodes = self._nodes(op_type)
            if nodes and any(f not in self.states[nodes[0]] for f in cell.fields):
                state = cell.initial(inputs.x[op_type])
                for position, node in enumerate(nodes):
                    own = {name: state[name][position] for name in cell.fields}
                    self.states[node] = {**own, **self.states[node]}

    def after(self, op_type: int, cell: Cell) -> list[str]:
        nodes = self._nodes(op_type)
        empty = {n: torch.zeros(0, w, dtype=torch.float64) for n, w in cell.fields.items()}
        new = cell.after(empty)
        self.widths |= {name: value.shape[1] for name, value in new.items()}
        for node in nodes:
            state = {name: self.states[node][name].unsqueeze(0) for name in cell.fields}
            values = cell.after(state)
            self.states[node] |= {name: value[0] for name, value in values.items()}
        return list(new)

    def result(self, has: Mapping[str, frozenset[int]]) -> States:
        fields = {name: self._field(name, width) for name, width in self.widths.items()}
        row = torch.arange(1, self.batch.dag.num_nodes + 1)
        return States(fields, row, has)

    def _field(self, name: str, width: int) -> Tensor:
        present = [state[name] for state in self.states if name in state]
        dtype = present[0].dtype if present else torch.float64
        zeros = torch.zeros(width, dtype=dtype)
        return torch.stack([zeros, *(state.get(name, zeros) for state in self.states)])

    def _nodes(self, op_type: int) -> list[int]:
        name = self.network.schema.types[op_type].name
        return self.batch.dag.nodes_of_type(name).tolist()


def _as_list(cell: Cell | Sequence[Cell], item: Pass, name: str) -> nn.ModuleList:
    if isinstance(cell, Cell):
        return nn.ModuleList([cell])
    if not isinstance(item, Rounds) or len(cell) != item.rounds:
        turns = item.rounds if isinstance(item, Rounds) else 1
        raise ConfigError(
            f"type '{name}' has {len(cell)} cells for {turns} rounds of {type(item).__name__}. "
            "Give one cell, or one for each round."
        )
    return nn.ModuleList(cell)


def _check(
    schema: Schema, passes: Sequence[Pass], cells: Sequence[dict[int, Cell]]
) -> dict[str, int]:
    """Checks the cells against the schema; returns the widths of all fields."""
    widths: dict[str, int] = {}
    known: dict[int, set[str]] = {}
    for item, by_type in zip(passes, cells, strict=True):
        if isinstance(item, Rounds):
            schema.relation(item.relation)
        for op_type, cell in by_type.items():
            known.setdefault(op_type, set()).update(cell.fields)
            for name, width in cell.fields.items():
                if widths.setdefault(name, width) != width:
                    raise ShapeError(
                        f"{describe(cell)} has the field '{name}' with width {width}, but another "
                        f"cell gives it {widths[name]}. Give both the same width."
                    )
            arity = schema.types[op_type].arity
            if not isinstance(item, Rounds) and cell.arity is not None and cell.arity != arity:
                raise ConfigError(
                    f"{describe(cell)} needs {cell.arity} children, but type "
                    f"'{schema.types[op_type].name}' has "
                    f"{'any number' if arity is None else arity}. Choose another cell."
                )
        for op_type, cell in by_type.items():
            for child in schema.types[op_type].inputs or ():
                index = schema.type_index(child)
                if not isinstance(item, Rounds) and index in known:
                    _require_fields(schema, cell, index, known[index])
    return widths


def _check_reads(
    schema: Schema, plan: PassSchedule, cells: Mapping[int, Cell], given: Mapping[str, Tensor]
) -> None:
    """Every field that a cell reads must exist in the types it really reads in this batch."""
    for reader, read in plan.read_types:
        if reader in cells:
            fields = set(given)
            if read in cells:
                fields |= set(cells[read].fields)
            _require_fields(schema, cells[reader], read, fields)


def _require_fields(schema: Schema, cell: Cell, read: int, fields: set[str]) -> None:
    for name in cell.read_fields:
        if name not in fields:
            raise SchemaError(
                f"{describe(cell)} reads field '{name}', but its children of type "
                f"'{schema.types[read].name}' have only {_quoted(fields) or 'no field'}. "
                f"Give that type's cell the field '{name}'."
            )


def _quoted(names: set[str]) -> str:
    return ", ".join(f"'{name}'" for name in sorted(names))


def _input(schema: Schema, x: Mapping[str, NodeInput], op_type: int) -> NodeInput:
    name = schema.types[op_type].name
    if name not in x:
        raise ShapeError(
            f"type '{name}' has a cell but no input. Give x['{name}'] of shape "
            "[num_nodes_of_type, width]; the width may be 0."
        )
    return x[name]


def _edge_columns(batch: Batch, item: Pass) -> Mapping[str, Tensor]:
    space = f"relation:{item.relation}" if isinstance(item, Rounds) else "inputs"
    return batch.dag.columns[space]


def iterate_cells(network: Network) -> Iterator[Cell]:
    """Every cell of a network, pass by pass."""
    for by_type in network.cells:
        items: Any = by_type
        for cells in items.values():
            yield from cells
