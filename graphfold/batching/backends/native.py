"""The native backend: programs for the interpreter in C of `graphfold.batching.native`."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from itertools import repeat
from typing import Any, TypeAlias

import torch
from torch import Tensor

from graphfold.batching.backends.program_writer import NativeProgram, Weight, write_program
from graphfold.batching.compiler.backend import PULLED, Backend, Memory
from graphfold.batching.compiler.program import Key, Place, Program, Rows, WeightGradient
from graphfold.batching.compiler.values import Value
from graphfold.batching.native.library import load, why_missing
from graphfold.batching.native.linear import FEW_MULTIPLICATIONS
from graphfold.batching.native.readable import What, readable
from graphfold.batching.scheduling.pass_schedule import PassSchedule

#: Fewer multiplications do not repay packing a weight that can be read as it lies.
FEW_TO_PACK = 1 << 27

#: What describes a weight in a call, in the order of native/products.h, with the weight itself.
Weights: TypeAlias = dict[Any, tuple[Tensor, "array[int]"]]


class NativeMemory(Memory):
    """The memory of a pass that native code runs; each call looks up its addresses."""

    def __init__(self, plan: PassSchedule, dtype: torch.dtype, is_backward: bool) -> None:
        super().__init__(plan, dtype, is_backward)
        self._library, self._num_threads = load(dtype), torch.get_num_threads()
        # Who reads whom, in the order of native/program.h.
        links = [("child_ptr", plan.child_ptr, plan.num_rows + 1)]
        if is_backward:
            links += [
                ("reader_ptr", plan.reader_ptr, plan.num_rows + 2),
                ("reader_edge", plan.reader_edge, plan.num_edges),
                ("reader", plan.reader, plan.num_edges),
            ]
        if is_backward and plan.following is not None:
            ptr, row = plan.following
            links += [("next_ptr", ptr, plan.num_rows + 2), ("next_row", row, plan.num_rows + 1)]
        self._links = [self.take(own, ("the plan's", name), size) for name, own, size in links]

    def take(
        self, tensor: Tensor, what: What, size: int | None = None, by_strides: bool = False
    ) -> Tensor:
        return readable(tensor, self.dtype if size is None else torch.int64, what, size, by_strides)

    def run(self, programs: Mapping[int, Program]) -> None:
        """Runs programs over the groups of the plan, in one native call.

        Raises:
            MemoryError: if there is no memory for a block.
        """
        table: list[int] = [0] * len(self.plan.type_order)
        weights: Weights = {}
        shared = self._addresses_in(self.shared)
        for op_type, program in programs.items():
            assert isinstance(program, NativeProgram)
            own, rows = self.own[op_type], self.plan.types[op_type]
            own["numbers", ""] = program.numbers
            for key, size in program.sums.items():
                own[key] = program.numbers.new_zeros(self._num_threads, size)
            table[op_type] = len(table)
            table += program.head
            first = len(table)
            addresses = {**shared, **self._addresses_in(own, op_type)}
            table += map(addresses.get, program.keys, repeat(0))
            kept = self.packed.get(op_type)
            for number, weight in program.packed.items():
                table[first + number] = self._place_weight(own, weight, rows.size, weights, kept)
            for number, size, of_edges in program.of_type:  # to where row 0 would lie
                begin = rows.edge_start if of_edges else rows.start
                table[first + number] -= begin * size * self.dtype.itemsize
        numbers, links, plan = array("q", table), self._link_table(), self.plan
        is_done = self._library.run_pass(
            plan.group_table.buffer_info()[0],
            len(plan.groups),
            self.is_backward,
            numbers.buffer_info()[0],
            links.buffer_info()[0],
            self._num_threads,
        )
        if not is_done:
            raise MemoryError("there is no memory for a block of nodes")

    def _link_table(self) -> array[int]:
        """[6] the addresses of the links; 0 for one that is not needed."""
        return array("q", [own.data_ptr() for own in self._links] + [0] * (6 - len(self._links)))

    def _addresses_in(
        self, tensors: Mapping[Key, Tensor], op_type: int | None = None
    ) -> dict[Key, int]:
        """The addresses of row 0, there or not, of `shared` or of what a type has for itself."""
        found = dict(zip(tensors, map(Tensor.data_ptr, tensors.values()), strict=True))
        for key, row in self.first_row[op_type].items():
            if key in found:
                found[key] -= row * tensors[key].shape[1] * self.dtype.itemsize
        return found

    def count_sums(self, op_type: int) -> int:
        return self._num_threads

    def place_sparse(self, field: str, grad: Tensor) -> None:
        # In one step: torch would take many, and longer than the products of a small tree. Most
        # gradients have no row twice, and need not be sorted.
        numbers = torch.empty(len(grad), dtype=torch.int64, device="cpu")
        if not self._number(grad, numbers):
            grad = grad.coalesce()
            self._number(grad, numbers)
        self.shared["upstream", field] = self.take(grad._values(), ("the gradient of", field))
        self.shared["upstream_row", field] = numbers

    def _number(self, grad: Tensor, numbers: Tensor) -> bool:
        """Writes which of its rows each is, see `place_sparse`; False if it has one twice."""
        rows = readable(grad._indices()[0], torch.int64, "the rows of a gradient")
        number_rows, sizes = self._library.number_rows, (len(rows), len(numbers))
        return bool(number_rows(rows.data_ptr(), *sizes, numbers.data_ptr()))

    def pull(self, field: str, first: int, total: Tensor) -> Tensor:
        links = self._link_table()
        parts = [self.address((kind, field)) for kind in (*PULLED, "edge_weight")]
        self._library.pull_rows(
            links.buffer_info()[0], first, *total.shape, *parts, total.data_ptr()
        )
        return total

    def sum_products(self, op_type: int, product: WeightGradient) -> tuple[Tensor, Tensor | None]:
        """The gradients of a weight and of a bias, by one native call.

        Raises:
            MemoryError: if there is no memory for the sums.
        """
        x, grad = product.x, product.grad
        shape = self.own[op_type]["constant", str(product.weight)].shape
        k, m = shape[::-1] if product.is_transposed else shape
        like = self.own[op_type]["numbers", ""]
        weight, bias = like.new_empty(m, k), like.new_zeros(m)
        whole, num_parts = self.plan.types[op_type], max(x.parts, 1)
        num_rows = whole.num_edges if grad.of_edges else whole.size
        is_done = self._library.sum_products(
            self._address_of_rows(op_type, grad),
            grad.row,
            m,
            self._address_of_rows(op_type, x),
            self.shared["child_row", ""][whole.edges].data_ptr() if x.parts else None,
            x.row,
            num_parts,
            k // num_parts,
            weight.data_ptr(),
            None if product.bias is None else bias.data_ptr(),
            num_rows,
            self._num_threads if num_rows * k * m >= FEW_MULTIPLICATIONS else 1,
        )
        if not is_done:
            raise MemoryError("there is no memory for the gradient of a weight")
        own = weight if product.is_transposed else weight.t()
        return own, None if product.bias is None else bias

    def _address_of_rows(self, op_type: int, rows: Rows) -> int:
        return self.address(rows.key, op_type) + rows.offset * self.dtype.itemsize

    def address(self, key: Key, op_type: int | None = None) -> int:
        """The address of row 0 of what a type reads, there or not; 0 for nothing."""
        if op_type is not None and key not in self.own[op_type]:
            op_type = None
        tensor = (self.shared if op_type is None else self.own[op_type]).get(key)
        if tensor is None:
            return 0
        row = self.first_row[op_type].get(key, 0)
        return tensor.data_ptr() - (row * tensor.shape[1] * self.dtype.itemsize if row else 0)

    def _place_weight(
        self,
        own: Mapping[Key, Tensor],
        weight: Weight,
        num_rows: int,
        weights: Weights,
        kept: dict[Any, Tensor] | None,
    ) -> int:
        """The address of the `right_side` in native/products.h of a weight, packed or as it lies.

        Cells of several rounds may have the same.
        """
        right = own["constant", str(weight.weight)]
        bias = None if weight.bias is None else own["constant", str(weight.bias)].data_ptr()
        key = right.data_ptr(), right.shape, right.stride(), bias, weight.is_transposed
        if key not in weights:
            (k, m), steps = right.shape, right.stride()
            if weight.is_transposed:
                k, m, steps = m, k, steps[::-1]
            is_plain = bias is None and steps[1] == 1 < steps[0] and m % self._library.lanes() == 0
            if kept is None and is_plain and num_rows * k * m < FEW_TO_PACK:
                weights[key] = right, array("q", (right.data_ptr(), steps[0]))
            else:
                kept = {} if kept is None else kept
                if weight not in kept:
                    kept[weight] = right.new_empty(self._library.packed_size(k, m))
                    address = kept[weight].data_ptr()
                    self._library.pack(right.data_ptr(), *steps, bias, k, m, address)
                weights[key] = kept[weight], array("q", (kept[weight].data_ptr(), 0))
        return weights[key][1].buffer_info()[0]


class NativeBackend(Backend):
    """Programs are lists of instructions, which a library of C code runs block by block."""

    name, label, devices, recomputes = "native", "native code", ("cpu",), True

    def why_not(self, device: torch.device, dtype: torch.dtype) -> str | None:
        if device.type != "cpu":
            return f"native code runs on CPUs, and the batch is on {device}"
        return why_missing(dtype)

    def write_program(
        self, dtype: torch.dtype, values: Sequence[Value], places: Mapping[Value, Place]
    ) -> NativeProgram:
        return write_program(dtype, values, places)

    def memory(self, plan: PassSchedule, dtype: torch.dtype, is_backward: bool) -> NativeMemory:
        return NativeMemory(plan, dtype, is_backward)
