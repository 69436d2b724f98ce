"""The choice of the cells that are compiled: all that can be, and a warning about the others."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable, Hashable, Iterable, Mapping, Set
from typing import NamedTuple, TypeAlias, TypeVar

import torch
from torch import Tensor

from graphfold._torch import is_fake, is_transformed, outside_modes
from graphfold.batching.backends.native import NativeBackend
from graphfold.batching.backends.torch_memory import TorchBackend
from graphfold.batching.backends.triton import TritonBackend
from graphfold.batching.cell import Cell
from graphfold.batching.compiler.assembly import compile_cell
from graphfold.batching.compiler.backend import Backend
from graphfold.batching.compiler.compiled_cell import CompiledCell
from graphfold.batching.compiler.trace import Signature
from graphfold.batching.compiler.values import Keeping, Untraceable, Unwritable
from graphfold.batching.engine.compiled.check import check, depends_on_group
from graphfold.batching.engine.compiled.trial import PassTrial, Trial
from graphfold.batching.engine.pass_inputs import PassInputs, parts
from graphfold.batching.engine.stamp import Stamp
from graphfold.batching.kernels.segment import NATIVE, Kernel
from graphfold.errors import EngineError

#: For so many kinds of inputs a pass remembers programs: training, evaluation, and little more.
#: Inputs that change with every batch would gather programs without end.
MAX_KNOWN = 16


#: What runs programs, in the order in which they are asked whether they can.
BACKENDS: Mapping[str, Backend] = {
    own.name: own for own in (NativeBackend(), TritonBackend(), TorchBackend())
}
#: The first that can.
AUTO = "auto"

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


class Choice(NamedTuple):
    """Programs of the cells of a pass by op type, and why the others have none."""

    compiled: Mapping[int, CompiledCell]
    why_not: Mapping[int, str]

    @staticmethod
    def as_it_is(inputs: PassInputs, reason: str) -> Choice:
        """A choice of eager cells, all for one reason."""
        return Choice({}, dict.fromkeys(inputs.cells, reason))

    @property
    def is_compiled(self) -> bool:
        """True if all cells have programs; otherwise all of them run eager."""
        return bool(self.compiled) and not self.why_not

    def among(self, types: Set[int]) -> Choice:
        """The choice for some types."""
        return Choice(
            {op_type: own for op_type, own in self.compiled.items() if op_type in types},
            {op_type: why for op_type, why in self.why_not.items() if op_type in types},
        )

    def how(self, op_type: int) -> str:
        """The way that a cell runs, for messages."""
        if self.is_compiled:
            return f"compiled ({next(iter(self.compiled.values())).backend.name})"
        reason = self.why_not.get(op_type) or next(iter(self.why_not.values()), "")
        return f"as it is ({reason})"


#: What cells of one form have come to, see `Stamp.form`: layers, members of an ensemble, a model
#: that is loaded or made again.
_OF_FORM: dict[Hashable, Known] = {}
#: How much of that is remembered, some 30 kB each.
MAX_FORMS = 256
_SAID: set[tuple[str, str]] = set()
_COMPILING = threading.RLock()


def _renew_lock() -> None:
    """The thread that holds the lock does not exist in a forked child."""
    global _COMPILING
    _COMPILING = threading.RLock()


if hasattr(os, "register_at_fork"):  # not on Windows, where nothing is forked
    os.register_at_fork(after_in_child=_renew_lock)


def runs_first(device: torch.device, dtype: torch.dtype) -> str | None:
    """The backend that `auto` takes; None if none can run."""
    return next((own.name for own in BACKENDS.values() if not own.why_not(device, dtype)), None)


def find_compiled(
    inputs: PassInputs,
    fuse: bool | None,
    backend: str = AUTO,
    programs: Programs | None = None,
    trial: type[Trial] = PassTrial,
    why_not: Callable[[Mapping[int, CompiledCell]], str | None] | None = None,
) -> Choice:
    """Compiles the cells of a pass, and says why others run eager.

    A cell that cannot be compiled is named in a warning, once for each reason.

    Args:
        inputs: the pass.
        fuse: True if each cell has to be compiled, False if none shall be.
        backend: what runs programs, of `BACKENDS`; or the first that can.
        programs: remembers what was compiled for the pass.
        trial: how programs are tried; of rounds of message passing, see `RoundsInputs.as_pass`,
            otherwise than of passes up and down.
        why_not: says of the programs of all cells why the pass cannot run as programs, if so.

    Raises:
        EngineError: if a cell has to be compiled and cannot be, or if the backend cannot run here.
    """
    reason = why_as_it_is(inputs.kernel, fuse)
    if reason is not None or not inputs.fields:
        return Choice.as_it_is(inputs, reason or "no cell of the pass has fields")
    wanted = _Wanted(inputs, {} if programs is None else programs, trial)
    compiled, refused = _compile_by_any(wanted, backend)
    reasons = {t: refuse(own.name, own.reason, fuse) for t, own in refused.items()}
    for op_type in _alone(inputs, compiled):
        reasons[op_type] = "a node alone has no variance"
        del compiled[op_type]
    if why_not is not None and not reasons and (reason := why_not(compiled)) is not None:
        return Choice.as_it_is(inputs, refuse(_names(inputs), reason, fuse))
    return Choice(compiled, reasons)


class _Wanted:
    """A pass whose cells want programs, and the kinds of all that its cells may read.

    Args:
        inputs: the pass.
        programs: what was compiled for it.
        trial: how programs are tried.
    """

    def __init__(self, inputs: PassInputs, programs: Programs, trial: type[Trial]) -> None:
        self.inputs, self.trial, self._programs = inputs, trial, programs
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

    def programs(self, backend: Backend) -> dict[int, Known]:
        """What was compiled for inputs of these kinds, by op type."""
        key = backend.name, self._of_all, self._of_types
        found = self._programs.get(key)
        if found is None:
            found = {}
            _remember(self._programs, key, found, MAX_KNOWN)
        return found

    def signature(self, op_type: int) -> Signature:
        """The kinds of what the cell of a type may read."""
        in_rounds, (_, given, edge, shared) = self.trial.in_rounds, self._of_all
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


def _compile_by_any(
    wanted: _Wanted, backend: str
) -> tuple[dict[int, CompiledCell], dict[int, _Refusal]]:
    """The programs of the first backend that has all that can be traced, and the cells without."""
    compiled: dict[int, CompiledCell] = {}
    device = wanted.device.type
    here = [own for own in BACKENDS.values() if device in own.devices]
    refused = {} if here else _refuse_all(wanted.inputs, f"no backend runs on {device}")
    before: dict[int, _Refusal] = {}  # by the backends before
    for candidate in here if backend == AUTO else (BACKENDS[backend],):
        missing = candidate.why_not(wanted.device, wanted.dtype)
        if missing is not None and backend != AUTO:
            raise EngineError(
                f"backend={backend} cannot run: {missing}. Use backend={AUTO} "
                f"(model.backend={AUTO})."
            )
        if missing is None:
            compiled, refused = _compile_all(wanted, candidate)
        elif not compiled:
            refused = _refuse_all(wanted.inputs, missing)
        if not any(own.is_of_backend for own in refused.values()):
            break
        before = {**refused, **before}
    for op_type in before.keys() & compiled.keys():
        _say_slower(before[op_type].name, before[op_type].reason, here[0])
    return compiled, refused


def _names(inputs: PassInputs) -> str:
    """The classes of the cells of a pass."""
    return ", ".join(dict.fromkeys(type(cell).__name__ for cell in inputs.cells.values()))


class _Refusal(NamedTuple):
    """The reason why a cell has no programs of a backend."""

    name: str
    reason: str
    is_of_backend: bool = True  # whether another backend may have programs


def _refuse_all(inputs: PassInputs, reason: str) -> dict[int, _Refusal]:
    """One refusal for all cells of a pass."""
    return dict.fromkeys(inputs.cells, _Refusal(_names(inputs), reason))


def _compile_all(
    wanted: _Wanted, backend: Backend
) -> tuple[dict[int, CompiledCell], dict[int, _Refusal]]:
    """The programs of the cells, and the cells that have none."""
    found: dict[int, CompiledCell] = {}
    refused: dict[int, _Refusal] = {}
    programs, types = wanted.programs(backend), wanted.inputs.plan.types
    for op_type, cell in wanted.inputs.cells.items():
        if op_type not in types:
            continue
        known = programs.get(op_type)
        if known is None or not known.is_for(cell):
            known = programs[op_type] = _compile(cell, op_type, wanted, backend, known)
        if known.compiled is None:
            refused[op_type] = _Refusal(type(cell).__name__, known.reason, known.is_traced)
        else:
            found[op_type] = known.compiled
    return found, refused


def _alone(inputs: PassInputs, compiled: Mapping[int, CompiledCell]) -> list[int]:
    """The types with a single node whose programs take means, which only their cells handle."""
    return [
        op_type
        for op_type, cell in compiled.items()
        if (cell.takes_means or cell.lowered.assumes_more) and inputs.plan.count_rows(op_type) == 1
    ]


def why_as_it_is(kernel: Kernel, fuse: bool | None) -> str | None:
    """The reason why no cell is compiled here; None if cells may be.

    Args:
        kernel: what adds up over children.
        fuse: see `find_compiled`.

    Raises:
        EngineError: if cells have to be compiled.
    """
    if fuse is False:
        return "fuse=False"
    reason = None
    if torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda"):
        reason = "autocast is on"
    elif kernel is not NATIVE:
        reason = "another kernel than 'native' is chosen for sums over children"
    elif is_transformed():
        reason = "a transform of torch.func or forward-mode differentiation is on"
    if fuse and reason is not None:
        raise EngineError(f"fuse=True compiles every cell, but {reason}. Leave fuse out.")
    return reason


def _compile(
    cell: Cell, op_type: int, wanted: _Wanted, backend: Backend, before: Known | None
) -> Known:
    """The result of compiling a cell, or of one of the same form.

    Args:
        cell: the cell.
        op_type: its type.
        wanted: the pass.
        backend: what runs programs.
        before: the result for the cell before it changed.
    """
    with _COMPILING:
        _require_on(cell, wanted.device)
        stamp, signature = Stamp(cell), wanted.signature(op_type)
        form = stamp.form()
        key = backend.name, signature, form
        found = None if form is None else _OF_FORM.get(key)
        if found is None:
            found = _compile_anew(cell, signature, backend, wanted.trial, stamp)
        if form is not None:
            _remember(_OF_FORM, key, found, MAX_FORMS)
        is_again = before is not None and found.compiled is None and found.reason == before.reason
        retries = before.retries + 1 if is_again and before is not None else 0
        return found._replace(stamp=stamp, retries=retries)


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
        stamp.restore()
    if isinstance(refused, Keeping) and refused.is_keeping():
        raise _kept_outside(cell)
    is_traced = isinstance(refused, Unwritable)
    text = str(refused) if is_traced else _in_full(str(refused), cell, signature, trial)
    stamp.restore()  # a cell that was judged has kept tensors, too
    return Known(None, text, is_traced)


def _kept_outside(cell: Cell) -> EngineError:
    """The error for a cell whose tensors are still somewhere when its attributes are put back."""
    return EngineError(
        f"{type(cell).__name__} keeps a tensor that it computes in a global, or in a cache such as "
        "that of functools.lru_cache, where the engine cannot put back what was there. Compute "
        "such tensors in __init__ and register them as buffers; fuse=False (model.fuse=false) "
        "allows it."
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


def _say_slower(name: str, reason: str, backend: Backend) -> None:
    """Says why a cell is not run by the fastest backend of a device."""
    if (name, reason) not in _SAID:
        _SAID.add((name, reason))
        verb = "do" if ", " in name else "does"
        warnings.warn(
            f"{name} {verb} not run as {backend.label}: {reason}. It runs as operations of torch, "
            "group by group, and slower; see docs/engine.md. backend=torch (model.backend=torch) "
            "accepts that.",
            stacklevel=2,
        )


def refuse(name: str, reason: str, fuse: bool | None) -> str:
    """Says, and gives, the reason why a cell is not compiled."""
    message = f"{name} is not compiled: {reason}."
    if fuse:
        raise EngineError(
            f"{message} fuse=True demands that it is; with fuse=None (model.fuse=null) it runs as "
            "it is, and slower."
        )
    if (name, reason) not in _SAID:
        _SAID.add((name, reason))
        warnings.warn(
            f"{message} It runs as it is, group by group, and slower; see docs/engine.md. "
            "fuse=False (model.fuse=false) accepts that.",
            stacklevel=2,
        )
    return f"{name}: {reason}"
