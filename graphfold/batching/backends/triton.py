"""The backend for GPUs: torch's operations, and between products one kernel of Triton.

A step over small graphs is bound by the number of kernels that the CPU can launch. Between two
products, all that is computed number by number, and the rows that are read for it, are one launch.
"""

from __future__ import annotations

import importlib.util
import math
import os
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import torch

from graphfold.batching.backends.fused_kernel import (
    PARENT,
    ROWS,
    FusedKernel,
    Launcher,
    is_fusable,
)
from graphfold.batching.backends.torch_graph import Symbolic
from graphfold.batching.backends.torch_memory import TorchBackend
from graphfold.batching.backends.torch_program import Few, TorchProgram, few
from graphfold.batching.backends.torch_writer import TorchWriter
from graphfold.batching.compiler import operations as op
from graphfold.batching.compiler.program import Place
from graphfold.batching.compiler.values import EDGES, NODES, Value

#: More expressions than these are computed once, and stored, where several kernels need them.
MAX_EXPRESSIONS = 200
#: What Triton makes kernels for.
OLDEST = (7, 0)


class TritonBackend(TorchBackend):
    """Programs of torch's operations and of Triton's kernels, called group by group.

    With `TRITON_INTERPRET=1` in the environment Triton runs on the CPU, one number after another,
    for tests.
    """

    name, label = "triton", "kernels of Triton"
    devices = ("cpu", "cuda") if os.environ.get("TRITON_INTERPRET") == "1" else ("cuda",)

    def why_not(self, device: torch.device, dtype: torch.dtype) -> str | None:
        return super().why_not(device, dtype) or _why_no_triton(device)

    def write_program(
        self, dtype: torch.dtype, values: Sequence[Value], places: Mapping[Value, Place]
    ) -> TorchProgram:
        return _TritonWriter(dtype, values, places).run()


@cache
def _why_no_triton(device: torch.device) -> str | None:
    """Why Triton makes no kernels for a device; None if it does."""
    if importlib.util.find_spec("triton") is None:
        return "the package triton is not installed"
    if device.type == "cuda" and torch.cuda.get_device_capability(device) < OLDEST:
        return f"Triton needs a GPU of compute capability {OLDEST[0]}.{OLDEST[1]} or later"
    return None


class _TritonWriter(TorchWriter):
    """Writes pending elementwise values, all at once, as soon as another operation reads one."""

    def __init__(
        self, dtype: torch.dtype, values: Sequence[Value], places: Mapping[Value, Place]
    ) -> None:
        super().__init__(dtype, values, places, reuses_memory=False)  # kernels read it later
        self._dtype = dtype
        added_to = set(self._into.values())
        self._fused = {value for value in values if is_fusable(value) and value not in added_to}
        self._large = self._find_large()
        read = {v.value for value in values if value not in self._fused for v in value.inputs}
        self._stored = self._fused & {*read, *places, *self._large}
        self._pending: list[Value] = []
        self._added: dict[Value, Symbolic] = {}

    def _find_large(self) -> set[Value]:
        """The values that are computed once, since they are of many expressions."""
        found: set[Value] = set()
        counts: dict[Value, int] = {}
        for value in self._values:
            if value in self._fused:
                size = max([value.size, *(math.prod(view.shape) for view in value.inputs)])
                below = sum(counts.get(view.value, 0) for view in value.inputs)
                counts[value] = 1 + below * (size // value.size)
                if counts[value] > MAX_EXPRESSIONS:
                    found.add(value)
                    counts[value] = 1
        return found

    def run(self) -> TorchProgram:
        """Writes all values."""
        for value in self._values:
            if value in self._fused:
                self._pending.append(value)
                if value in self._large:
                    self._launch()
            elif value not in self._into:
                if not self._pending_reads(value).isdisjoint(self._pending):
                    self._launch()
                self._compute(value)
        self._launch()
        return self._graph.program()

    def _pending_reads(self, value: Value) -> set[Value]:
        """The values that a value reads, with those of the product that it is added to."""
        read = {view.value for view in value.inputs}
        products = [own for own in read if self._into.get(own) is value]
        return read | {view.value for own in products for view in own.inputs}

    def _launch(self) -> None:
        """Writes the call of a kernel that stores all that is pending."""
        pending, self._pending = self._pending, []
        stored = [value for value in pending if value in self._stored]
        if stored == pending and len(stored) == 1 and self._is_read(stored[0]):
            self._fused.remove(stored[0])  # torch has a kernel for it, and starts it sooner
            self._compute(stored[0])
        elif stored:
            self._write_kernel(stored)

    def _is_read(self, value: Value) -> bool:
        """True if all that a value is computed from lies somewhere."""
        views = value.inputs
        return not any(v.value in self._fused and v.value not in self._graph.tensors for v in views)

    def _write_kernel(self, stored: Sequence[Value]) -> None:
        """Writes the call of a kernel that computes some values and what they are made of."""
        graph = self._graph
        kernel = FusedKernel(self._dtype, lambda v: v in self._fused and v not in graph.tensors)
        kernel.store(stored)
        reads = [self._argument(read) for read in kernel.reads]
        for value in stored:
            target = graph.target(value)
            graph.tensors[value] = graph.new("new_empty", value) if target is None else target
        stores = [graph.tensors[value] for value in kernel.stores]
        run = Launcher(kernel).run
        graph.call(run, graph.count(NODES), graph.count(EDGES), *reads, *stores)

    def _argument(self, read: Any) -> Symbolic:
        """The tensor that a kernel reads; see `FusedKernel.reads`."""
        if isinstance(read, Value):
            return self._graph.tensor(read)
        if read == PARENT:
            return self._graph.argument(PARENT)
        value, part = read
        if value.operation is op.PULL:
            return self._few(value)[Few._fields.index(part)]
        whole, rows = self._fetched(value)
        return whole if part == ROWS else rows

    def _few(self, value: Value) -> Symbolic:
        """The call that gives the parts of a pulled value, once."""
        if value not in self._added:
            self._added[value] = self._graph.call(few, *self._pulled(value))
        return self._added[value]
