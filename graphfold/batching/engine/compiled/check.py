"""Check: whether the programs of a cell give its numbers, tried once on made-up groups.

The contract: what compiled cells compute is what the cells compute but for rounding, states and
gradients alike. It is tried in float64, where rounding cannot turn a relu over, on numbers of both
signs, with groups of several sizes, with edges and without.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from graphfold.batching.cell import Cell, NodeInput
from graphfold.batching.engine.compiled.compiled_cell import CompiledCell, compile_cell
from graphfold.batching.engine.compiled.run import run_compiled
from graphfold.batching.engine.compiled.trace import Signature
from graphfold.batching.engine.compiled.values import Untraceable
from graphfold.batching.engine.eager import run_eager
from graphfold.batching.engine.pass_inputs import PassInputs, parts
from graphfold.batching.kernels.segment_kernels import NATIVE
from graphfold.batching.scheduling.edges import Edges
from graphfold.batching.scheduling.plan import plan_pass
from graphfold.batching.scheduling.sources import CellInputs

#: How far numbers may be from the cell's, relative to the largest of a tensor, or to one.
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-11}
#: How many nodes the groups have, and how many children each node at most.
SIZES = ((1, 2), (2, 3), (7, 3), (7, 0), (40, 5))
_SOURCE, _TRIED = 0, 1


def check(
    cell: Cell, compiled: CompiledCell, signature: Signature, written: frozenset[str]
) -> None:
    """Tries the programs of a cell.

    Args:
        cell: the cell.
        compiled: its programs.
        signature: what it may read.
        written: the fields that the pass writes.

    Raises:
        Untraceable: if they give other numbers than the cell.
    """
    if signature.in_rounds:  # the same programs over the same plans, with another way to read
        return
    wide = _in_float64(cell) if signature.differentiate else None
    if wide is not None:
        wider = _with_dtype(signature, torch.float64)
        try:
            compiled_wide = compile_cell(wide, wider, written, is_known=True)
        except Untraceable:  # its code names another dtype
            wide = None
    for size, most in SIZES:
        if wide is not None:
            _compare(_Trial(wide, wider, written, size, most), compiled_wide, True)
        trial = _Trial(cell, signature, written, size, most)
        _compare(trial, compiled, signature.differentiate and wide is None)


def _in_float64(cell: Cell) -> Cell | None:
    """A copy of a cell; None if it cannot be had, as of functions with tensors of their own."""
    try:
        wide = copy.deepcopy(cell).double()
        for module in wide.modules():
            for parameter in module.parameters(recurse=False):
                parameter.grad = None
    except Exception:
        return None
    return wide


def _with_dtype(signature: Signature, dtype: torch.dtype) -> Signature:
    def wider(
        parts: tuple[tuple[str, tuple[int, ...], torch.dtype, bool], ...],
    ) -> tuple[tuple[str, tuple[int, ...], torch.dtype, bool], ...]:
        return tuple((n, s, dtype if d.is_floating_point else d, g) for n, s, d, g in parts)

    return replace(
        signature,
        dtype=dtype,
        x=wider(signature.x),
        edge=wider(signature.edge),
        shared=wider(signature.shared),
    )


class _Trial:
    """A pass over one group of made-up nodes, which read made-up states."""

    def __init__(
        self, cell: Cell, signature: Signature, written: frozenset[str], size: int, most: int
    ) -> None:
        self._generator = torch.Generator().manual_seed(size + most)
        self._signature, arity = signature, cell.arity
        rng = np.random.default_rng(size + most)
        counts = rng.integers(0, most + 1, size) if arity is None else np.full(size, arity)
        num_sources = 4
        ptr = np.concatenate([np.zeros(num_sources + 1, np.int64), counts.cumsum()])
        child = rng.integers(-1 if arity else 0, num_sources, int(counts.sum()))
        op_type = np.array([_SOURCE] * num_sources + [_TRIED] * size)
        self.plan = plan_pass(
            CellInputs.of_nodes(op_type, 2), Edges.from_csr(ptr, child), op_type.copy()
        )
        widths = dict(signature.fields)
        # The sources have what an earlier pass computed, also of fields that this one writes.
        given = {**dict.fromkeys(written & widths.keys(), True), **dict(signature.given)}
        self.inputs = PassInputs(
            plan=self.plan,
            cells={_TRIED: cell},
            x={_TRIED: self._x(size)},
            given={
                name: self._numbers((num_sources + size + 1, widths[name]), signature.dtype, wanted)
                for name, wanted in given.items()
            },
            absent={},
            edge=dict(self._parts(signature.edge, int(counts.sum()))),
            shared={
                name: self._numbers(shape, dtype, wanted)
                for name, shape, dtype, wanted in signature.shared
            },
            kernel=NATIVE,
        )

    def leaves(self) -> Iterator[Tensor]:
        """All that may get a gradient."""
        inputs = self.inputs
        given = [*(t for x in inputs.x.values() for _, t in parts(x)), *inputs.edge.values()]
        given += [*inputs.given.values(), *inputs.shared.values()]
        yield from (tensor for tensor in given if tensor.requires_grad)
        yield from (p for p in inputs.cells[_TRIED].parameters() if p.requires_grad)

    def _x(self, size: int) -> NodeInput:
        x = dict(self._parts(self._signature.x, size))
        return x[""] if list(x) == [""] else x  # one tensor alone has no name

    def _parts(
        self, parts: tuple[tuple[str, tuple[int, ...], torch.dtype, bool], ...], count: int
    ) -> Iterator[tuple[str, Tensor]]:
        for name, shape, dtype, wanted in parts:
            yield name, self._numbers((count, *shape), dtype, wanted)

    def _numbers(self, shape: tuple[int, ...], dtype: torch.dtype, wanted: bool) -> Tensor:
        if not dtype.is_floating_point:
            return torch.zeros(shape, dtype=dtype)
        return self.numbers(shape, dtype).requires_grad_(wanted and self._signature.differentiate)

    def numbers(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """Made-up numbers of both signs."""
        return torch.randn(shape, generator=self._generator, dtype=torch.float64).to(dtype)


def _compare(trial: _Trial, compiled: CompiledCell, with_gradients: bool) -> None:
    """Raises Untraceable unless both ways agree."""
    inputs = trial.inputs
    with torch.set_grad_enabled(with_gradients):
        ours, own = run_compiled(inputs, {_TRIED: compiled}), run_eager(inputs)
    ways = [[states[name] for name in inputs.fields] for states in (ours, own)]
    _require_close(*ways)
    if with_gradients:
        asked = [trial.numbers(tuple(state.shape), state.dtype) for state in ways[0]]
        leaves = list(trial.leaves())
        _require_close(*(_gradients(states, asked, leaves) for states in ways))


def _gradients(states: list[Tensor], asked: list[Tensor], leaves: list[Tensor]) -> list[Tensor]:
    total = sum((state * grad).sum() for state, grad in zip(states, asked, strict=True))
    if not isinstance(total, Tensor) or not total.requires_grad or not leaves:
        return []
    found = torch.autograd.grad(total, leaves, allow_unused=True)
    return [torch.zeros_like(x) if g is None else g for g, x in zip(found, leaves, strict=True)]


def _require_close(ours: list[Tensor], own: list[Tensor]) -> None:
    for one, other in zip(ours, own, strict=True):
        finite = other[other.isfinite()].detach().abs()
        scale = max(float(finite.max()), 1.0) if len(finite) else 1.0
        atol = TOLERANCE[other.dtype] * scale
        if not torch.allclose(one, other, rtol=0, atol=atol, equal_nan=True):
            raise Untraceable("its program gives other numbers than the cell")
