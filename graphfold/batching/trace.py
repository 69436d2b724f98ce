"""Tracing: from a cell to a `Program`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from graphfold.batching.aliases import aliased
from graphfold.batching.cell import Cell, NodeInput
from graphfold.batching.children import Children, StateReader
from graphfold.batching.kernels import Kernel
from graphfold.batching.lazy import Aliases, LazyParameter
from graphfold.batching.program import Layout, Program, Slot, make_program

#: Sizes that stand for any, and differ from each other; the widths of a cell stay as they are.
GROUP_SIZE, NUM_EDGES = 7, 13
#: Group sizes with which a program must repeat the cell's numbers. One is special in torch: a
#: dimension of size one is stretched to any other.
CHECKED_SIZES = (1, 2, 6)


class Untraceable(Exception):
    """A cell that has to run as it is, with the reason."""


class Joint:
    """A cell's forward, and backward if wanted, as one function of tensors.

    Args:
        cell: the cell.
        slots: what it reads.
        kernel: what computes its reductions.
        differentiate: whether backward belongs to it.
        dtypes: of the buffers of its fields.
    """

    def __init__(
        self,
        cell: Cell,
        slots: Sequence[Slot],
        kernel: Kernel,
        differentiate: bool,
        dtypes: Sequence[torch.dtype],
    ) -> None:
        self.cell = cell
        self.parameters: list[Tensor] = list(cell.parameters())
        self.slots = slots
        self.kernel = kernel
        self.differentiate = differentiate
        self.dtypes = dtypes
        self.layout = Layout()
        # Made here: inside a trace no tensor may be made of one with values.
        self._handles = list(map(LazyParameter.wrap, self.parameters))

    def __call__(self, *tensors: Tensor) -> list[Tensor]:
        """Outputs, then results as in `Layout`.

        Args:
            tensors: what is in the slots, the parameters twice (once for uses that are deferred),
                the gradients of the outputs.
        """
        num_slots, num_parameters = len(self.slots), len(self.parameters)
        read, rest = list(tensors[:num_slots]), tensors[num_slots:]
        plain, deferred = rest[:num_parameters], rest[num_parameters : 2 * num_parameters]
        if not self.differentiate:
            by_parameter = {id(p): t for p, t in zip(self.parameters, plain, strict=True)}
            return list(self._run(read, by_parameter).values())
        with torch.enable_grad():
            read = [_leaf(t, s.needs_grad) for t, s in zip(read, self.slots, strict=True)]
            aliases = Aliases(self.parameters, plain, deferred, self._handles)
            outputs = self._run(read, aliases.by_parameter)
        grads = rest[2 * num_parameters :]
        return [*outputs.values(), *self._differentiate(outputs, read, aliases, grads)]

    def _run(self, read: Sequence[Tensor], by_parameter: dict[int, Tensor]) -> dict[str, Tensor]:
        given = {(slot.how, slot.name): t for slot, t in zip(self.slots, read, strict=True)}
        nodes = [t for slot, t in zip(self.slots, read, strict=True) if slot.per == "node"]
        edge = {name: tensor for (how, name), tensor in given.items() if how == "edge"}
        parts = {name: tensor for (how, name), tensor in given.items() if how == "x"}
        x: NodeInput = parts[""] if list(parts) == [""] else parts
        reader, size = SlotReader(given), nodes[0].shape[0]
        children = Children(reader, size, self.cell.arity, edge, {}, self.kernel)
        with aliased([self.cell], by_parameter):
            state = self.cell.forward(x, children)
        return {name: state[name] for name in self.cell.fields}

    def _differentiate(
        self,
        outputs: Mapping[str, Tensor],
        read: Sequence[Tensor],
        aliases: Aliases,
        grads: Sequence[Tensor],
    ) -> list[Tensor]:
        if not all(output.requires_grad for output in outputs.values()):
            raise Untraceable("an output does not depend on anything that needs a gradient")
        leaves = [t for t in read if t.requires_grad]
        uses, plain = aliases.uses, list(aliases.plain_used)
        self.layout = Layout([use[:3] for use in uses], plain)
        wanted = [*leaves, *(use.output for use in uses), *(aliases.plain[n] for n in plain)]
        found = torch.autograd.grad(
            list(outputs.values()),
            wanted,  # type: ignore[arg-type]
            list(grads),
            allow_unused=True,
        )
        if any(grad is None for grad in found):
            raise Untraceable("it reads something that its outputs do not depend on")
        of_leaves, rest = found[: len(leaves)], found[len(leaves) :]
        pairs = zip((use.input for use in uses), rest, strict=False)
        return [*of_leaves, *(t for pair in pairs for t in pair), *rest[len(uses) :]]


class SlotReader(StateReader):
    """Reads what was put into slots."""

    def __init__(self, given: Mapping[tuple[str, str], Tensor]) -> None:
        self._given = given

    @property
    def ptr(self) -> Tensor:  # type: ignore[override]
        return self._get("ptr")

    @property
    def parent(self) -> Tensor:  # type: ignore[override]
        return self._get("parent")

    def rows(self, field: str) -> Tensor:
        if ("stack", field) in self._given:
            return self._given["stack", field].flatten(0, 1)
        return self._get("rows", field)

    def stack(self, field: str, size: int, arity: int) -> Tensor:
        return self._get("stack", field)

    def sum(self, field: str, weight: Tensor | None) -> Tensor:
        if weight is not None:
            raise Untraceable("it weighs the sum of a field")
        return self._get("sum", field)

    def previous(self, field: str) -> Tensor:
        return self._get("previous", field)

    def child_count(self) -> Tensor:
        return self._get("child_count")

    def _get(self, how: str, name: str = "") -> Tensor:
        if (how, name) not in self._given:
            raise Untraceable(f"it reads {how} {name} in some groups only")
        return self._given[how, name]


def trace(joint: Joint) -> Program:
    """A cell as straight-line code.

    Raises:
        Untraceable: if the cell's code depends on values or on the size of a group, or if the code
            found does not repeat its numbers exactly.
    """
    # What is made up for the check must not change the random numbers of a run.
    with torch.random.fork_rng(devices=_cuda_devices(joint)), torch.inference_mode(False):
        try:
            program = _trace(joint)
            constants = program.constants(*(p.detach() for p in joint.parameters * 2))
            for size in CHECKED_SIZES:
                _check(joint, program, constants, size)
        except Untraceable:
            raise
        except Exception as error:  # tracing runs foreign code on tensors without values
            reason = str(error).strip().splitlines()
            raise Untraceable(f"{type(error).__name__}: {reason[0] if reason else ''}") from error
    return program


def _trace(joint: Joint) -> Program:
    # Imported here: they bring much of torch's compiler along.
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.fx.experimental.symbolic_shapes import (
        DimDynamic,
        ShapeEnv,
        StatelessSymbolicContext,
    )

    shapes = ShapeEnv()
    mode = FakeTensorMode(shape_env=shapes)

    def fake(tensor: Tensor, is_open: bool) -> Tensor:
        sizes = [DimDynamic.STATIC] * tensor.dim()
        if is_open:
            sizes[0] = DimDynamic.DUCK  # equal sizes are one size
        context: Any = StatelessSymbolicContext(dynamic_sizes=sizes)
        return mode.from_tensor(tensor, symbolic_context=context)

    read = [fake(_empty(slot), True) for slot in joint.slots]
    parameters = [fake(p.detach(), False) for p in joint.parameters] * 2
    grads = [fake(grad, True) for grad in _output_grads(joint, GROUP_SIZE)]
    traced = make_fx(joint, tracing_mode="symbolic")(*read, *parameters, *grads)
    if shapes.guards:
        raise Untraceable("its code depends on how many nodes are in a group")
    # The slots outlive the batch that they were found in.
    slots = [slot._replace(like=slot.like[:0].clone()) for slot in joint.slots]
    return make_program(traced.graph, slots, len(parameters), joint.dtypes, joint.layout)


def _check(joint: Joint, program: Program, constants: Sequence[Any], size: int) -> None:
    """Raises Untraceable unless the code gives what the cell gives, on numbers made up."""
    read = [_made_up(slot, size) for slot in joint.slots]
    parameters = [p.detach() for p in joint.parameters] * 2
    grads = _output_grads(joint, size)
    expected = joint(*read, *parameters, *grads)
    device = joint.slots[0].like.device
    outputs = [
        torch.empty(size, width, dtype=dtype, device=device)
        for width, dtype in zip(joint.cell.fields.values(), joint.dtypes, strict=True)
    ]
    with torch.no_grad():
        saved = program.forward(*read, *constants, *outputs)
        if joint.differentiate:
            outputs += program.backward(*saved, *constants, *grads)
    for one, other in zip(expected, outputs, strict=True):
        if not torch.equal(one, other):
            raise Untraceable("its numbers differ from call to call, or from those of its trace")


def _output_grads(joint: Joint, size: int) -> list[Tensor]:
    """[size, width] numbers for the gradients of the outputs."""
    if not joint.differentiate:
        return []
    like = next(
        t for t in (*joint.parameters, *(s.like for s in joint.slots)) if t.is_floating_point()
    )
    return [
        torch.rand(size, width, dtype=like.dtype, device=like.device)
        for width in joint.cell.fields.values()
    ]


def _empty(slot: Slot) -> Tensor:
    count = {"node": GROUP_SIZE, "edge": NUM_EDGES, "ptr": GROUP_SIZE + 1}[slot.per]
    return slot.like.new_empty(count, *slot.like.shape[1:])


def _made_up(slot: Slot, size: int) -> Tensor:
    """Numbers for a group in which node k has k % 3 + 1 children; codes are taken as they come."""
    device = slot.like.device
    count = torch.arange(size, device=device) % 3 + 1
    if slot.how == "ptr":
        return torch.cat([count.new_zeros(1), count.cumsum(0)])
    if slot.how == "parent":
        return torch.repeat_interleave(torch.arange(size, device=device), count)
    rows = int(count.sum()) if slot.per == "edge" else size
    if slot.like.is_floating_point():
        return torch.rand(rows, *slot.like.shape[1:], dtype=slot.like.dtype, device=device)
    return slot.like[torch.arange(rows, device=device) % len(slot.like)]


def _leaf(tensor: Tensor, needs_grad: bool) -> Tensor:
    return tensor.detach().requires_grad_(needs_grad)


def _cuda_devices(joint: Joint) -> list[int]:
    devices = {slot.like.device for slot in joint.slots}
    return [
        device.index for device in devices if device.type == "cuda" and device.index is not None
    ]
