"""The functions of a program: some nodes of a traced graph as code of their own."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
from torch import Tensor, fx

from graphfold.batching.engine.programs.fusion.regions import Build, fuse
from graphfold.batching.engine.programs.program_joins import write_side_by_side
from graphfold.batching.engine.programs.program_places import Output, reuse_memory, write_outputs
from graphfold.batching.engine.programs.program_rewrites import quicken

aten = torch.ops.aten


class Backward:
    """The code of backward, for whichever outputs have a gradient, with or without places.

    Args:
        graph: the whole graph.
        known: what backward is given, apart from gradients.
        grads: the gradients of the outputs.
        inside: what is computed in backward.
        results: what it returns.
        of_children: those of them that are gradients of children's rows, in the order of edges.
        build: makes its kernels, if it has any.
        faster: see `make_program`.
    """

    def __init__(
        self,
        graph: fx.Graph,
        known: Sequence[fx.Node],
        grads: Sequence[fx.Node],
        inside: set[fx.Node],
        results: Sequence[Any],
        of_children: Sequence[Output],
        build: Build | None = None,
        faster: bool = True,
    ) -> None:
        self._of_children = of_children
        self._build = build
        self._faster = faster
        self._parts = graph, [*known, *grads], inside, results
        self._grads = grads
        self._functions: dict[tuple[frozenset[int], bool], Callable[..., list[Tensor]]] = {}

    def without(
        self, missing: frozenset[int] = frozenset(), placed: bool = False
    ) -> Callable[..., list[Tensor]]:
        """(saved ..., constants ..., gradients ..., places ...) -> results, see `Layout`.

        What comes from a missing gradient alone is zero, whatever it is multiplied by on the way:
        zeros in its place would become NaN where a derivative is infinite.

        Args:
            missing: the positions of the outputs without a gradient; zeros are passed for them.
            placed: whether it is given places, [num_child_edges, width] each, to which it writes
                the gradients of the children's rows, in the order of their slots.
        """
        if (missing, placed) not in self._functions:
            graph, arguments, inside, results = self._parts
            absent = {self._grads[index] for index in missing}
            zero = _from_alone(graph, absent, set(self._grads) - absent, inside) if missing else ()
            outputs = self._of_children if placed else ()
            self._functions[missing, placed] = make_function(
                graph, arguments, inside, results, outputs, zero, self._build, self._faster
            )
        return self._functions[missing, placed]


def make_function(
    graph: fx.Graph,
    arguments: Sequence[fx.Node],
    inside: set[fx.Node],
    returned: Sequence[Any],
    outputs: Sequence[Output] = (),
    zero: Collection[fx.Node] = (),
    build: Build | None = None,
    faster: bool = True,
) -> Callable[..., Any]:
    """A function of its own from some nodes of a graph; it also takes the places of `outputs`.

    Whatever reads a node of `zero`, and is none itself, gets zeros.
    """
    new = fx.Graph()
    names = {node: new.placeholder(node.name) for node in arguments}
    for node, copy in names.items():
        copy.meta = dict(node.meta)
    places = [new.placeholder(f"place_{index}") for index in range(len(outputs))]

    def zeros(node: fx.Node) -> fx.Node:
        if node not in zero:
            return names[node]
        made = new.call_function(aten.zeros_like.default, (names[node],))
        made.meta = dict(node.meta)
        return made

    for node in graph.nodes:
        if node in inside and node not in names:
            names[node] = new.node_copy(node, names.__getitem__ if node in zero else zeros)
    results = [zeros(node) if isinstance(node, fx.Node) else node for node in returned]
    end = new.output((results, [zeros(output.node) for output in outputs]))
    gone = {} if build is None else fuse(new, build)
    names = {node: copy for node, copy in names.items() if copy not in gone}
    with new.inserting_before(end):
        kept = write_outputs(end.args[0][1], outputs, places, names, returned, faster)
    end.args = ((end.args[0][0], kept),)
    new.eliminate_dead_code()
    end.args = (end.args[0][0],)
    write_side_by_side(new)
    reuse_memory(new)
    for node in new.nodes:
        quicken(node, faster)
    function: Callable[..., Any] = fx.GraphModule(torch.nn.Module(), new).forward
    return function


def _from_alone(
    graph: fx.Graph, absent: set[fx.Node], present: set[fx.Node], inside: set[fx.Node]
) -> set[fx.Node]:
    """The nodes that depend on absent gradients and on no present one."""
    from_absent, from_present = set(absent), set(present)
    for node in graph.nodes:
        if node in inside:
            for found in (from_absent, from_present):
                if not found.isdisjoint(node.all_input_nodes):
                    found.add(node)
    return from_absent - from_present
