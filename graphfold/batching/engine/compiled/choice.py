"""The choice of the cells that are compiled: all that can be, and a warning about the others."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable, Hashable, Iterable, Mapping, Set
from typing import Any, NamedTuple

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
from graphfold.batching.compiler.values import Untraceable, Unwritable
from graphfold.batching.engine.compiled.check import check, depends_on_group
from graphfold.batching.engine.compiled.trial import PassTrial, Trial
from graphfold.batching.engine.pass_inputs import PassInputs, parts
from graphfold.batching.engine.watch import Unwatchable, Watch
from graphfold.batching.kernels.segment import NATIVE, Kernel
from graphfold.errors import EngineError

#: What is remembered of one cell: training, evaluation, and little more. A cell that changes with
#: every batch would gather programs without end.
MAX_KNOWN = 8


#: What runs programs, in the order in which they are asked whether they can.
BACKENDS: Mapping[str, Backend] = {
    own.name: own for own in (NativeBackend(), TritonBackend(), TorchBackend())
}
#: The first that can.
AUTO = "auto"

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
    watch: Watch | None = None  # None if no change could alter the result
    retries: int = 0  # how often in a row it was changed, and refused for the same reason
    is_traced: bool = False  # whether another backend may have programs for it


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


#: What cells of one form have come to, see `Watch.form`: layers, members of an ensemble, a model
#: that is loaded or made again.
_OF_FORM: dict[tuple[str, Signature, Hashable], Known] = {}
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
    trial: type[Trial] = PassTrial,
    why_not: Callable[[Mapping[int, CompiledCell]], str | None] | None = None,
) -> Choice:
    """Compiles the cells of a pass, and says why others run eager.

    A cell that cannot be compiled is named in a warning, once for each reason.

    Args:
        inputs: the pass.
        fuse: True if each cell has to be compiled, False if none shall be.
        backend: what runs programs, of `BACKENDS`; or the first that can.
        trial: how programs are tried; of rounds of message passing, see `RoundsInputs.as_pass`,
            otherwise than of passes up and down.
        why_not: says of the programs of all cells why the pass cannot run as programs, if so.

    Raises:
        EngineError: if a cell has to be compiled and cannot be, or if the backend cannot run here.
    """
    reason = why_as_it_is(inputs.kernel, fuse)
    if reason is not None or not inputs.fields:
        return Choice.as_it_is(inputs, reason or "no cell of the pass has fields")
    signatures = _Signatures(inputs, torch.is_grad_enabled(), trial.in_rounds)
    compiled, refused = _compile_by_any(inputs, signatures, backend, trial)
    reasons = {t: refuse(own.name, own.reason, fuse) for t, own in refused.items()}
    for op_type in _alone(inputs, compiled):
        reasons[op_type] = "a node alone has no variance"
        del compiled[op_type]
    if why_not is not None and not reasons and (reason := why_not(compiled)) is not None:
        return Choice.as_it_is(inputs, refuse(_names(inputs), reason, fuse))
    return Choice(compiled, reasons)


def _compile_by_any(
    inputs: PassInputs, signatures: _Signatures, backend: str, trial: type[Trial]
) -> tuple[dict[int, CompiledCell], dict[int, _Refusal]]:
    """The programs of the first backend that has all that can be traced, and the cells without."""
    compiled: dict[int, CompiledCell] = {}
    device = signatures.device.type
    here = [own for own in BACKENDS.values() if device in own.devices]
    refused = {} if here else _refuse_all(inputs, f"no backend runs on {device}")
    before: dict[int, _Refusal] = {}  # by the backends before
    for candidate in here if backend == AUTO else (BACKENDS[backend],):
        missing = candidate.why_not(signatures.device, signatures.dtype)
        if missing is not None and backend != AUTO:
            raise EngineError(
                f"backend={backend} cannot run: {missing}. Use backend={AUTO} "
                f"(model.backend={AUTO})."
            )
        if missing is None:
            compiled, refused = _compile_all(inputs, signatures, candidate, trial)
        elif not compiled:
            refused = _refuse_all(inputs, missing)
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
    inputs: PassInputs, signatures: _Signatures, backend: Backend, trial: type[Trial]
) -> tuple[dict[int, CompiledCell], dict[int, _Refusal]]:
    """The programs of the cells, and the cells that have none."""
    found: dict[int, CompiledCell] = {}
    refused: dict[int, _Refusal] = {}
    for op_type, cell in inputs.cells.items():
        if op_type not in inputs.plan.types:
            continue
        known = _find(cell, signatures.of(op_type), backend, trial)
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


def _find(cell: Cell, signature: Signature, backend: Backend, trial: type[Trial]) -> Known:
    """The result of compiling a cell, which is compiled now if it is new or has changed."""
    key = backend.name, signature
    known = _programs_of(cell).get(key)
    if known is not None and (known.watch is None or known.watch.is_unchanged()):
        return known
    with _COMPILING:
        found = _compile(cell, signature, backend, trial)
        if known is not None and found.compiled is None and found.reason == known.reason:
            found = found._replace(retries=known.retries + 1)
            if found.retries >= MAX_RETRIES:
                found = found._replace(watch=None)
        _remember(_programs_of(cell), key, found, MAX_KNOWN)
        return found


def _programs_of(cell: Cell) -> dict[tuple[str, Signature], Known]:
    """The result of compiling a cell, which is remembered."""
    programs: dict[tuple[str, Signature], Known] = vars(cell)["_programs"]
    return programs


def _remember(known: dict[Any, Known], key: Hashable, found: Known, most: int) -> None:
    """Stores a result as the newest, and drops the oldest beyond the limit."""
    known.pop(key, None)
    while len(known) >= most:
        del known[next(iter(known))]
    known[key] = found


def forget_programs(cells: Iterable[Cell]) -> None:
    """Has the cells traced and tried again when they are next used."""
    with _COMPILING:
        _OF_FORM.clear()
        for cell in cells:
            _programs_of(cell).clear()


class _Signatures:
    """The signatures of the cells of a pass: all that their programs depend on.

    Args:
        inputs: the pass.
        differentiate: whether backward follows.
        in_rounds: whether these are rounds of message passing.
    """

    def __init__(self, inputs: PassInputs, differentiate: bool, in_rounds: bool) -> None:
        self._inputs, self._differentiate, self._in_rounds = inputs, differentiate, in_rounds
        self.dtype, self.device = inputs.dtype(next(iter(inputs.fields))), inputs.device
        widths = {name: value.shape[1] for name, value in inputs.given.items()} | inputs.fields
        self._fields, self._written = tuple(widths.items()), frozenset(inputs.fields)
        self._given = tuple(
            [(n, differentiate and value.requires_grad) for n, value in inputs.given.items()]
        )
        self._edge = self._kinds(inputs.edge.items(), 1)
        self._shared = self._kinds(inputs.shared.items(), 0)

    def of(self, op_type: int) -> Signature:
        """The signature of the cell of a type."""
        inputs, table = self._inputs, self._inputs.tables.get(op_type)
        return Signature(
            self.dtype,
            None if self._in_rounds else inputs.cells[op_type].arity,
            self._kinds(parts(inputs.x[op_type]), 1),
            self._edge if table is None else self._kinds(table.items(), 1),
            self._fields,
            self._given,
            self._shared,
            self._differentiate,
            self._written,
            has_tables=table is not None,
            in_rounds=self._in_rounds,
            device=self.device,
            readable=inputs.readable[op_type],
        )

    def _kinds(
        self, tensors: Iterable[tuple[str, Tensor]], first: int
    ) -> tuple[tuple[str, tuple[int, ...], torch.dtype, bool], ...]:
        """Tensors by name as a program knows them, each with its sizes from the `first` on."""
        differentiate = self._differentiate
        return tuple(
            [
                (name, value.shape[first:], value.dtype, differentiate and value.requires_grad)
                for name, value in tensors
            ]
        )


def _compile(cell: Cell, signature: Signature, backend: Backend, trial: type[Trial]) -> Known:
    """The result of compiling a cell, or of one of the same form."""
    try:
        watch = Watch(cell)
    except Unwatchable as reason:
        return Known(None, _in_full(str(reason), cell, signature, trial))
    _require_on(cell, signature.device)
    form = watch.form()
    key = backend.name, signature, form
    found = None if form is None else _OF_FORM.get(key)
    if found is None:
        found = _compile_anew(cell, signature, backend, trial, watch)
    if form is not None:
        _remember(_OF_FORM, key, found, MAX_FORMS)
    return found._replace(watch=watch)


@outside_modes  # tracing and trying are no part of the run
def _compile_anew(
    cell: Cell, signature: Signature, backend: Backend, trial: type[Trial], watch: Watch
) -> Known:
    before = watch.snapshot()
    try:
        compiled = compile_cell(cell, signature, backend)
        check(cell, compiled, signature, trial)
        if not watch.is_unchanged():
            raise Untraceable("it changes what it reads, such as an attribute, while it runs")
    except Untraceable as reason:
        before.restore()
        is_traced = isinstance(reason, Unwritable)
        text = str(reason) if is_traced else _in_full(str(reason), cell, signature, trial)
        before.restore()  # a cell that was judged has kept tensors, too
        return Known(None, text, is_traced=is_traced)
    except BaseException:
        before.restore()
        raise
    return Known(compiled)


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
