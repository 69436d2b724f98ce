"""From the graph of a traced cell to the functions of its program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import fx

from graphfold.batching.engine.lazy_parameters import Kind
from graphfold.batching.engine.programs.fusion.regions import Kernels
from graphfold.batching.engine.programs.program import Layout, Program, Slot
from graphfold.batching.engine.programs.program_functions import Backward, make_function
from graphfold.batching.engine.programs.program_places import Output
from graphfold.batching.engine.programs.program_products import leave_apart, pack_weights
from graphfold.batching.engine.programs.program_rewrites import (
    is_random,
    lay_flat,
    simplify,
    undo_changes,
    without_views,
)


def make_program(
    graph: fx.Graph,
    slots: Sequence[Slot],
    num_parameters: int,
    dtypes: Sequence[torch.dtype],
    layout: Layout,
    kernels: Kernels | None = None,
    faster: bool = True,
) -> Program:
    """Cuts a traced graph in three.

    Args:
        graph: of a function (slots ..., parameters ..., gradients of the outputs ...) -> (outputs
            ..., results ...), where the outputs do not depend on the gradients.
        slots: what the cell reads.
        num_parameters: how many of its arguments are parameters.
        dtypes: of the places of the outputs.
        layout: what the results are.
        kernels: of forward and backward; None for the operations one by one.
        faster: whether graphfold's kernels are called where they are faster than torch's, with the
            same numbers but for rounding.

    Raises:
        ValueError: if it changes a tensor that something else may see, or draws random numbers that
            are not drawn once per group.
    """
    graph = _copy(graph)  # another program may be made of it
    undo_changes(graph)
    simplify(graph)
    arguments = [node for node in graph.nodes if node.op == "placeholder"]
    read, rest = arguments[: len(slots)], arguments[len(slots) :]
    parameters, grads = rest[:num_parameters], rest[num_parameters:]
    slots = lay_flat(graph, read, slots)
    returned = list(graph.output_node().args[0])  # type: ignore[arg-type]
    outputs, results = returned[: len(dtypes)], without_views(returned[len(dtypes) :], slots)
    if kernels is not None and kernels.packs:
        pack_weights(graph, _depending_on(graph, parameters))
        slots = leave_apart(read, slots, _nodes([*outputs, *_seen(results, slots, layout)]))
    needed = _ancestors([*outputs, *results])
    reads = [index for index, node in enumerate(read) if node in needed]
    read = [read[index] for index in reads]
    cut = _cut(graph, read, parameters, grads, outputs, results)
    places = [Output(n, d, _row(n)) for n, d in zip(outputs, dtypes, strict=True)]
    of_children = _of_children(results, slots)
    build = None if kernels is None else kernels.build
    given = [*read, *cut.constants]
    known = [*cut.saved, *cut.constants]
    return Program(
        tuple(slots),
        tuple(reads),
        make_function(graph, parameters, cut.fixed, cut.constants),
        make_function(graph, given, cut.forward, cut.saved, places, (), build, faster),
        Backward(graph, known, grads, cut.backward, results, of_children, build, faster),
        layout,
    )


class _Cut(NamedTuple):
    """Which node of a graph belongs where.

    Args:
        fixed: what depends on parameters alone.
        forward: what outputs are computed from, apart from that.
        backward: what results are computed from, apart from both.
        constants: of the fixed nodes those that forward or backward reads, in order.
        saved: of the nodes of forward those that backward reads.
    """

    fixed: set[fx.Node]
    forward: set[fx.Node]
    backward: set[fx.Node]
    constants: list[fx.Node]
    saved: list[fx.Node]


def _cut(
    graph: fx.Graph,
    read: Sequence[fx.Node],
    parameters: Sequence[fx.Node],
    grads: Sequence[fx.Node],
    outputs: Sequence[fx.Node],
    results: Sequence[Any],
) -> _Cut:
    fixed = _depending_on(graph, parameters)
    forward = (_ancestors(outputs) | set(read)) - fixed
    if not all(node in forward for node in graph.nodes if is_random(node)):
        raise ValueError("it draws random numbers that do not belong to the nodes of a group")
    backward = _ancestors(results) - forward - fixed - set(grads)
    used = [n for node in graph.nodes if node in backward for n in node.all_input_nodes]
    saved = [n for n in dict.fromkeys([*used, *_nodes(results)]) if n in forward]
    inner = [n for node in forward for n in node.all_input_nodes]
    wanted = {*inner, *used, *outputs, *_nodes(results)}
    constants = [node for node in graph.nodes if node in fixed and node in wanted]
    return _Cut(fixed, forward, backward, constants, saved)


def _of_children(results: Sequence[Any], slots: Sequence[Slot]) -> list[Output]:
    """The results that are gradients of children's rows, if there are results."""
    wanted = (slot for slot in slots if slot.needs_grad)
    return [
        Output(grad, slot.like.dtype, tuple(slot.like.shape[1:]))
        for grad, slot in zip(results, wanted, strict=False)
        if slot.how == "rows"
    ]


def _seen(results: Sequence[Any], slots: Sequence[Slot], layout: Layout) -> list[Any]:
    """The results but for what deferred products are of, which `LazyGradients` takes as it lies."""
    first = sum(slot.needs_grad for slot in slots)
    products = {
        first + 2 * index
        for index, (kind, *_) in enumerate(layout.uses)
        if kind is not Kind.EMBEDDING
    }
    return [result for index, result in enumerate(results) if index not in products]


def _copy(graph: fx.Graph) -> fx.Graph:
    copy = fx.Graph()
    copy.output(copy.graph_copy(graph, {}))
    return copy


def _depending_on(graph: fx.Graph, arguments: Sequence[fx.Node]) -> set[fx.Node]:
    """The arguments, and the nodes that are computed from these alone."""
    found = set(arguments)
    for node in graph.nodes:
        inputs = node.all_input_nodes
        if node.op != "output" and inputs and found.issuperset(inputs):
            found.add(node)
    return found


def _ancestors(nodes: Sequence[Any]) -> set[fx.Node]:
    """The nodes and all that they are computed from."""
    stack, found = _nodes(nodes), set()
    while stack:
        node = stack.pop()
        if node not in found:
            found.add(node)
            stack += node.all_input_nodes
    return found


def _row(node: fx.Node) -> tuple[int, ...]:
    return tuple(node.meta["val"].shape[1:])


def _nodes(values: Sequence[Any]) -> list[fx.Node]:
    return [value for value in values if isinstance(value, fx.Node)]
