"""Parameter aliases: the same weights, cut off from the graph outside.

A cell must find its parameters where it always does, in its modules; yet inside the engine their
gradients are collected group by group and may not reach the real parameters, whose hooks would run
once per group. So the modules hold aliases while the engine runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from torch import Tensor, nn

from graphfold.batching.cell import Cell


def unique_parameters(cells: Iterable[Cell]) -> list[nn.Parameter]:
    """All parameters of the cells, each tensor once, by identity."""
    found = {id(p): p for cell in cells for p in cell.parameters()}
    return list(found.values())


@contextmanager
def aliased(cells: Iterable[Cell], aliases: dict[int, Tensor]) -> Iterator[None]:
    """Puts aliases in the place of parameters, and the parameters back at the end.

    Args:
        cells: the modules that hold the parameters.
        aliases: id of a parameter -> the tensor that stands for it.
    """
    replaced: list[tuple[dict[str, Tensor | None], str, Tensor]] = []
    try:
        for module in {id(m): m for cell in cells for m in cell.modules()}.values():
            slots: dict[str, Tensor | None] = module._parameters  # type: ignore[assignment]
            for name, parameter in list(slots.items()):
                if parameter is not None and id(parameter) in aliases:
                    replaced.append((slots, name, parameter))
                    slots[name] = aliases[id(parameter)]
        yield
    finally:
        for slots, name, parameter in replaced:
            slots[name] = parameter
