"""Network: passes of cells over a batch, whichever engine runs them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from graphfold._torch import is_faking, refuse_script, uncompiled
from graphfold.batching.batch import Batch, plan_once, require_batch
from graphfold.batching.cell import Cell, NodeInput
from graphfold.batching.check_cells import (
    check_cells,
    check_interface,
    check_reads,
    split_steps,
)
from graphfold.batching.engine.compiled.choice import AUTO, BACKENDS, REFERENCE, RUNS
from graphfold.batching.engine.compiled.frozen_weights import FrozenWeights
from graphfold.batching.engine.compiled.programs import Programs, forget_forms
from graphfold.batching.engine.field_sources import find_sources
from graphfold.batching.kernels.segment import SCATTER
from graphfold.batching.reference import ReferenceRun
from graphfold.batching.run import RowRun, RunInputs, refuse_shared
from graphfold.batching.scheduling.passes import Pass, Rounds
from graphfold.batching.scheduling.schedule import Schedule
from graphfold.batching.states import States
from graphfold.dag import Schema, TypedDAG
from graphfold.errors import (
    ConfigError,
    EngineError,
    KindError,
    ShapeError,
    did_you_mean,
    kind_of,
)

CellsByType = Mapping[str, Cell | Sequence[Cell]]


class Network(nn.Module):
    """Runs the cells of each pass over graphs, group by group.

        network = Network(schema, (Up(), {"word": leaf, "phrase": phrase}), (Down(), below))
        states = network(graphs, x)

    A type without a cell in a pass keeps the state that an earlier pass gave it. A node's own
    state before the pass is `children.previous`.

    Args:
        schema: the schema of the graphs.
        steps: pairs of a pass and its cells, in order; a schedule is built from the same passes.
            The cells are a mapping of type names to cells, or one cell for all types. In `Rounds` a
            sequence of cells in place of a cell gives every round weights of its own.
        run: how cells run, see docs/engine.md. "auto" compiles those that can be, and warns of the
            others; "compiled" compiles every cell, or raises; "eager" runs their own code, which
            can be differentiated any number of times; "reference" runs one node at a time. Under
            autocast, cells run eager.
        backend: what runs compiled cells: "native" code, operations of "torch", these and kernels
            of "triton", or "auto": native code where it can, which is on CPUs in float32 and
            float64, Triton on a CUDA device where it is installed, and torch elsewhere. "scatter"
            compiles no cell, and adds up over children with torch-scatter.
        learned_absent: fields whose value for an absent child is learned instead of zero.

    Raises:
        KindError: if a step is no pair of a pass and cells.
        ConfigError: if passes, cells and schema do not fit together.
        ShapeError: if two cells disagree about the width of a field.
        SchemaError: if a cell reads a field that a type among its inputs lacks.
    """

    def __init__(
        self,
        schema: Schema,
        *steps: tuple[Pass, CellsByType | Cell],
        run: str = AUTO,
        backend: str = AUTO,
        learned_absent: Sequence[str] = (),
    ) -> None:
        super().__init__()
        check_way(run, backend)
        passes, cells = split_steps(schema, steps)
        self.schema = schema
        self.passes = passes
        self.run, self.backend = run, backend
        self._ran: list[dict[str, str]] = []  # for each pass, type name -> how its cell ran
        self._programs: list[Programs] = [{} for _ in self.passes]
        self._frozen: FrozenWeights | None = None
        self._op_types = {kind.name: number for number, kind in enumerate(schema.types)}
        self.cells = nn.ModuleList(
            nn.ModuleDict({name: _as_list(cell, item, name) for name, cell in by_type.items()})
            for item, by_type in zip(passes, cells, strict=True)
        )
        for name, cell in (pair for by_type in self.cells for pair in _each(by_type)):
            cell._types = tuple(dict.fromkeys((*cell._types, name)))
        widths = check_cells(schema, passes, [*map(self._cells_of, range(len(passes)))])
        self._absent_widths = {name: _width(widths, name) for name in learned_absent}
        self.absent = nn.ParameterDict(
            {name: nn.Parameter(torch.zeros(w)) for name, w in self._absent_widths.items()}
        )

    def __getstate__(self) -> dict[str, Any]:
        """All that copies and pickles have; each makes programs of its own."""
        frozen = None if self._frozen is None else FrozenWeights()
        return {**vars(self), "_programs": [{} for _ in self.passes], "_frozen": frozen}

    if TYPE_CHECKING:  # torch's own says Any

        def __call__(
            self,
            graphs: TypedDAG | Batch,
            x: Mapping[str, NodeInput] | None = None,
            shared: Mapping[str, Tensor] | None = None,
        ) -> States: ...

    __prepare_scriptable__ = refuse_script

    @uncompiled
    def forward(
        self,
        graphs: TypedDAG | Batch,
        x: Mapping[str, NodeInput] | None = None,
        shared: Mapping[str, Tensor] | None = None,
    ) -> States:
        """The state of every node after all passes.

        Args:
            graphs: the graphs, which are planned at their first call and keep the plan; or a batch
                with a schedule of this network's passes.
            x: what is known of the nodes before they run, by type name. A type that it lacks has
                its features, if all of them are floats, one after another.
            shared: further tensors for all cells, found in `children.shared`.

        Shape:
            x: type name -> [num_nodes_of_type, ...] in node order, or a mapping of such tensors;
                under a schedule that shares, the rows of `Schedule.sources` are enough

        Raises:
            KindError: if these are no graphs and no mapping of tensors, or a cell returns none.
            ShapeError: if an input has not a row for each node, or edge, of the batch.
            ConfigError: if the schedule was built for other passes.
        """
        x = {} if x is None else x
        batch = self._check_inputs(graphs, x)
        inputs = RunInputs(
            batch=batch,
            x=x,
            shared=shared or {},
            absent=dict(self.absent.items()) if self._absent_widths else {},
            run=self.run,
            backend=self.backend,
            programs=self._programs,
            frozen=self._frozen,
        )
        vars(self)["_ran"] = inputs.ran  # a module is slow to set
        if self.run == REFERENCE:
            return self._run_passes(ReferenceRun(inputs), batch.schedule)
        run = RowRun(inputs)
        if not batch.schedule.is_shared:
            return self._run_passes(run, batch.schedule)
        own = [self._cells_of(index).values() for index in range(len(self.passes))]
        cells = [cell for of_pass in own for of_type in of_pass for cell in of_type]
        with refuse_shared(cells, batch.dag.device):
            return self._run_passes(run, batch.schedule)

    def _run_passes(self, run: ReferenceRun | RowRun, schedule: Schedule) -> States:
        """The state of every node after all passes."""
        fields: dict[int, frozenset[str]] = {}  # those that nodes have by now
        for index, item in enumerate(self.passes):
            cells_by_round = self._cells_by_round(
                index, item.rounds if isinstance(item, Rounds) else 1
            )
            sources = find_sources(item, cells_by_round, fields)
            check_reads(self.schema, schedule.passes[index], sources)
            run.step(index, item, sources)
            fields = dict(sources.after)
            for op_type, cell in cells_by_round[-1].items():
                if new := run.after(op_type, cell):
                    fields[op_type] |= {*new}
        return run.result(fields)

    @property
    def execution(self) -> dict[str, str]:
        """Type name -> how its cells ran in the last forward.

        That is "compiled (native)", "compiled (triton)", "compiled (torch)", or "eager" and why;
        if it differs between passes, it is named for each. Types without nodes in the batch are
        left out, and all types after run="reference".
        """
        ways: dict[str, dict[str, str]] = {}  # type name -> pass -> how
        for number, (item, ran) in enumerate(zip(self.passes, self._ran, strict=False), start=1):
            for name, how in ran.items():
                ways.setdefault(name, {})[f"pass {number} ({type(item).__name__})"] = how
        return {name: _describe_ways(own) for name, own in ways.items()}

    def freeze(self) -> Network:
        """Keeps packed weights, and what else depends on parameters alone, between calls.

        For serving: calls without gradients over a few small graphs take less time, and memory of
        the size of the weights. A change in place that torch counts, such as a step of an optimizer
        or `load_state_dict`, is seen; after one by `.data` call `freeze` again.

        Returns:
            The network itself.
        """
        self._frozen = FrozenWeights()
        return self

    def recompile(self) -> None:
        """Has all cells traced and tried again at their next call.

        The engine sees changes of parameters, buffers, plain attributes and the mode by itself.
        Call this after a change of a global, of a closure's variable or of a class that `forward`
        reads.
        """
        forget_forms()
        for programs in self._programs:
            programs.clear()

    def _check_inputs(self, graphs: object, x: object) -> Batch:
        """The graphs with their plan.

        Refuses other objects, a schedule of other passes or graphs, and odd absent states.
        """
        if not isinstance(graphs, TypedDAG):
            require_batch(
                graphs, "Give the graphs, a TypedDAG, or Batch(dag, build_schedule(dag, passes))"
            )
        if not isinstance(x, Mapping):
            raise KindError(
                f"x is {kind_of(x)}, but a mapping of type names to inputs is needed. Give "
                f"a tensor [num_nodes_of_type, width] for each of {', '.join(self._op_types)}."
            )
        if is_faking():
            raise EngineError(
                "a network cannot run under FakeTensorMode: its computation depends on the numbers "
                "that its plan is made of. Leave the mode before the network is called."
            )
        batch = plan_once(graphs, self.passes) if isinstance(graphs, TypedDAG) else graphs
        assert isinstance(batch, Batch)
        batch.require_schedule()
        if batch.schedule.built_for != self.passes:
            raise ConfigError(
                f"the schedule was built for the passes {list(batch.schedule.built_for)}, but the "
                f"model has {list(self.passes)}. Build it from the passes of the model."
            )
        for name, width in self._absent_widths.items():
            if self.absent[name].shape != (width,):
                raise ShapeError(
                    f"absent['{name}'] has the shape {list(self.absent[name].shape)}, but the "
                    f"field '{name}' has the width {width}. Give it the shape [{width}]."
                )
        return batch

    def __repr__(self) -> str:
        """A tree: the passes with their cells, each with the widths of its fields, how it ran the
        last time, and the number of its parameters.
        """
        lines = [f"Network(run={self.run}"]
        for index, (item, by_type) in enumerate(zip(self.passes, self.cells, strict=True)):
            ran = self._ran[index] if index < len(self._ran) else {}
            lines.append(f"  {item}")
            for name, cells in by_type.items():  # type: ignore[operator]
                cell = cells[0]
                fields = ", ".join(f"{field} [{width}]" for field, width in cell.fields.items())
                count = f"{len(cells)} x " if len(cells) > 1 else ""
                how = f", {ran[name]}" if name in ran else ""
                size = sum(parameter.numel() for parameter in cells.parameters())
                size_text = f", {size:,} parameters" if size else ""
                lines.append(
                    f"    {name}: {count}{type(cell).__name__} -> {fields}{how}{size_text}"
                )
        return "\n".join([*lines, ")"])

    def _cells_by_round(self, index: int, num_rounds: int = 1) -> list[dict[int, Cell]]:
        """The cells of a pass by op type, for each of its rounds."""
        own = self._cells_of(index)
        return [
            {op_type: cells[min(number, len(cells) - 1)] for op_type, cells in own.items()}
            for number in range(num_rounds)
        ]

    def _cells_of(self, index: int) -> dict[int, list[Cell]]:
        """The cells of a pass by op type: one, or one for each round."""
        # Past the containers' own methods, which take five times as long; every pass asks.
        by_name = self._modules["cells"]._modules[str(index)]._modules  # type: ignore[union-attr]
        return {self._op_types[name]: [*cells._modules.values()] for name, cells in by_name.items()}  # type: ignore[union-attr]


def check_way(run: str, backend: str) -> None:
    """Raises ConfigError unless cells can run in such a way; see `Network`."""
    ways = {"run": (run, RUNS), "backend": (backend, (AUTO, *BACKENDS, SCATTER))}
    for option, (value, names) in ways.items():
        if value not in names:
            raise ConfigError(
                f"there is no {option} '{value}'.{did_you_mean(str(value), names)} "
                f"Use one of {', '.join(names)}."
            )


def _each(by_type: nn.Module) -> Iterator[tuple[str, Cell]]:
    """(type name, cell) of every cell of a pass."""
    for name, cells in by_type.items():  # type: ignore[operator]
        for cell in cells:
            yield name, cell


def _describe_ways(ways: Mapping[str, str]) -> str:
    """The way a cell ran in all passes, with those in which it ran eager first."""
    if len({*ways.values()}) == 1:
        return next(iter(ways.values()))
    return "; ".join(f"{how} in {place}" for place, how in sorted(ways.items(), key=_is_compiled))


def _is_compiled(way: tuple[str, str]) -> bool:
    return way[1].startswith("compiled")


def _as_list(cell: Cell | Sequence[Cell], item: Pass, name: str) -> nn.ModuleList:
    cells = list(cell) if isinstance(cell, (Sequence, nn.ModuleList)) else [cell]
    for own in cells:
        check_interface(own, name)
    rounds = item.rounds if isinstance(item, Rounds) else 1
    if isinstance(cell, Cell) or (isinstance(item, Rounds) and len(cells) == rounds):
        return nn.ModuleList(cells)
    raise ConfigError(
        f"type '{name}' has {len(cells)} cells for {rounds} rounds of {type(item).__name__}. "
        "Give one cell, or one for each round."
    )


def _width(widths: Mapping[str, int], field: str) -> int:
    if field not in widths:
        raise ConfigError(
            f"learned_absent names the field '{field}', which no cell has."
            f"{did_you_mean(field, widths)} They have: {', '.join(widths)}."
        )
    return widths[field]
