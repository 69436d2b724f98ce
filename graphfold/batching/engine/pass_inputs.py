"""The inputs of one pass, with every row in the order of the plan."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Set
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import TypeVar

import torch
from torch import Tensor, nn

from graphfold._torch import is_fake
from graphfold.batching.batch import Batch
from graphfold.batching.cell import Cell, NodeInput
from graphfold.batching.check_states import describe
from graphfold.batching.children import Readable
from graphfold.batching.kernels.gather import RowIndex, select_rows
from graphfold.batching.kernels.segment import Kernel
from graphfold.batching.scheduling.schedule import PassSchedule
from graphfold.errors import EngineError, KindError, ShapeError, kind_of


@dataclass(eq=False)  # not frozen, which would take longer, and every pass makes one
class PassInputs:
    """A plan, the cells, and all tensors that the cells may read.

    Attributes:
        fields: the fields that the pass writes, name -> width; the other given ones stay as they
            are.
        without_cell: written field -> the types whose nodes have it from before, or not at all.
    """

    plan: PassSchedule
    cells: Mapping[int, Cell]  # op type -> cell; a type without one keeps its given state
    x: Mapping[int, NodeInput]  # op type -> [num_nodes_of_type, ...] in row order
    given: Mapping[str, Tensor]  # field -> [num_nodes + 1, width] state of earlier passes
    absent: Mapping[str, Tensor]  # field -> [width] what an absent child reads; zeros if not here
    edge: Mapping[str, Tensor]  # column -> [num_edges, ...] in plan order
    shared: Mapping[str, Tensor]
    kernel: Kernel
    readable: Mapping[int, Readable]  # op type -> the fields that its cell can read
    # Relation that the pass follows -> the columns of its edges, in the order of the graph.
    relations: Mapping[str, Mapping[str, Tensor]]
    tables: Mapping[int, Mapping[str, Tensor]] = field(default_factory=dict)  # see before_edges
    kind: RowIndex | None = None  # [num_edges] the row of a table that each edge has, in plan order

    def __post_init__(self) -> None:
        self.fields: dict[str, int] = {}
        for cell in self.cells.values():
            self.fields |= cell.fields
        self.without_cell: dict[str, list[int]] = {}
        for op_type in self.plan.types:
            own = self.cells[op_type].fields if op_type in self.cells else {}
            for name in self.fields.keys() - own.keys():
                self.without_cell.setdefault(name, []).append(op_type)
        self._dtype = cell_dtype(self.cells.values(), self.x.values())

    def section(self, types: Set[int], given: Mapping[str, Tensor]) -> PassInputs:
        """The inputs of one section, after the sections before it; see `find_sections`."""
        if types == self.cells.keys():
            return self
        cells = {op_type: cell for op_type, cell in self.cells.items() if op_type in types}
        return replace(self, cells=cells, x={t: self.x[t] for t in cells}, given=given)

    def dtype(self, field: str) -> torch.dtype:
        """The dtype of a field: of the given state, or of the cells' parameters or inputs.

        Under autocast a cell may return a narrower dtype; the field keeps this one.
        """
        return self.given[field].dtype if field in self.given else self._dtype

    @property
    def device(self) -> torch.device:
        return self.plan.row.device


# `nn.Module` has the same to offer, in the same order, at three times the time; every pass asks.
def modules_of(cell: nn.Module) -> Iterator[nn.Module]:
    """The cell, and the modules within it, each once."""
    found: set[int] = set()
    stack: list[nn.Module | None] = [cell]
    while stack:
        module = stack.pop()
        if module is not None and id(module) not in found:
            found.add(id(module))
            yield module
            stack.extend(reversed(module._modules.values()))


def parts(x: NodeInput) -> list[tuple[str, Tensor]]:
    """The parts of a node input by name; one tensor alone has no name."""
    return [("", x)] if isinstance(x, Tensor) else list(x.items())


def cell_dtype(cells: Iterable[Cell], x: Iterable[NodeInput]) -> torch.dtype:
    """The dtype that cells compute in: the first float one of their parameters, else inputs."""
    for cell in cells:
        for module in modules_of(cell) if cell._modules else (cell,):
            for parameter in module._parameters.values():
                if parameter is not None and parameter.is_floating_point():
                    return parameter.dtype
    given = (tensor.dtype for value in x for _, tensor in parts(value))
    return next((d for d in given if d.is_floating_point), torch.get_default_dtype())


def check_rows(values: NodeInput, num_rows: int, owner: Cell | str, what: str, remedy: str) -> None:
    """Raises ShapeError unless every tensor of `values` has `num_rows` rows.

    Native code reads rows by the plan's numbers, so this runs before it: over what users give, and
    over what their cells return.

    Args:
        values: one tensor, or several by name.
        num_rows: how many rows the plan needs.
        owner: the cell, the type or the edges that the texts name as {owner}.
        what: the name of `values` in messages.
        remedy: whose rows they are, and what to do.
    """
    if not isinstance(values, (Tensor, Mapping)):
        raise _no_tensor(values, owner, what)
    for name, part in parts(values):
        if not isinstance(part, Tensor):
            raise _no_tensor(part, owner, f"{what}['{name}']")
        if part.dim() == 0 or part.shape[0] != num_rows:
            place = f"{what}['{name}']" if name else what
            rows = f"{part.shape[0]} rows" if part.dim() else "no rows, only a number"
            message = f"{place} has {rows}, but {num_rows} are needed: {remedy}"
            raise ShapeError(message.replace("{owner}", _name_of(owner)))


def _no_tensor(value: object, owner: Cell | str, what: str) -> KindError:
    message = f"{what} is {kind_of(value)}. Give a tensor, or a mapping of names to tensors."
    return KindError(message.replace("{owner}", _name_of(owner)))


def _name_of(owner: Cell | str) -> str:
    return owner if isinstance(owner, str) else describe(owner)


def require_numbers(value: Tensor, batch: Batch, what: str) -> None:
    """Raises EngineError unless a tensor has numbers, and where the graphs are.

    Native code would read memory that is not there. A number on the CPU is fine, as it is in torch.

    Args:
        value: the tensor.
        batch: the graphs.
        what: the name of the tensor, for the message.
    """
    if is_fake(value):
        raise EngineError(
            f"{what} is a fake tensor, which has no numbers to compute with. Make it outside of "
            "FakeTensorMode."
        )
    device = batch.dag.op_type.device
    if value.device != device and (value.dim() or not value.is_cpu):
        raise EngineError(
            f"{what} is on {value.device}, but the batch is on {device}. Move all of them to one "
            "device: model.to(device), batch.to(device) and the inputs."
        )
    if value.numel() and not value.untyped_storage().nbytes():
        raise EngineError(
            f"the memory of {what} has been freed: its storage has 0 bytes. Restore it before the "
            "network runs."
        )


Returned = TypeVar("Returned", bound=NodeInput)


def as_many(found: Returned, num_rows: int, cell: Cell, method: str) -> Returned:
    """The result of a method of a cell; raises ShapeError unless it has `num_rows` rows.

    Args:
        found: [num_rows, ...] what it returned.
        num_rows: how many rows it was given.
        cell: the cell.
        method: the name of its method, for the message.
    """
    remedy = "one for each that the cell was given. Return them in their order."
    check_rows(found, num_rows, cell, f"what {{owner}}.{method} returns", remedy)
    return found


class EngineMode:
    """The autograd mode of the engine, which a cell's own mode does not change.

    The engine computes some tensors when a cell first reads them, and keeps them for later reads.
    A cell may read them under `torch.no_grad()` first and outside of it afterwards, so they are
    computed in the mode that was on when this object was made.
    """

    def __init__(self) -> None:
        self._modes = torch.is_inference_mode_enabled(), torch.is_grad_enabled()

    def on(self) -> AbstractContextManager[None]:
        """Inside, autograd is as it was when this object was made."""
        # It nearly always still is, and changing it takes longer than many a small group.
        if (torch.is_inference_mode_enabled(), torch.is_grad_enabled()) == self._modes:
            return nullcontext()
        return self._changed()

    @contextmanager
    def _changed(self) -> Iterator[None]:
        inference, grad = self._modes
        with torch.inference_mode(inference), torch.set_grad_enabled(grad):
            yield


class LazyColumns(Mapping[str, Tensor]):
    """Columns by name; what a cell does not read costs nothing.

    Args:
        names: of the columns.
        find: gives a column by its name, once; it is called in the mode of the engine.
    """

    def __init__(self, names: Collection[str], find: Callable[[str], Tensor]) -> None:
        self._names, self._find = names, find
        self._known: dict[str, Tensor] = {}
        self._mode = EngineMode()

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._known:
            with self._mode.on():
                self._known[name] = self._find(name)
        return self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def select_columns(columns: Mapping[str, Tensor], rows: Tensor | RowIndex) -> LazyColumns:
    """Some rows, [num_rows], of columns, name -> [any, ...]."""
    return LazyColumns(columns.keys(), lambda name: select_rows(columns[name], rows))
