"""Check: whether the programs of a cell give its numbers, tried once on made-up groups.

The contract: what compiled cells compute is what the cells compute but for rounding, states and
gradients alike. It is tried in float64, where rounding cannot turn a relu over, on numbers of both
signs, with groups of several sizes, with edges and without.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from graphfold._torch import handling_operations
from graphfold.batching.cell import Cell
from graphfold.batching.compiler.assembly import compile_cell
from graphfold.batching.compiler.compiled_cell import CompiledCell
from graphfold.batching.compiler.trace import Signature
from graphfold.batching.compiler.values import Untraceable
from graphfold.batching.engine.compiled.trial import Part, Trial

#: How far numbers may be from the cell's, relative to the largest of a tensor, or to one.
TOLERANCE = {
    torch.float64: 1e-11,
    torch.float32: 1e-5,
    # A few roundings apart: programs do not round where the cell does.
    torch.float16: 1e-2,
    torch.bfloat16: 5e-2,
}
#: How many nodes there are, and how many children each has at most.
SIZES = ((1, 2), (2, 3), (7, 3), (7, 0), (40, 5))
#: Fewer nodes may have so little variance that dividing by it leaves nothing but rounding.
FEW = 7


def check(cell: Cell, compiled: CompiledCell, signature: Signature, kind: type[Trial]) -> None:
    """Tries the programs of a cell.

    Args:
        cell: the cell.
        compiled: its programs.
        signature: what it may read.
        kind: of the trials.

    Raises:
        Untraceable: if they give other numbers than the cell.
    """
    wider = _with_dtype(signature, torch.float64)
    # In float64 already, the cell's own programs are tried with their gradients.
    wide = _in_float64(cell) if signature.differentiate and wider != signature else None
    if wide is not None:
        try:
            compiled_wide = compile_cell(wide, wider, compiled.backend)
        except Untraceable:  # its code names another dtype
            wide = None
    if compiled.takes_means:  # the cell itself would take trials for batches
        found = _copied(cell)
        if found is None:
            raise Untraceable("it normalises over a batch, and no copy of it can be tried")
        cell = found
    for size, most in SIZES:
        if (size < FEW and compiled.takes_means) or (size == 1 and compiled.lowered.assumes_more):
            continue  # of one node there is no variance, and of two next to none may be
        if wide is not None:
            _compare(kind(wide, wider, size, most), compiled_wide, True)
        trial = kind(cell, signature, size, most)
        _compare(trial, compiled, signature.differentiate and wide is None)


def depends_on_group(cell: Cell, signature: Signature, kind: type[Trial]) -> bool:
    """True if what a cell computes for a node of a made-up group depends on the other nodes.

    A cell that raises there, gives other numbers each time, or draws random numbers, which would
    move torch's generator for all threads, is not judged.

    Args:
        cell: the cell.
        signature: what it may read.
        kind: of the trial.
    """
    copied = _copied(cell)  # a call may change it
    if copied is None:
        return False
    try:
        with torch.no_grad(), warnings.catch_warnings(), handling_operations(_refuse_random):
            warnings.simplefilter("ignore")  # of made-up nodes
            trial = kind(copied, signature, FEW, 0 if kind.in_rounds else 3)
            one, other, alone = trial.run_eager(), trial.run_eager(), trial.run_alone()
    except Exception:  # foreign code may raise anything
        return False
    return _are_close(one, other) and not _are_close(alone, one)


def _refuse_random(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Calls an operation; raises before one that draws random numbers."""
    if torch.Tag.nondeterministic_seeded in func.tags and kwargs.get("generator") is None:
        raise Untraceable("it draws random numbers")
    return func(*args, **kwargs)


def _in_float64(cell: Cell) -> Cell | None:
    """A copy of a cell; None if it cannot be had."""
    wide = _copied(cell)
    return None if wide is None else wide.double()


def _copied(cell: Cell) -> Cell | None:
    """A copy of a cell; None if it cannot be had, as of functions with tensors of their own."""
    try:
        made = copy.deepcopy(cell)
    except Exception:  # foreign code may raise anything
        return None
    for parameter in made.parameters():
        parameter.grad = None
    return made


def _with_dtype(signature: Signature, dtype: torch.dtype) -> Signature:
    def wider(parts: Sequence[Part]) -> tuple[Part, ...]:
        return tuple((n, s, dtype if d.is_floating_point else d, g) for n, s, d, g in parts)

    return signature._replace(
        dtype=dtype,
        x=wider(signature.x),
        edge=wider(signature.edge),
        shared=wider(signature.shared),
    )


def _compare(trial: Trial, compiled: CompiledCell, with_gradients: bool) -> None:
    """Raises Untraceable unless both give the same."""
    with torch.set_grad_enabled(with_gradients):
        results = [trial.run_compiled(compiled), trial.run_eager()]
    _require_close(*results)
    if with_gradients:
        cotangents = [trial.numbers(tuple(state.shape), state.dtype) for state in results[0]]
        leaves = list(trial.leaves())
        _require_close(*(_gradients(states, cotangents, leaves) for states in results))


def _gradients(
    states: list[Tensor], cotangents: list[Tensor], leaves: list[Tensor]
) -> list[Tensor]:
    total = sum((state * grad).sum() for state, grad in zip(states, cotangents, strict=True))
    found: Sequence[Tensor | None] = [None] * len(leaves)
    # Without an edge, one way may read no leaf where the other names them all.
    if isinstance(total, Tensor) and total.requires_grad and leaves:
        found = torch.autograd.grad(total, leaves, allow_unused=True)
    return [torch.zeros_like(x) if g is None else g for g, x in zip(found, leaves, strict=True)]


def _require_close(ours: list[Tensor], own: list[Tensor]) -> None:
    if not _are_close(ours, own):
        raise Untraceable("its program gives other numbers than the cell")


def _are_close(ours: list[Tensor], own: list[Tensor]) -> bool:
    for one, other in zip(ours, own, strict=True):
        finite = other[other.isfinite()].detach().abs()
        scale = max(float(finite.max()), 1.0) if len(finite) else 1.0
        atol = TOLERANCE[other.dtype] * scale
        if not torch.allclose(one, other, rtol=0, atol=atol, equal_nan=True):
            return False
    return True
