"""The body of a kernel: what it reads, computes and writes for one column of one row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import fx

from graphfold.batching.engine.programs.fusion.lanes import (
    Lanes,
    add_up,
    in_lanes,
    is_view,
    look_through,
    rows_of,
    source_of,
    trailing,
)
from graphfold.batching.engine.programs.fusion.language import Language
from graphfold.batching.engine.programs.fusion.operations import (
    arguments,
    expression,
    is_cat,
    is_constant,
    is_filled,
    is_sum,
    number_of,
)
from graphfold.batching.engine.programs.fusion.regions import Region

_LAUNCH = """\
def launch({inputs}, {places}):
    num_rows = {rows}.shape[0]
    {allocations}
    {calls}
    return {outputs},
"""


class KernelWriter:
    """Writes the body of the kernel of one region, and the function that calls it.

    Args:
        region: the region.
        language: what it is written in.

    Attributes:
        inputs: what is read -> its name.
        outputs: the names of what is written.
        lane: the number of columns.
        lines: the body.
    """

    def __init__(self, region: Region, language: Language) -> None:
        self._language = language
        self._lanes: dict[fx.Node, Any] = {}
        self._region = region
        self.lane = region.lane
        self.inputs = {node: f"in_{index}" for index, node in enumerate(region.inputs)}
        self.outputs = {node: f"out_{index}" for index, node in enumerate(region.outputs)}
        self.lines: list[str] = []
        for node in self.inputs:
            self._lanes[node] = self._load(node)
        for node in region.members:
            self._lanes[node] = self._compute(node)
        for node in self.outputs:
            self._store(node)

    def launch(self, calls: Sequence[str]) -> str:
        """The source of `launch`, in Python: (inputs ..., out_0=None, ...) -> outputs.

        Args:
            calls: the lines that call the kernel; they know `num_rows`, the inputs and the outputs.
        """
        outputs = list(self.outputs.values())
        return _LAUNCH.format(
            inputs=", ".join(self.inputs.values()),
            places=", ".join(f"{name}=None" for name in outputs),
            rows=self.rows,
            allocations="\n    ".join(self._allocations()),
            calls="\n    ".join(calls),
            outputs=", ".join(outputs),
        )

    @property
    def rows(self) -> str:
        """The name of an input that has as many rows as the group."""
        return next(name for node, name in self.inputs.items() if _has_rows(node))

    def strides(self, node: fx.Node) -> list[str]:
        """The names of the strides of an input."""
        count = node.meta["val"].dim() - (not self._language.has_last_stride)
        return [f"{self.inputs[node]}_{dim}" for dim in range(count)]

    def _allocations(self) -> Iterator[str]:
        """Lines of Python that make the outputs for which no place is given."""
        for node, name in self.outputs.items():
            value = node.meta["val"]
            sizes = ", ".join(["num_rows", *map(str, trailing(value))])
            yield f"if {name} is None:"
            yield f"    {name} = {self.rows}.new_empty(({sizes}), dtype={value.dtype})"

    def _assign(self, value: str, dtype: torch.dtype) -> str:
        name = f"v{len(self.lines)}"
        self.lines.append(self._language.assign(name, value, dtype))
        return name

    def _load(self, node: fx.Node) -> Lanes:
        value, strides = node.meta["val"], self.strides(node)
        front = [f"row * {strides.pop(0)}"] if _has_rows(node) else []
        sizes = trailing(value)
        found = np.empty(in_lanes(sizes, self.lane), dtype=object)
        for place in np.ndindex(found.shape):
            terms = [*front, *self._terms(place, sizes, strides)]
            is_one = not front and sizes[-1:] in ((), (1,))  # one number for all elements
            address = self._language.load(self.inputs[node], terms, is_one)
            found[place] = self._assign(address, value.dtype)
        return found

    def _terms(
        self, place: Sequence[int], sizes: Sequence[int], strides: Sequence[str]
    ) -> Iterator[str]:
        """What a lane's place adds to an address; one column is read for every one of the lane."""
        for dim, (index, size) in enumerate(zip(place, sizes, strict=True)):
            if dim < len(sizes) - 1:
                yield f"{index} * {strides[dim]}"
            elif size > 1:
                column = f"{index * self.lane} + column"
                yield f"({column}) * {strides[dim]}" if dim < len(strides) else column

    def _compute(self, node: fx.Node) -> Lanes:
        given = arguments(node)
        if is_cat(node):
            dim = given["dim"] % node.meta["val"].dim()
            return np.concatenate([self._read(part) for part in given["tensors"]], axis=dim - 1)
        if is_sum(node):
            return self._sum(node, given["self"], given["dim"])
        shape = in_lanes(trailing(node.meta["val"]), self.lane)
        sources = {source: self._stretch(source, shape) for source in node.all_input_nodes}
        found = np.empty(shape, dtype=object)
        for place in np.ndindex(shape):
            names = {source: str(lanes[place]) for source, lanes in sources.items()}
            found[place] = self._assign(self._value(node, names), node.meta["val"].dtype)
        return found

    def _value(self, node: fx.Node, names: Mapping[fx.Node, str]) -> str:
        """What an elementwise operation gives, from the names of its tensors."""
        language, dtype = self._language, node.meta["val"].dtype
        if is_filled(node):
            return language.fill(number_of(node), dtype)
        # Comparisons are made in the dtype of what is compared.
        of = node.all_input_nodes[-1].meta["val"].dtype if dtype == torch.bool else dtype
        said = dict(language.functions(dtype))
        for name, value in arguments(node).items():
            if isinstance(value, fx.Node):
                is_same = dtype in (torch.bool, value.meta["val"].dtype) or name == "condition"
                said[name] = names[value] if is_same else language.cast(names[value], dtype)
            elif isinstance(value, (bool, int, float)):
                said[name] = language.number(value, of)
        return language.cast(str(expression(node)).format(**said), dtype)

    def _sum(self, node: fx.Node, source: fx.Node, dims: Sequence[int]) -> Lanes:
        total: Lanes = self._read(source)
        dtype = node.meta["val"].dtype
        for dim in dims:
            along = dim % source.meta["val"].dim()
            total = add_up(total, along, lambda a, b: self._assign(f"{a} + {b}", dtype))
        return total.reshape(in_lanes(trailing(node.meta["val"]), self.lane))

    def _read(self, node: fx.Node) -> Any:
        """The lanes of what a member reads."""
        if is_constant(node):
            dtype = node.meta["val"].dtype
            name = self._assign(self._language.fill(number_of(node), dtype), dtype)
            self._lanes[node] = np.asarray(name, dtype=object)
        if node not in self._lanes:  # a view of a member
            assert is_view(node)
            self._lanes[node] = look_through(node, self._read(source_of(node)), self.lane)
        return self._lanes[node]

    def _stretch(self, node: fx.Node, shape: Sequence[int]) -> Lanes:
        lanes: Lanes = self._read(node)
        if lanes.ndim > len(shape):  # a single row, for all rows
            lanes = lanes.reshape(lanes.shape[lanes.ndim - len(shape) :])
        return np.broadcast_to(lanes, tuple(shape))

    def _store(self, node: fx.Node) -> None:
        lanes: Lanes = self._lanes[node]
        width = lanes.size * self.lane
        for index, value in enumerate(lanes.flat):
            terms = [f"row * {width}", f"{index * self.lane} + column"]
            self.lines.append(self._language.store(self.outputs[node], terms, str(value)))


def _has_rows(node: fx.Node) -> bool:
    return rows_of(node.meta["val"]) is not None
