"""Programs of the cells of a pass: compiled, remembered, and compiled again after changes."""

from __future__ import annotations

import os
import threading
from collections.abc import Hashable, Iterable
from typing import NamedTuple, TypeAlias, TypeVar

import torch
from torch import Tensor

from graphfold._torch import is_fake, outside_modes
from graphfold.batching.cell import Cell
from graphfold.batching.compiler.assembly import compile_cell
from graphfold.batching.compiler.backend import Backend
from graphfold.batching.compiler.compiled_cell import CompiledCell
from graphfold.batching.compiler.trace import Keeping, Signature
from graphfold.batching.compiler.values import Untraceable, Unwritable
from graphfold.batching.engine.compiled.check import check, depends_on_group
from graphfold.batching.engine.compiled.trial import Trial
from graphfold.batching.engine.pass_inputs import PassInputs, parts
from graphfold.batching.engine.stamp import Stamp
from graphfold.errors import EngineError

#: For so many kinds of inputs a pass remembers programs: training, evaluation, and little more.
#: Inputs that change with every batch would gather programs without end.
MAX_KNOWN = 16
#: A tensor as a program knows it: name, sizes, dtype, whether a gradient is wanted.
Kind: TypeAlias = tuple[str, torch.Size, torch.dtype, bool]
Result = TypeVar("Result")

#: Added to the reason why a cell is not compiled.
DEPENDS_ON_BATCH = (
    ". What it computes for a node depends on the other nodes of its group, so its results depend "
    "on the batch. Compute each row from itself and its children"
)

#: A cell that changes itself whenever it runs is traced anew so many times, and then no more.
MAX_RETRIES = 3


class Known(NamedTuple):
    """The result of compiling a cell: its programs, or the reason why it has none."""

    compiled: CompiledCell | None
    reason: str = ""
    is_traced: bool = False  # whether another backend may have programs for it
    stamp: Stamp | None = None  # of the cell that it is for
    retries: int = 0  # how often in a row it was changed, and refused for the same reason

    def is_for(self, cell: Cell) -> bool:
        """True if it holds for a cell as it is now."""
        assert self.stamp is not None
        return self.stamp.cell is cell and (
            self.retries >= MAX_RETRIES or self.stamp.is_unchanged()
        )


#: What the cells of one pass have come to: kinds of inputs -> op type -> result.
Programs: TypeAlias = dict[Hashable, dict[int, Known]]

#: What cells of one form have come to, see `Stamp.form`: layers, members of an ensemble, a model
#: that is loaded or made again.
_OF_FORM: dict[Hashable, Known] = {}
#: How much of that is remembered, some 30 kB each.
MAX_FORMS = 256
_COMPILING = threading.RLock()


def _renew_lock() -> None:
    """The thread that holds the lock does not exist in a forked child."""
    global _COMPILING
    _COMPILING = threading.RLock()


if hasattr(os, "register_at_fork"):  # not on Windows, where nothing is forked
    os.register_at_fork(after_in_child=_renew_lock)


class WantedPrograms:
    """The programs that the cells of a pass want, by the kinds of all that they may read.

    Args:
        inputs: the pass.
        programs: what was compiled for it.
        trial: how programs are tried.
    """

    def __init__(self, inputs: PassInputs, programs: Programs, trial: type[Trial]) -> None:
        self.inputs, self._trial, self._programs = inputs, trial, programs
        self.dtype, self.device = inputs.dtype(next(iter(inputs.fields))), inputs.device
        self._differentiate = torch.is_grad_enabled()
        self._of_all = (
            (self.dtype, self.device, self._differentiate, tuple(inputs.fields.items())),
            self._kinds(inputs.given.items(), 1),
            self._kinds(inputs.edge.items(), 1),
            self._kinds(inputs.shared.items(), 0),
        )
        tables = inputs.tables
        self._of_types = tuple(
            [
                (
                    *(op_type, cell.training, inputs.readable[op_type]),
                    self._kinds(parts(inputs.x[op_type]), 1),
                    self._kinds(tables[op_type].items(), 1) if op_type in tables else None,
                )
                for op_type, cell in inputs.cells.items()
            ]
        )

    def find(self, backend: Backend) -> dict[int, Known]:
        """The results for the cells of types with nodes, which are compiled now if they are new."""
        key = backend.name, self._of_all, self._of_types
        programs = self._programs.get(key)
        if programs is None:
            programs = {}
            _remember(self._programs, key, programs, MAX_KNOWN)
        found = {}
        for op_type, cell in self.inputs.cells.items():
            if op_type in self.inputs.plan.types:
                known = programs.get(op_type)
                if known is None or not known.is_for(cell):
                    known = programs[op_type] = self._compile(op_type, backend, known)
                found[op_type] = known
        return found

    def _compile(self, op_type: int, backend: Backend, before: Known | None) -> Known:
        """The result of compiling a cell, which replaces the one from before it changed."""
        with _COMPILING:
            cell = self.inputs.cells[op_type]
            found = compile_or_refuse(cell, self._signature(op_type), backend, self._trial)
        if before is None or found.compiled is not None or found.reason != before.reason:
            return found
        return found._replace(retries=before.retries + 1)

    def _signature(self, op_type: int) -> Signature:
        """The kinds of what the cell of a type may read."""
        in_rounds, (_, given, edge, shared) = self._trial.in_rounds, self._of_all
        readable, x, tables = next(own[2:] for own in self._of_types if own[0] == op_type)
        fields = self.inputs.fields
        widths = {name: shape[0] for name, shape, _, _ in given} | fields
        return Signature(
            self.dtype,
            None if in_rounds else self.inputs.cells[op_type].arity,
            x,
            edge if tables is None else tables,
            tuple(widths.items()),
            tuple((name, has_gradient) for name, _, _, has_gradient in given),
            shared,
            self._differentiate,
            frozenset(fields),
            has_tables=tables is not None,
            in_rounds=in_rounds,
            device=self.device,
            readable=readable,
            relations=tuple(self.inputs.relations),
        )

    def _kinds(self, tensors: Iterable[tuple[str, Tensor]], first: int) -> tuple[Kind, ...]:
        """Tensors by name as a program knows them, each with its sizes from the `first` on."""
        differentiate = self._differentiate
        return tuple(
            [
                (name, value.shape[first:], value.dtype, differentiate and value.requires_grad)
                for name, value in tensors
            ]
        )


def compile_or_refuse(
    cell: Cell, signature: Signature, backend: Backend, trial: type[Trial]
) -> Known:
    """The result of compiling a cell, or one of the same form."""
    _require_on(cell, signature.device)
    stamp = Stamp(cell)
    form = stamp.form()
    key = backend.name, signature, form
    found = None if form is None else _OF_FORM.get(key)
    if found is None:
        found = _compile_anew(cell, signature, backend, trial, stamp)
    if form is not None:
        _remember(_OF_FORM, key, found, MAX_FORMS)
    return found._replace(stamp=stamp)


def _remember(known: dict[Hashable, Result], key: Hashable, found: Result, most: int) -> None:
    """Stores a result as the newest, and drops the oldest beyond the limit."""
    known.pop(key, None)
    while len(known) >= most:
        del known[next(iter(known))]
    known[key] = found


def forget_forms() -> None:
    """Has all cells traced and tried again that are compiled from now on."""
    with _COMPILING:
        _OF_FORM.clear()


@outside_modes  # tracing and trying are no part of the run
def _compile_anew(
    cell: Cell, signature: Signature, backend: Backend, trial: type[Trial], stamp: Stamp
) -> Known:
    restore = stamp.keep()
    try:
        if reason := stamp.refusal():
            raise Untraceable(reason)
        compiled = compile_cell(cell, signature, backend)
        check(cell, compiled, signature, trial)
        if not stamp.is_unchanged():
            raise Untraceable("it changes what it reads, such as an attribute, while it runs")
        return Known(compiled)
    except Untraceable as reason:
        refused = reason.with_traceback(None)  # its frames hold tensors of the trace
    finally:
        restore()
    if isinstance(refused, Keeping) and not refused.let_go():
        raise _kept_outside(cell)
    is_traced = isinstance(refused, Unwritable)
    text = str(refused) if is_traced else _in_full(str(refused), cell, signature, trial)
    restore()  # a cell that was judged has kept tensors, too
    return Known(None, text, is_traced)


def _kept_outside(cell: Cell) -> EngineError:
    """The error for a cell whose tensors are still somewhere when its attributes are put back."""
    return EngineError(
        f"{type(cell).__name__} keeps a tensor that it computes where the engine cannot take it "
        "out again. Compute such tensors in __init__ and register them as buffers; run=eager "
        "(model.run=eager) allows it."
    )


@outside_modes
def _in_full(reason: str, cell: Cell, signature: Signature, trial: type[Trial]) -> str:
    """The reason why a cell is not compiled, and whether its results depend on the batch."""
    return reason + DEPENDS_ON_BATCH if depends_on_group(cell, signature, trial) else reason


def _require_on(cell: Cell, device: torch.device) -> None:
    """Raises EngineError if a parameter or buffer of a cell is somewhere else than the batch."""
    for name, tensor in (*cell.named_parameters(), *cell.named_buffers()):
        if is_fake(tensor):
            raise EngineError(
                f"{type(cell).__name__}.{name} is a fake tensor, which has no numbers to compute "
                "with. Make the model outside of FakeTensorMode."
            )
        if tensor.device != device and tensor.dim():  # torch takes numbers from the CPU
            raise EngineError(
                f"{type(cell).__name__}.{name} is on {tensor.device}, but the batch is on "
                f"{device}. Move the whole model: model.to('{device}')."
            )
