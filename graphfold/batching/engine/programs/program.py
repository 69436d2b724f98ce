"""Programs: a cell's forward and backward over one group as straight-line code.

A cell is traced once, with the size of the group left open; autograd's part in the trace becomes
code as well. What is left of a group is a row of tensor operations: no modules, no autograd graph.
Everything stays as the cell says: a program is used only where it gave the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import Tensor

from graphfold.batching.engine.lazy_parameters import Kind

if TYPE_CHECKING:
    from graphfold.batching.engine.programs.program_functions import Backward


class Slot(NamedTuple):
    """One tensor that a cell reads.

    Args:
        how: "x", "rows", "sum", "previous", "edge", "ptr", "parent" or "child_count".
        name: of the field, the column or the part of x.
        like: a tensor of its dtype, device and trailing shape.
        per: what its rows belong to: "node", "edge", or "child" for the edges of nodes of fixed
            arity, [group_size, arity, ...]; "ptr" for one row more than nodes.
        needs_grad: whether its gradient is wanted.
        is_apart: whether the code is given rows where they lie, see `Apart`.
    """

    how: str
    name: str
    like: Tensor
    per: str
    needs_grad: bool
    is_apart: bool = False


class Layout(NamedTuple):
    """What a program's backward returns after the gradients of the slots that need one.

    Args:
        uses: of each deferred use, its kind and the numbers of weight and bias; it returns the
            use's input and the gradient of its output.
        plain: the numbers of the parameters used otherwise; it returns their gradients.
    """

    uses: Sequence[tuple[Kind, int | None, int | None]] = ()
    plain: Sequence[int] = ()


class Program(NamedTuple):
    """Straight-line code for one group.

    Args:
        slots: what the cell reads.
        reads: the positions of those that its code reads; the others only have a gradient of zero.
        constants: (parameters twice) -> what depends on them alone, such as a transposed weight.
        forward: (slots that are read ..., constants ..., places of the outputs ...) -> what
            backward is given; the outputs, in the order of the cell's fields, are written to their
            places.
        backward: gives functions (saved ..., constants ..., gradients of the outputs ...) -> see
            `Layout`.
        layout: what backward returns.
    """

    slots: tuple[Slot, ...]
    reads: tuple[int, ...]
    constants: Callable[..., list[Any]]
    forward: Callable[..., list[Any]]
    backward: Backward
    layout: Layout
