"""Memory: all that native code reads and writes in one direction of a pass, by name."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from ctypes import CDLL

import torch
from torch import Tensor

from graphfold.batching.engine.compiled.program import Key, Program
from graphfold.batching.scheduling.pass_schedule import PassSchedule


class Memory:
    """Tensors by what native code knows them as.

    Args:
        plan: of the pass.
        library: the native library.
        num_threads: how many threads share the blocks of a group.

    Attributes:
        shared: what all types read and write.
        own: op type -> what only its nodes read and write.
    """

    def __init__(self, plan: PassSchedule, library: CDLL, num_threads: int) -> None:
        self._plan, self._library, self._num_threads = plan, library, num_threads
        self.shared: dict[Key, Tensor] = {("child_row", ""): plan.child_row}
        self.own: dict[int, dict[Key, Tensor]] = {}

    def run(self, programs: Mapping[int, Program], is_backward: bool) -> None:
        """Runs programs over the groups of the plan.

        Raises:
            MemoryError: if there is no memory for a block.
        """
        shared = {key: tensor.data_ptr() for key, tensor in self.shared.items()}
        table = [0] * len(self._plan.type_order)
        packed = []  # held until the end
        for op_type, program in programs.items():
            own, found = self.own[op_type], dict(shared)
            for key, tensor in own.items():
                found[key] = tensor.data_ptr()
            for weight in program.weights:
                packed.append(self._pack(own, *weight))
                found[weight.key] = packed[-1].data_ptr()
            found["numbers", ""] = program.numbers.data_ptr()
            table[op_type] = len(table)
            table += program.head
            table += [found.get(key, 0) for key in program.keys]
        numbers = array("q", table)
        plan = self._plan
        is_done = self._library.run_pass(
            plan.group_table.data_ptr(),
            len(plan.groups),
            is_backward,
            numbers.buffer_info()[0],
            plan.link_table.data_ptr(),
            self._num_threads,
        )
        if not is_done:
            raise MemoryError("there is no memory for a block of nodes")

    def pull(self, field: str, first: int, count: int, width: int) -> Tensor:
        """[count, width] what the readers of some rows ask of them."""
        of_edges = self.shared.get(("edge_grad", field))
        of_nodes = self.shared.get(("node_grad", field))
        like = of_nodes if of_edges is None else of_edges
        if like is None:
            return torch.zeros(count, width)
        total = like.new_empty(count, width)
        self._library.pull_rows(
            self._plan.link_table.data_ptr(),
            first,
            count,
            width,
            address(of_edges),
            address(of_nodes),
            total.data_ptr(),
        )
        return total

    def _pack(
        self, own: Mapping[Key, Tensor], weight: int, bias: int | None, is_transposed: bool
    ) -> Tensor:
        right = own["constant", str(weight)]
        if is_transposed:
            right = right.t()
        num_rows, num_columns = right.shape
        packed = right.new_empty(self._library.packed_size(num_rows, num_columns))
        self._library.pack(
            right.data_ptr(),
            *right.stride(),
            None if bias is None else own["constant", str(bias)].data_ptr(),
            num_rows,
            num_columns,
            packed.data_ptr(),
        )
        return packed


def address(tensor: Tensor | None) -> int:
    """Where a tensor lies; 0 for none."""
    return 0 if tensor is None else tensor.data_ptr()
