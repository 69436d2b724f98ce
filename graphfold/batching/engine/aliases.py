"""Parameter aliases: the same weights, cut off from the graph outside.

A cell must find its parameters where it always does, in its modules; yet inside the engine their
gradients are collected group by group and may not reach the real parameters, whose hooks would run
once per group. So the modules hold aliases while the engine runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from torch import Tensor

from graphfold.batching.cell import Cell


@contextmanager
def aliased(cells: Iterable[Cell], aliases: dict[int, Tensor]) -> Iterator[None]:
    """Puts aliases in the place of parameters and buffers, and these back at the end.

    Args:
        cells: the modules that hold them.
        aliases: id of a parameter or buffer -> the tensor that stands for it.
    """
    replaced: list[tuple[dict[str, Tensor | None], str, Tensor]] = []
    try:
        for module in {id(m): m for cell in cells for m in cell.modules()}.values():
            for slots in (module._parameters, module._buffers):
                _replace(slots, aliases, replaced)  # type: ignore[arg-type]
        yield
    finally:
        for slots, name, parameter in replaced:
            slots[name] = parameter


def _replace(
    slots: dict[str, Tensor | None],
    aliases: dict[int, Tensor],
    replaced: list[tuple[dict[str, Tensor | None], str, Tensor]],
) -> None:
    for name, tensor in list(slots.items()):
        if tensor is not None and id(tensor) in aliases:
            replaced.append((slots, name, tensor))
            slots[name] = aliases[id(tensor)]
