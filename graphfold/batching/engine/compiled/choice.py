"""The choice of the cells that are compiled: all that can be, and a warning about the others."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Set
from typing import NamedTuple

import torch

from graphfold._torch import is_transformed
from graphfold.batching.backends.native import NativeBackend
from graphfold.batching.backends.torch_memory import TorchBackend
from graphfold.batching.backends.triton import TritonBackend
from graphfold.batching.compiler.backend import Backend
from graphfold.batching.compiler.compiled_cell import CompiledCell
from graphfold.batching.engine.compiled.programs import Programs, WantedPrograms
from graphfold.batching.engine.compiled.trial import PassTrial, Trial
from graphfold.batching.engine.pass_inputs import PassInputs
from graphfold.batching.kernels.segment import SCATTER
from graphfold.errors import EngineError

#: What runs programs, in the order in which they are asked whether they can.
BACKENDS: Mapping[str, Backend] = {
    own.name: own for own in (NativeBackend(), TritonBackend(), TorchBackend())
}
#: The first backend that can; and, of the ways to run cells, programs for all that can have them.
AUTO = "auto"
#: The ways to run cells, see `Network`.
COMPILED, EAGER, REFERENCE = "compiled", "eager", "reference"
RUNS = (AUTO, COMPILED, EAGER, REFERENCE)


class Choice(NamedTuple):
    """Programs of the cells of a pass by op type, and why the others have none."""

    compiled: Mapping[int, CompiledCell]
    why_not: Mapping[int, str]

    @staticmethod
    def eager(inputs: PassInputs, reason: str) -> Choice:
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
        return f"eager ({reason})"


_SAID: set[tuple[str, str]] = set()


def runs_first(device: torch.device, dtype: torch.dtype) -> str | None:
    """The backend that `auto` takes; None if none can run."""
    return next((own.name for own in BACKENDS.values() if not own.why_not(device, dtype)), None)


def find_compiled(
    inputs: PassInputs,
    run: str,
    backend: str,
    programs: Programs,
    trial: type[Trial] = PassTrial,
    why_not: Callable[[Mapping[int, CompiledCell]], str | None] | None = None,
) -> Choice:
    """Compiles the cells of a pass, and says why others run eager.

    A cell that cannot be compiled is named in a warning, once for each reason.

    Args:
        inputs: the pass.
        run: `COMPILED` if each cell has to be compiled, `EAGER` if none shall be.
        backend: what runs programs, of `BACKENDS`; or the first that can.
        programs: remembers what was compiled for the pass.
        trial: how programs are tried; of rounds of message passing, see `RoundsInputs.as_pass`,
            otherwise than of passes up and down.
        why_not: says of the programs of all cells why the pass cannot run as programs, if so.

    Raises:
        EngineError: if a cell has to be compiled and cannot be, or if the backend cannot run here.
    """
    reason = why_eager(run, backend)
    if reason is not None or not inputs.fields:
        return Choice.eager(inputs, reason or "no cell of the pass has fields")
    wanted = WantedPrograms(inputs, programs, trial)
    compiled, refused = _compile_by_any(wanted, backend)
    reasons = {t: refuse(own.name, own.reason, run) for t, own in refused.items()}
    for op_type in _alone(inputs, compiled):
        reasons[op_type] = "a node alone has no variance"
        del compiled[op_type]
    if why_not is not None and not reasons and (reason := why_not(compiled)) is not None:
        return Choice.eager(inputs, refuse(_names(inputs), reason, run))
    return Choice(compiled, reasons)


def _compile_by_any(
    wanted: WantedPrograms, backend: str
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
    wanted: WantedPrograms, backend: Backend
) -> tuple[dict[int, CompiledCell], dict[int, _Refusal]]:
    """The programs of the cells, and the cells that have none."""
    found: dict[int, CompiledCell] = {}
    refused: dict[int, _Refusal] = {}
    for op_type, known in wanted.find(backend).items():
        if known.compiled is None:
            name = type(wanted.inputs.cells[op_type]).__name__
            refused[op_type] = _Refusal(name, known.reason, known.is_traced)
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


def why_eager(run: str, backend: str) -> str | None:
    """The reason why no cell is compiled here; None if cells may be.

    Args:
        run: see `find_compiled`.
        backend: see `find_compiled`.

    Raises:
        EngineError: if cells have to be compiled.
    """
    if run == EAGER:
        return "run=eager"
    reason = None
    if torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda"):
        reason = "autocast is on"
    elif backend == SCATTER:
        reason = "backend=scatter adds up over children"
    elif is_transformed():
        reason = "a transform of torch.func or forward-mode differentiation is on"
    if run == COMPILED and reason is not None:
        raise EngineError(f"run=compiled compiles every cell, but {reason}. Use run=auto.")
    return reason


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


def refuse(name: str, reason: str, run: str) -> str:
    """Says, and gives, the reason why a cell is not compiled."""
    message = f"{name} is not compiled: {reason}."
    if run == COMPILED:
        raise EngineError(
            f"{message} run=compiled demands that it is; with run=auto (model.run=auto) it runs "
            "eager, and slower."
        )
    if (name, reason) not in _SAID:
        _SAID.add((name, reason))
        warnings.warn(
            f"{message} It runs eager, group by group, and slower; see docs/engine.md. "
            "run=eager (model.run=eager) accepts that.",
            stacklevel=2,
        )
    return f"{name}: {reason}"
