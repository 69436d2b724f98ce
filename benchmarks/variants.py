"""Variants: ways to compute the same, compared in double precision and then timed.

Beside them stands `product_floor`: the matrix products of a plan alone, by torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from benchmarks.measure import EVERY_NODE, Row, Work, measure
from graphfold._torch import handling_operations
from graphfold.batching import Batch, Network
from graphfold.batching.backends.fused_kernel import Launcher
from graphfold.batching.compiler.recorder import gives_views
from graphfold.batching.engine.compiled.choice import AUTO, runs_first


class Product(NamedTuple):
    """A weight with the rows that are multiplied by it."""

    weight: Tensor  # [output_size, input_size]
    calls: Sequence[int]  # rows of each call
    needs_input_grad: bool = True


class ProductFloor:
    """Computes products of given sizes in preallocated memory.

    Nothing is gathered, added or activated. The gradient of a weight is one product over the rows
    of all calls; their number is the least that respects the order of the levels. It is a floor for
    one plan and for torch's products: a plan of fewer rows has fewer of them, and graphfold's own
    kernels may need less time for theirs.

    Args:
        products: the weights, and the rows of each call.
    """

    def __init__(self, products: Sequence[Product]) -> None:
        self._operands = [_Operands(product) for product in products]

    @property
    def rows(self) -> list[int]:
        """The number of rows that are multiplied by each weight."""
        return [sum(operands.calls) for operands in self._operands]

    @torch.no_grad()
    def run(self, phase: str) -> None:
        """The products of forward, and in the phase "train" those of backward."""
        for operands in self._operands:
            operands.forward()
        for operands in self._operands if phase == "train" else ():
            operands.backward()


class _Operands:
    def __init__(self, product: Product) -> None:
        self.weight = product.weight.detach()
        output_size, input_size = self.weight.shape
        num_rows = sum(product.calls)
        self.calls = list(product.calls)
        self.needs_input_grad = product.needs_input_grad
        self.x = self.weight.new_empty(num_rows, input_size).normal_()
        self.y = self.weight.new_empty(num_rows, output_size)
        self.grad_y = torch.randn_like(self.y)
        self.grad_x = torch.empty_like(self.x)
        self.grad_weight = torch.empty_like(self.weight)

    def forward(self) -> None:
        for rows in self._slices():
            torch.mm(self.x[rows], self.weight.T, out=self.y[rows])

    def backward(self) -> None:
        for rows in self._slices() if self.needs_input_grad else ():
            torch.mm(self.grad_y[rows], self.weight, out=self.grad_x[rows])
        torch.mm(self.grad_y.T, self.x, out=self.grad_weight)

    def _slices(self) -> Iterator[slice]:
        start = 0
        for count in self.calls:
            yield slice(start, start + count)
            start += count


def group_sizes(batch: Batch, op_type: int, pass_index: int = 0) -> list[int]:
    """The number of nodes in each group of a type in a pass."""
    groups = batch.schedule.passes[pass_index].groups
    return [group.size for group in groups if group.op_type == op_type]


#: From a batch, in whatever form a variant takes it, to the outputs.
Forward: TypeAlias = Callable[[Any], Tensor]

#: Largest difference of an entry from graphfold's, relative to the largest entry of the tensor.
TOLERANCES = {torch.float32: 1e-4, torch.float64: 1e-9}


@dataclass(frozen=True, eq=False)
class Variant:
    """One way to train a model on some batches and to apply it.

    Args:
        forward: batch -> outputs.
        batches: the batches that one call goes through, all for the same graphs in every variant.
        examples: how many examples are in them.
        loss: (outputs, batch) -> scalar.
        parameters: what the loss is differentiated by; their gradients are compared.
        module: the model, for its training mode.
        optimizer: makes a step of all parameters after backward; None for gradients alone.
        computes: what the batches' plans compute.
        in_order: from this variant's results to the row order of graphfold's.
    """

    forward: Forward
    batches: Sequence[Any]
    examples: int
    loss: Callable[[Tensor, Any], Tensor]
    parameters: Sequence[Tensor]
    module: nn.Module
    optimizer: Optimizer | None = None
    computes: str = EVERY_NODE
    in_order: Callable[[list[Tensor]], list[Tensor]] = list

    def train(self) -> None:
        """Forward and backward, and the optimizer's step if there is one."""
        for batch in self.batches:
            loss = self.loss(self.forward(batch), batch)
            if self.optimizer is None:
                torch.autograd.grad(loss, self.parameters)
            else:
                loss.backward()  # type: ignore[no-untyped-call]
                self.optimizer.step()
                self.optimizer.zero_grad()

    def infer(self) -> None:
        """Forward alone."""
        with torch.no_grad():
            for batch in self.batches:
                self.forward(batch)

    def results(self) -> list[Tensor]:
        """The outputs of the first batch, and the gradients of its loss."""
        outputs = self.forward(self.batches[0])
        gradients = torch.autograd.grad(self.loss(outputs, self.batches[0]), self.parameters)
        return self.in_order([outputs.detach(), *(grad.to_dense() for grad in gradients)])

    def work(self, phase: str) -> Work:
        """One call in the phase "train" or "inference"."""
        self.module.train(phase == "train")
        return Work(self.train if phase == "train" else self.infer, self.examples, self.computes)


class Contest(NamedTuple):
    """The variants of one setting, graphfold among them, and the products of their plans alone."""

    setting: Row
    variants: Mapping[str, Variant]
    floors: Mapping[str, Sequence[ProductFloor]]

    def works(self, phase: str) -> dict[str, Work]:
        """The work of each variant in a phase."""
        works = {name: variant.work(phase) for name, variant in self.variants.items()}
        ours = works["graphfold"]
        for name, floors in self.floors.items():
            computes = EVERY_NODE if name.endswith("every_node") else ours.computes
            works[name] = Work(partial(_run_all, floors, phase), ours.examples, computes)
        return works

    def num_batches(self, name: str) -> int:
        """The number of batches that a call of a variant goes through."""
        return len(self.floors[name] if name in self.floors else self.variants[name].batches)


def measure_variants(*contests: Contest) -> Iterator[Row]:
    """The rows of training and inference; the variants of all contests take turns.

    `operations` are those of torch in a batch, see `count_operations`.
    """
    for phase in ("train", "inference"):
        works = [one.works(phase) for one in contests]
        settings = [replace(one.setting, phase=phase) for one in contests]
        counts = [
            round(count_operations(work.function) / one.num_batches(name))
            for one, by_name in zip(contests, works, strict=True)
            for name, work in by_name.items()
        ]
        for row, count in zip(measure(*zip(settings, works, strict=True)), counts, strict=True):
            yield replace(row, extra={**row.extra, "operations": count})


#: Operations that only find memory, or note the time.
_WITHOUT_KERNEL = {
    *("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"),
    *("_record_function_enter_new", "_record_function_exit"),
}


def count_operations(function: Callable[[], object]) -> int:
    """The number of torch's operations that a call needs: on a GPU, its kernels.

    Views and mere memory are left out. Kernels of Triton are counted, native code of graphfold is
    not.
    """
    count = 0

    def note(operation: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        nonlocal count
        packet = getattr(operation, "overloadpacket", None)
        is_free = getattr(packet, "__name__", "") in _WITHOUT_KERNEL or gives_views(operation)
        count += not is_free
        return operation(*args, **options)

    function()  # the first call may compile cells
    before = Launcher.launches
    with handling_operations(note):
        function()
    return count + Launcher.launches - before


def require_equal(variants: Mapping[str, Variant]) -> None:
    """Compares outputs and gradients with graphfold's, entry by entry.

    Call it for variants in double precision. In single precision a sum next to zero may have the
    other sign, and where a relu cuts it off its gradient is there or not.

    Raises:
        RuntimeError: with the first tensor that differs.
    """
    want = variants["graphfold"].results()
    for name, variant in variants.items():
        for index, (a, b) in enumerate(zip(variant.results(), want, strict=True)):
            if not b.numel():
                continue
            error = float((a - b).abs().max() / b.abs().max().clamp(min=1e-30))
            if not error <= TOLERANCES[b.dtype]:
                raise RuntimeError(
                    f"variant {name} differs from graphfold in result {index} by {error:.2g} of "
                    "its largest entry, so their speeds cannot be compared"
                )


class Way(NamedTuple):
    """The way that a network runs its cells; see `Network`."""

    run: str = AUTO
    backend: str = AUTO

    @staticmethod
    def of(network: Network) -> Way:
        """The way that a network is set to."""
        return Way(network.run, network.backend)

    def set(self, network: Network) -> None:
        """Sets a network to this way."""
        vars(network).update(self._asdict())  # a module is slow to set


def engine_forwards(network: Network, forward: Forward) -> dict[str, Forward]:
    """The engine's variants: those of `ways_to_run`, and `cat_levels`."""
    ways = {**ways_to_run(network), "cat_levels": Way("eager")}
    return {name: with_way(network, forward, way) for name, way in ways.items()}


def with_way(network: Network, forward: Forward, way: Way) -> Forward:
    """A forward for which the network runs in a way."""

    def run(batch: Any) -> Tensor:
        before = Way.of(network)
        way.set(network)
        try:
            return forward(batch)
        finally:
            before.set(network)

    return run


def ways_to_run(network: Network) -> dict[str, Way]:
    """Variant -> the way: `graphfold` with cells compiled, or an error; `untraced` without.

    Where a faster backend runs, `torch` is the other one. Where the network wants no cell compiled
    there is `graphfold` alone, eager.
    """
    if network.run == "eager":
        return {"graphfold": Way.of(network)}
    like = next(iter(network.parameters()), torch.empty(0))
    found = {"graphfold": Way("compiled"), "untraced": Way("eager")}
    if runs_first(like.device, like.dtype) != "torch":
        found["torch"] = Way("compiled", "torch")
    return found


def _run_all(floors: Sequence[ProductFloor], phase: str) -> None:
    for floor in floors:
        floor.run(phase)
