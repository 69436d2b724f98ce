"""The native backend: programs for the interpreter in C of `graphfold.batching.native`."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

from graphfold.batching.backends.program_writer import NativeProgram, Weight, write_program
from graphfold.batching.compiler.backend import PULLED, Backend, Memory
from graphfold.batching.compiler.program import Key, Place, Program, Rows, WeightGradient
from graphfold.batching.compiler.values import Value
from graphfold.batching.native.addresses import Addresses
from graphfold.batching.native.library import load, why_missing
from graphfold.batching.native.linear import FEW_MULTIPLICATIONS
from graphfold.batching.scheduling.pass_schedule import Group, PassSchedule

#: Fewer multiplications do not repay packing a weight that can be read as it lies.
FEW_TO_PACK = 1 << 27
#: The arrays of `links` in native/program.h.
NUM_LINKS = 6

#: What describes a weight, in the order of native/products.h, with the weight itself.
Weights: TypeAlias = dict[Any, tuple[Tensor, "array[int]"]]


class NativeMemory(Memory):
    """The memory of a pass that native code runs; each call of it takes the addresses anew."""

    def __init__(self, plan: PassSchedule, dtype: torch.dtype, is_backward: bool) -> None:
        super().__init__(plan, dtype, is_backward)
        self._library, self._num_threads = load(dtype), torch.get_num_threads()
        # Integers by name -> how many native code reads.
        self._counts = dict.fromkeys(
            ("child_row", "child_count", "position", "kind"), plan.num_edges
        )
        self._counts |= dict.fromkeys(("previous_row", "upstream_row"), plan.num_rows + 1)

    def run(self, programs: Mapping[int, Program]) -> None:
        """Runs programs over the groups of the plan, in one native call.

        Raises:
            MemoryError: if there is no memory for a block.
        """
        table, at, plan = [0] * len(self.plan.type_order), Addresses(), self.plan
        weights: Weights = {}
        for op_type, program in programs.items():
            assert isinstance(program, NativeProgram)
            own = self.own[op_type]
            own["numbers", ""] = program.numbers
            for key, size in program.sums.items():
                own[key] = program.numbers.new_zeros(self._num_threads, size)
            table[op_type] = len(table)
            table += program.head(at)
            table += self._addresses(op_type, program, at, weights)
            self._shift(table, program, plan.types[op_type])
        numbers, links = array("q", table), self._links(at)
        is_done = self._library.run_pass(
            at.of(plan.group_table, torch.int64, "the plan's groups"),
            len(plan.groups),
            self.is_backward,
            numbers.buffer_info()[0],
            links.buffer_info()[0],
            self._num_threads,
        )
        if not is_done:
            raise MemoryError("there is no memory for a block of nodes")

    def _links(self, at: Addresses) -> array[int]:
        """The arrays that tell who reads whom, see native/program.h; 0 for one without use."""
        plan, num_rows, num_edges = self.plan, self.plan.num_rows, self.plan.num_edges
        arrays = [("child_ptr", plan.child_ptr, num_rows + 1)]
        if self.is_backward:
            arrays += [
                ("reader_ptr", plan.reader_ptr, num_rows + 2),
                ("reader_edge", plan.reader_edge, num_edges),
                ("reader", plan.reader, num_edges),
            ]
            if plan.following is not None:
                ptr, row = plan.following
                arrays += [("following", ptr, num_rows + 2), ("following", row, num_rows + 1)]
        found = [at.of(own, torch.int64, ("the plan's", name), n) for name, own, n in arrays]
        return array("q", found + [0] * (NUM_LINKS - len(found)))

    def _addresses(
        self, op_type: int, program: NativeProgram, at: Addresses, weights: Weights
    ) -> list[int]:
        """The addresses of what a program reads and writes, in its order."""
        own, num_buffers = self.own[op_type], len(program.buffers)
        num_rows = self.plan.count_rows(op_type)
        packed = {w.key: self._place_weight(own, w, num_rows, at, weights) for w in program.weights}
        return [
            packed.get(key)
            or self.address(key, op_type, at, self.dtype if number < num_buffers else torch.int64)
            for number, key in enumerate(program.keys)
        ]

    def _shift(self, table: list[int], program: NativeProgram, whole: Group) -> None:
        """Lets the address of what only nodes of a type have be that of row 0, there or not."""
        first = len(table) - len(program.keys)
        for number, size, of_edges in program.of_type:
            begin = whole.edge_start if of_edges else whole.start
            table[first + number] -= begin * size * self.dtype.itemsize

    def count_sums(self, op_type: int) -> int:
        return self._num_threads

    def place_sparse(self, field: str, grad: Tensor) -> None:
        # In one step: torch would take many, and longer than the products of a small tree. Most
        # gradients have no row twice, and need not be sorted.
        numbers = torch.empty(len(grad), dtype=torch.int64, device="cpu")
        if not self._number(grad, numbers):
            grad = grad.coalesce()
            self._number(grad, numbers)
        self.shared["upstream", field] = grad._values().contiguous()
        self.shared["upstream_row", field] = numbers

    def _number(self, grad: Tensor, numbers: Tensor) -> bool:
        """Writes which of its rows each is, see `place_sparse`; False if it has one twice."""
        rows = grad._indices()[0]
        number_rows, sizes = self._library.number_rows, (len(rows), len(numbers))
        at, integers = Addresses(), torch.int64
        return bool(
            number_rows(
                at.of(rows, integers, "the rows of a gradient"),
                *sizes,
                at.of(numbers, integers, "the numbers of rows"),
            )
        )

    def pull(self, field: str, first: int, total: Tensor) -> Tensor:
        at = Addresses()
        kinds, links = (*PULLED, "edge_weight"), self._links(at)
        parts = [self.address((kind, field), None, at, self.dtype) for kind in kinds]
        self._library.pull_rows(
            links.buffer_info()[0],
            first,
            *total.shape,
            *parts,
            at.of(total, self.dtype, "the gradient of rows"),
        )
        return total

    def sum_products(self, op_type: int, product: WeightGradient) -> tuple[Tensor, Tensor | None]:
        """The gradients of a weight and of a bias, by one native call.

        Raises:
            MemoryError: if there is no memory for the sums.
        """
        x, grad = product.x, product.grad
        k, m = self.own[op_type]["constant", str(product.weight)].shape
        k, m = (m, k) if product.is_transposed else (k, m)
        like, at = self.own[op_type]["numbers", ""], Addresses()
        weight, bias = like.new_empty(m, k), like.new_zeros(m)
        whole, num_parts = self.plan.types[op_type], max(x.parts, 1)
        num_rows = whole.num_edges if grad.of_edges else whole.size
        is_done = self._library.sum_products(
            self._address_of_rows(op_type, grad, at),
            grad.row,
            m,
            self._address_of_rows(op_type, x, at),
            at.of(
                self.shared["child_row", ""][whole.edges], torch.int64, "child_row", whole.num_edges
            )
            if x.parts
            else None,
            x.row,
            num_parts,
            k // num_parts,
            at.of(weight, self.dtype, "the gradient of a weight"),
            None if product.bias is None else at.of(bias, self.dtype, "the gradient of a bias"),
            num_rows,
            self._num_threads if num_rows * k * m >= FEW_MULTIPLICATIONS else 1,
        )
        if not is_done:
            raise MemoryError("there is no memory for the gradient of a weight")
        own = weight if product.is_transposed else weight.t()
        return own, None if product.bias is None else bias

    def _address_of_rows(self, op_type: int, rows: Rows, at: Addresses) -> int:
        start = self.address(rows.key, op_type, at, self.dtype)
        return start + rows.offset * self.dtype.itemsize

    def address(self, key: Key, op_type: int | None, at: Addresses, dtype: torch.dtype) -> int:
        """The address of row 0 of what a type reads, there or not; 0 for nothing."""
        tensor = None if op_type is None else self.own[op_type].get(key)
        named: Key | tuple[int, Key] = key
        if tensor is not None and op_type is not None:
            named = op_type, key
        else:
            tensor = self.shared.get(key)
        if tensor is None:
            return 0
        start = at.of(tensor, dtype, key, self._counts.get(key[0]))
        if named in self.first_row:
            start -= self.first_row[named] * tensor.shape[1] * dtype.itemsize
        return start

    def _place_weight(
        self,
        own: Mapping[Key, Tensor],
        weight: Weight,
        num_rows: int,
        at: Addresses,
        weights: Weights,
    ) -> int:
        """The address of what describes a weight; cells of several rounds may have the same."""
        right = own["constant", str(weight.weight)].resolve_neg()
        start = at.of(right, self.dtype, "a weight", by_strides=True)
        bias = None
        if weight.bias is not None:
            bias = at.of(own["constant", str(weight.bias)], self.dtype, "a bias")
        key = start, right.shape, right.stride(), bias, weight.is_transposed
        if key not in weights:
            weights[key] = self._right_side(right, start, bias, weight.is_transposed, num_rows)
        return weights[key][1].buffer_info()[0]

    def _right_side(
        self, right: Tensor, start: int, bias: int | None, is_transposed: bool, num_rows: int
    ) -> tuple[Tensor, array[int]]:
        """A weight, packed or as it lies, and its `right_side` in native/products.h."""
        (k, m), steps = right.shape, right.stride()
        if is_transposed:
            k, m, steps = m, k, steps[::-1]
        is_whole = bias is None and steps[1] == 1 < steps[0] and m % self._library.lanes() == 0
        if is_whole and num_rows * k * m < FEW_TO_PACK:
            return right, array("q", (start, steps[0]))
        packed = right.new_empty(self._library.packed_size(k, m))
        end = Addresses().of(packed, self.dtype, "a packed weight")
        self._library.pack(start, *steps, bias, k, m, end)
        return packed, array("q", (end, 0))


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
