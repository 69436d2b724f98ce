"""Regions of programs for tests: found in any graph, computed by torch, counted as launches."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor, fx

from graphfold.batching import Cell
from graphfold.batching.engine.pass_inputs import parts
from graphfold.batching.engine.programs.fusion.lanes import is_view, trailing
from graphfold.batching.engine.programs.fusion.operations import is_constant
from graphfold.batching.engine.programs.fusion.regions import Region
from graphfold.batching.engine.programs.joint import Joint
from graphfold.batching.engine.programs.program import Slot
from graphfold.batching.engine.programs.trace import open_graph
from graphfold.batching.kernels.segment_kernels import NATIVE

aten = torch.ops.aten

#: The columns of a lane.
WIDTH = 4


def joint_of(cell: Cell, has_x: bool = True) -> Joint:
    """A cell with its inputs: the products with features, if it has any, and its children."""
    cell.double()
    x = {}
    if has_x:
        x = dict(parts(cell.before(torch.rand(2, WIDTH, dtype=torch.float64))))
    slots = [Slot("x", name, value.detach(), "node", True) for name, value in x.items()]
    for field in cell.fields if cell.arity else ():
        like = torch.rand(2, WIDTH, dtype=torch.float64)
        slots.append(Slot("rows", field, like, "child", True))
    return Joint(cell, slots, NATIVE, True, [torch.float64] * len(cell.fields))


def twin(region: Region) -> Callable[..., tuple[Tensor, ...]]:
    """What a region's kernel does, by torch."""
    graph = fx.Graph()
    copies = {node: graph.placeholder(f"in_{i}") for i, node in enumerate(region.inputs)}

    for node in next(iter(region.members)).graph.nodes:
        if node in region.members or node in region.views or is_constant(node):
            # Of sizes, which are outside, only the open one has to be found out.
            copies[node] = graph.node_copy(node, lambda source: copies.get(source, -1))
            if node.target in (aten.view.default, aten.expand.default):
                sizes = [-1, *trailing(node.meta["val"])]
                copies[node].args = (copies[node].args[0], sizes)
    graph.output([copies[node] for node in region.outputs])
    function = fx.GraphModule(torch.nn.Module(), graph).forward

    def run(*inputs: Tensor, **places: Tensor) -> tuple[Tensor, ...]:
        found = function(*inputs)
        names = [f"out_{index}" for index in range(len(found))]
        pairs = zip(names, found, strict=True)
        return tuple(places[n].copy_(t) if n in places else t for n, t in pairs)

    return run


def traced_graph(function: Callable[..., Any], *examples: Tensor) -> fx.Graph:
    """The graph of a function of tensors; those with seven rows have an open size."""
    is_open = [bool(t.dim()) and len(t) == 7 for t in examples]
    order = sorted(range(len(examples)), key=lambda i: not is_open[i])

    def reordered(*tensors: Tensor) -> Any:
        given = dict(zip(order, tensors, strict=True))
        found = function(*(given[i] for i in range(len(examples))))
        return list(found) if isinstance(found, (list, tuple)) else [found]

    rows = [examples[i] for i in order if is_open[i]]
    fixed = [examples[i] for i in order if not is_open[i]]
    graph = open_graph(reordered, rows, fixed)
    # The arguments in the order of the function.
    places = [node for node in graph.nodes if node.op == "placeholder"]
    for node in [places[order.index(i)] for i in reversed(range(len(examples)))]:
        next(iter(graph.nodes)).prepend(node)
    return graph


def run_graph(graph: fx.Graph, *tensors: Tensor) -> Sequence[Tensor]:
    """What a graph gives."""
    graph.lint()
    return fx.GraphModule(torch.nn.Module(), graph)(*tensors)  # type: ignore[no-any-return]


def launches(function: Any) -> int:
    """How many operations of a program's function compute something: each is a launch on CUDA."""
    free = {"view", "t", "expand", "unsqueeze", "squeeze", "size", "new_empty"}
    views = {torch.split_with_sizes, operator.getitem, aten.split.Tensor, aten.slice.Tensor}
    calls = [n for n in function.__self__.graph.nodes if n.op.startswith("call")]
    return sum(n.target not in free | views and not is_view(n) for n in calls)


@st.composite
def functions(draw: st.DrawFn) -> Callable[[Tensor, Tensor], list[Tensor]]:
    """Random straight-line code of operations that can be computed, views, and products."""
    steps = draw(
        st.lists(st.tuples(st.integers(0, 9), st.integers(0, 99), st.integers(0, 99)), max_size=14)
    )
    kept = draw(st.sets(st.integers(0, 99), min_size=1, max_size=3))

    def function(x: Tensor, weight: Tensor) -> list[Tensor]:
        values = [x, x * 0.5]
        for kind, first, second in steps:
            values.append(step(kind, values[first % len(values)], values[second % len(values)]))
        return [values[index % len(values)] for index in kept]

    def step(kind: int, a: Tensor, b: Tensor) -> Tensor:
        if kind < 3:
            return [torch.tanh(a), a + b[:, :1], torch.sigmoid(b)][kind]
        if kind == 3:  # something outside
            return a[:, :WIDTH] @ torch.eye(WIDTH, dtype=a.dtype)
        if kind == 4 and a.shape[1] + b.shape[1] <= 6 * WIDTH:
            return torch.cat([a, b], 1)
        if kind == 5:
            return a.view(a.shape[0], -1, WIDTH).sum(1)
        if kind == 6:
            return a.view(a.shape[0], -1, WIDTH).select(1, -1) * b[:, -WIDTH:]
        if kind == 7:
            return (a.view(a.shape[0], -1, WIDTH) - b[:, None, :WIDTH]).flatten(1)
        if kind == 8:
            return a.split(WIDTH, 1)[0] * b.chunk(2, 1)[0][:, :WIDTH].sum(1, keepdim=True)
        return torch.where(a[:, :WIDTH] > b[:, :WIDTH], a[:, :WIDTH], 0.25)

    return function
