"""FrozenWeights: what cells compute of parameters alone, kept between calls for serving."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from graphfold.batching.compiler.compiled_cell import CompiledCell

#: Beyond so many, all are let go: some code gives a network other tensors at every call.
MOST_CELLS = 1_000


class FrozenCell(NamedTuple):
    """The constants and packed weights of one cell.

    Args:
        tensors: aliases of its parameters and buffers, so that no other tensor gets their memory.
        versions: torch's counts of their changes in place.
        constants: what the cell computes of them alone.
        packed: what a backend has made of the constants, by names of its own.
    """

    tensors: tuple[Tensor, ...]
    versions: tuple[int, ...]
    constants: tuple[Tensor, ...]
    packed: dict[Any, Tensor]

    def holds(self, tensors: Sequence[Tensor]) -> bool:
        """True if the numbers of a cell's tensors are those that this was computed of."""
        return all(
            now._version == version and now.data_ptr() == old.data_ptr() and now.dtype == old.dtype
            for now, old, version in zip(tensors, self.tensors, self.versions, strict=True)
        )


class FrozenWeights:
    """The constants and packed weights of compiled cells, see `Network.freeze`."""

    def __init__(self) -> None:
        self._cells: dict[tuple[int, ...], tuple[FrozenCell, object]] = {}

    def of(self, cell: CompiledCell, tensors: Sequence[Tensor]) -> FrozenCell | None:
        """The frozen cell; computed anew where a tensor has changed.

        None where nothing can be kept: under autograd, or where torch counts no changes.

        Args:
            cell: the programs of the cell.
            tensors: the parameters and buffers that `cell.lowered.fixed` takes.
        """
        is_learning = torch.is_grad_enabled() and any(t.requires_grad for t in tensors)
        if is_learning or cell.lowered.shared or any(t.is_inference() for t in tensors):
            return None
        key = (id(cell), *map(id, tensors))
        known, _ = self._cells.get(key, (None, cell))
        if known is None or not known.holds(tensors):
            if len(self._cells) >= MOST_CELLS:
                self._cells.clear()
            with torch.no_grad():
                constants = tuple(cell.lowered.fixed(*tensors))
            aliases = tuple(tensor.detach() for tensor in tensors)
            known = FrozenCell(aliases, tuple(t._version for t in tensors), constants, {})
            self._cells[key] = known, (cell, *tensors)  # which keeps the numbers of the key taken
        return known
