"""The interface of backends: what they are given of a cell, and what they give.

A backend is given the values of one direction of a cell, and where those lie that outlive a group;
it gives a program. For each pass over a batch it gives a `Memory`: it holds all tensors by name,
and runs programs on them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from graphfold.batching.compiler.program import Key, Place, Program, WeightGradient
from graphfold.batching.compiler.values import Value
from graphfold.batching.scheduling.pass_schedule import PassSchedule

#: What readers leave of a field, whose rows pull it.
PULLED = ("edge_grad", "node_grad", "previous_grad", "weighted_grad")


class Memory(ABC):
    """The named tensors of one direction of a pass, and the operations on them.

    Args:
        plan: of the pass.
        dtype: of all numbers.
        is_backward: whether groups run from the last to the first.

    Attributes:
        shared: what all types read and write.
        own: op type -> what only its nodes read and write.
        first_row: op type, or None for `shared` -> of what does not begin with row 0, the row that
            it begins with.
    """

    def __init__(self, plan: PassSchedule, dtype: torch.dtype, is_backward: bool) -> None:
        self.plan, self.dtype, self.is_backward = plan, dtype, is_backward
        self.shared: dict[Key, Tensor] = {}
        self.own: dict[int, dict[Key, Tensor]] = {}
        self.packed: Mapping[int, dict[Any, Tensor]] = {}
        self.first_row: dict[int | None, dict[Key, int]] = defaultdict(dict)

    def take(
        self, tensor: Tensor, what: str | Key, size: int | None = None, by_strides: bool = False
    ) -> Tensor:
        """A tensor that the pass has not made itself, as programs read it.

        Args:
            tensor: the tensor.
            what: its name in messages.
            size: how many integers it has; None if it has numbers of `dtype`.
            by_strides: whether programs read it by its strides.
        """
        return tensor if by_strides else tensor.contiguous()

    @abstractmethod
    def run(self, programs: Mapping[int, Program]) -> None:
        """Runs programs, op type -> its own, over the groups of the plan; backward, in reverse."""

    @abstractmethod
    def count_sums(self, op_type: int) -> int:
        """The number of sums of a type's nodes that are made apart, to be added up in the end."""

    @abstractmethod
    def sum_products(self, op_type: int, product: WeightGradient) -> tuple[Tensor, Tensor | None]:
        """The gradients of a weight, in its layout, and of its bias, if it has one."""

    @abstractmethod
    def place_sparse(self, field: str, grad: Tensor) -> None:
        """Places an upstream gradient [num_rows, width] that has some of the rows of a field.

        In `shared` is then ("upstream", field), of all rows; or of some, [count, width], and
        ("upstream_row", field), [num_rows] which of these each row is, -1 for none.
        """

    @abstractmethod
    def pull(self, field: str, first: int, total: Tensor) -> Tensor:
        """Writes to `total` [count, width] the gradients that the readers of some rows have left.

        Args:
            field: of the rows.
            first: the first of them.
            total: where it is written.
        """


class Backend(ABC):
    """A way to run the programs of cells."""

    name: ClassVar[str]
    #: What its programs are, in sentences.
    label: ClassVar[str]
    #: The types of devices that it is for.
    devices: ClassVar[Sequence[str]]
    #: Whether backward computes again what is as fast to compute as to read; otherwise, forward
    #: keeps it.
    recomputes: ClassVar[bool]

    @abstractmethod
    def why_not(self, device: torch.device, dtype: torch.dtype) -> str | None:
        """The reason why it cannot run on a device, with numbers of a dtype; None if it can."""

    @abstractmethod
    def write_program(
        self, dtype: torch.dtype, values: Sequence[Value], places: Mapping[Value, Place]
    ) -> Program:
        """The program that computes some values.

        Args:
            dtype: of all numbers.
            values: what to compute, in order.
            places: values that lie in buffers of the pass: computed here, or given.

        Raises:
            Unwritable: if this backend cannot compute them.
        """

    @abstractmethod
    def memory(self, plan: PassSchedule, dtype: torch.dtype, is_backward: bool) -> Memory:
        """The memory of one direction of a pass."""
