"""Memory: all that native code reads and writes in one direction of a pass, by name."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from ctypes import CDLL
from typing import Any

import torch
from torch import Tensor

from graphfold.batching.compiler.program import Key, Program, Weight
from graphfold.batching.scheduling.pass_schedule import Links, PassSchedule

#: Fewer multiplications do not repay packing a weight that can be read as it lies.
FEW_TO_PACK = 1 << 27
#: What readers leave of a field, whose rows pull it; in the order of native `pull_rows`.
PULLED = ("edge_grad", "node_grad", "previous_grad", "weighted_grad")


class Memory:
    """Tensors by what native code knows them as.

    Args:
        plan: of the pass.
        library: the native library.
        num_threads: how many threads share the blocks of a group.
        links: who reads whom.

    Attributes:
        shared: what all types read and write.
        own: op type -> what only its nodes read and write.
        first_row: of what does not begin with row 0, the row that it begins with.
    """

    def __init__(self, plan: PassSchedule, library: CDLL, num_threads: int, links: Links) -> None:
        self._plan, self._library, self._num_threads = plan, library, num_threads
        self._links = links
        self.shared: dict[Key, Tensor] = {("child_row", ""): plan.child_row}
        self.own: dict[int, dict[Key, Tensor]] = {}
        self.first_row: dict[Key | tuple[int, Key], int] = {}
        self._weights: dict[Any, tuple[Tensor, array[int]]] = {}

    def run(self, programs: Mapping[int, Program], is_backward: bool) -> None:
        """Runs programs over the groups of the plan.

        Raises:
            MemoryError: if there is no memory for a block.
        """
        table = [0] * len(self._plan.type_order)
        for op_type, program in programs.items():
            own, num_rows = self.own[op_type], self._plan.count_rows(op_type)
            own["numbers", ""] = program.numbers
            for key, size in program.sums.items():
                own[key] = program.numbers.new_zeros(self._num_threads, size)
            weights = {w.key: self._place_weight(own, w, num_rows) for w in program.weights}
            table[op_type] = len(table)
            table += program.head
            table += [weights.get(key) or self.address(key, op_type) for key in program.keys]
        numbers = array("q", table)
        plan = self._plan
        is_done = self._library.run_pass(
            plan.group_table.data_ptr(),
            len(plan.groups),
            is_backward,
            numbers.buffer_info()[0],
            self._links.table.data_ptr(),
            self._num_threads,
        )
        if not is_done:
            raise MemoryError("there is no memory for a block of nodes")

    def pull(self, field: str, first: int, total: Tensor) -> Tensor:
        """Writes to `total` [count, width] what the readers of some rows ask of them.

        Args:
            field: of the rows.
            first: the first of them.
            total: where it is written.
        """
        asked = [self.address((kind, field)) for kind in (*PULLED, "edge_weight")]
        self._library.pull_rows(
            self._links.table.data_ptr(), first, *total.shape, *asked, total.data_ptr()
        )
        return total

    def address(self, key: Key, op_type: int | None = None) -> int:
        """The address of row 0 of what a type reads, there or not; 0 for nothing."""
        tensor = None if op_type is None else self.own[op_type].get(key)
        named: Key | tuple[int, Key] = key
        if tensor is not None and op_type is not None:
            named = op_type, key
        else:
            tensor = self.shared.get(key)
        if tensor is None:
            return 0
        start = tensor.data_ptr()
        if named in self.first_row:
            start -= self.first_row[named] * tensor.shape[1] * tensor.element_size()
        return start

    def _place_weight(self, own: Mapping[Key, Tensor], weight: Weight, num_rows: int) -> int:
        """The address of what describes a weight; cells of several rounds may have the same."""
        right = own["constant", str(weight.weight)]
        bias = None if weight.bias is None else own["constant", str(weight.bias)].data_ptr()
        key = right.data_ptr(), right.shape, right.stride(), bias, weight.is_transposed
        if key not in self._weights:
            self._weights[key] = self._right_side(right, bias, weight.is_transposed, num_rows)
        return self._weights[key][1].buffer_info()[0]

    def _right_side(
        self, right: Tensor, bias: int | None, is_transposed: bool, num_rows: int
    ) -> tuple[Tensor, array[int]]:
        """A weight, packed or as it lies, and its `right_side` in native/products.h."""
        (k, m), steps = right.shape, right.stride()
        if is_transposed:
            k, m, steps = m, k, steps[::-1]
        is_whole = bias is None and steps[1] == 1 < steps[0] and m % self._library.lanes() == 0
        if is_whole and num_rows * k * m < FEW_TO_PACK:
            return right, array("q", (right.data_ptr(), steps[0]))
        packed = torch.empty(self._library.packed_size(k, m), dtype=right.dtype)
        self._library.pack(right.data_ptr(), *steps, bias, k, m, packed.data_ptr())
        return packed, array("q", (packed.data_ptr(), 0))


def address(tensor: Tensor | None) -> int:
    """The address of a tensor; 0 for none."""
    return 0 if tensor is None else tensor.data_ptr()
