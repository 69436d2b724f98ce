"""Triton source: a region of a program's code as a kernel, and the function that launches it."""

from __future__ import annotations

import functools
import itertools
import linecache
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import fx

from graphfold.batching.engine.programs.fusion import Region
from graphfold.batching.engine.programs.lanes import (
    Lanes,
    add_up,
    in_lanes,
    is_view,
    look_through,
    rows_of,
    source_of,
    trailing,
)
from graphfold.batching.engine.programs.triton_ops import (
    arguments,
    compute,
    constant,
    is_cat,
    is_constant,
    is_sum,
)

#: Elements per instance of a kernel: two for each thread.
BLOCK = 256

#: Of the sources compiled so far.
_NUMBERS = itertools.count()

#: An element is one column of a lane in one row. Whatever the size of a group, its kernel is the
#: same: it is compiled anew only where a stride becomes one, or is one no more.
_TEMPLATE = """\
@triton.jit(do_not_specialize=["num_elements"], do_not_specialize_on_alignment={pointers})
def kernel({parameters}, num_elements, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < num_elements
    row = at // {lane}
    column = at % {lane}
{body}


def launch({inputs}, {places}):
    num_rows = {rows}.shape[0]
    num_elements = num_rows * {lane}
{allocations}
    if num_elements:
        with device_of({rows}):
            kernel[(-(-num_elements // {block}),)]({arguments}, num_elements, BLOCK={block})
    return {outputs},
"""


def build(region: Region) -> Callable[..., Any]:
    """The function of a region: (inputs ..., out_0=None, ...) -> outputs.

    The places for outputs are contiguous. Whatever the inputs' strides, they are read where they
    lie. Needs Triton.
    """
    return compile_source(write(region))


def write(region: Region) -> str:
    """The source of a region's kernel, and of `launch`, the function to call."""
    return _Writer(region).write()


@functools.cache
def compile_source(source: str) -> Callable[..., Any]:
    """`launch` of a source; the kernel is compiled for the device when it is first called."""
    # Imported here: the package does without Triton until something is fused.
    import triton
    import triton.language as tl

    from graphfold.batching.engine.programs.triton_functions import tanh

    name = f"<kernel {next(_NUMBERS)}>"
    # Triton reads the source of a function from where Python would show it in a traceback.
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    space: dict[str, Any] = {"__name__": __name__, "torch": torch, "triton": triton, "tl": tl}
    space |= {"tanh": tanh, "device_of": torch.cuda.device_of}
    exec(compile(source, name, "exec"), space)
    launch: Callable[..., Any] = space["launch"]
    return launch


class _Writer:
    """Writes the source of one region."""

    def __init__(self, region: Region) -> None:
        self._region = region
        self._lane = region.lane
        self._lines: list[str] = []
        self._number = {node: f"in_{index}" for index, node in enumerate(region.inputs)}
        self._lanes: dict[fx.Node, Any] = {}

    def write(self) -> str:
        for node in self._number:
            self._lanes[node] = self._load(node)
        for node in self._region.members:
            self._lanes[node] = self._compute(node)
        for index, node in enumerate(self._region.outputs):
            self._store(node, f"out_{index}")
        inputs, outputs = list(self._number.values()), list(_numbered(self._region.outputs))
        strides = {name: self._strides(node) for node, name in self._number.items()}
        integers = [stride for names in strides.values() for stride in names]
        given = [f"*{name}.stride()" for name in inputs if strides[name]]
        return _TEMPLATE.format(
            pointers=[*inputs, *outputs, *integers],
            parameters=", ".join([*inputs, *outputs, *integers]),
            arguments=", ".join([*inputs, *outputs, *given]),
            body="\n".join(f"    {line}" for line in self._lines),
            inputs=", ".join(inputs),
            places=", ".join(f"{name}=None" for name in outputs),
            outputs=", ".join(outputs),
            allocations="\n".join(self._allocations()),
            rows=next(n for node, n in self._number.items() if _has_rows(node)),
            lane=self._lane,
            block=BLOCK,
        )

    def _allocations(self) -> Iterator[str]:
        like = next(name for node, name in self._number.items() if _has_rows(node))
        for index, node in enumerate(self._region.outputs):
            value = node.meta["val"]
            sizes = ", ".join(["num_rows", *map(str, trailing(value))])
            yield f"    if out_{index} is None:"
            yield f"        out_{index} = {like}.new_empty(({sizes}), dtype={value.dtype})"

    def _strides(self, node: fx.Node) -> list[str]:
        return [f"{self._number[node]}_{dim}" for dim in range(node.meta["val"].dim())]

    def _assign(self, expression: str) -> str:
        name = f"v{len(self._lines)}"
        self._lines.append(f"{name} = {expression}")
        return name

    def _load(self, node: fx.Node) -> Lanes:
        value, strides = node.meta["val"], self._strides(node)
        front = [f"row * {strides[0]}"] if _has_rows(node) else []
        sizes = trailing(value)
        found = np.empty(in_lanes(sizes, self._lane), dtype=object)
        for place in np.ndindex(found.shape):
            terms = [*front, *self._terms(place, sizes, strides[len(front) :])]
            address = " + ".join([self._number[node], *terms])
            is_one = not front and sizes[-1:] in ((), (1,))  # one number for all elements
            found[place] = self._assign(f"tl.load({address}{'' if is_one else ', mask=inside'})")
        return found

    def _terms(
        self, place: Sequence[int], sizes: Sequence[int], strides: Sequence[str]
    ) -> Iterator[str]:
        """What a lane's place adds to an address; one column is read for every one of the lane."""
        for dim, (index, size, stride) in enumerate(zip(place, sizes, strides, strict=True)):
            if dim < len(sizes) - 1:
                yield f"{index} * {stride}"
            elif size > 1:
                yield f"({index * self._lane} + column) * {stride}"

    def _compute(self, node: fx.Node) -> Lanes:
        given = arguments(node)
        if is_cat(node):
            dim = given["dim"] % node.meta["val"].dim()
            return np.concatenate([self._read(part) for part in given["tensors"]], axis=dim - 1)
        if is_sum(node):
            return self._sum(node, given["self"], given["dim"])
        shape = in_lanes(trailing(node.meta["val"]), self._lane)
        sources = {source: self._stretch(source, shape) for source in node.all_input_nodes}
        found = np.empty(shape, dtype=object)
        for place in np.ndindex(shape):
            names = {source: str(lanes[place]) for source, lanes in sources.items()}
            found[place] = self._assign(compute(node, names))
        return found

    def _sum(self, node: fx.Node, source: fx.Node, dims: Sequence[int]) -> Lanes:
        total: Lanes = self._read(source)
        for dim in dims:
            along = dim % source.meta["val"].dim()
            total = add_up(total, along, lambda a, b: self._assign(f"{a} + {b}"))
        return total.reshape(in_lanes(trailing(node.meta["val"]), self._lane))

    def _read(self, node: fx.Node) -> Any:
        """The lanes of what a member reads."""
        if is_constant(node):
            self._lanes[node] = np.asarray(self._assign(constant(node)), dtype=object)
        if node not in self._lanes:  # a view of a member
            assert is_view(node)
            self._lanes[node] = look_through(node, self._read(source_of(node)), self._lane)
        return self._lanes[node]

    def _stretch(self, node: fx.Node, shape: Sequence[int]) -> Lanes:
        lanes: Lanes = self._read(node)
        if lanes.ndim > len(shape):  # a single row, for all rows
            lanes = lanes.reshape(lanes.shape[lanes.ndim - len(shape) :])
        return np.broadcast_to(lanes, tuple(shape))

    def _store(self, node: fx.Node, name: str) -> None:
        lanes: Lanes = self._lanes[node]
        width = lanes.size * self._lane
        for index, value in enumerate(lanes.flat):
            address = f"{name} + row * {width} + {index * self._lane} + column"
            self._lines.append(f"tl.store({address}, {value}, mask=inside)")


def _numbered(outputs: Sequence[fx.Node]) -> Iterator[str]:
    return (f"out_{index}" for index in range(len(outputs)))


def _has_rows(node: fx.Node) -> bool:
    return rows_of(node.meta["val"]) is not None
