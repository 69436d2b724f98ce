"""Padding: one more graph fills a batch up to one of a few sizes, and counts for nothing.

Batches of one size have equal shapes in every tensor of a step, see `shape_of`, so that a step can
be recorded once and replayed. Like `pad_with_graphs` of jraph,
https://github.com/google-deepmind/jraph, but nodes also fill the levels of passes up and down.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from operator import or_
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphfold.batching.batch import Batch, plan_batch
from graphfold.batching.kernels.kinds import find_kinds
from graphfold.batching.scheduling.edges import Edges, depth_of_pass
from graphfold.batching.scheduling.filling import (
    INPUTS,
    NODES,
    Filling,
    Kind,
    Sizes,
    numbers_of,
    spread,
)
from graphfold.batching.scheduling.pass_schedule import PassSchedule
from graphfold.batching.scheduling.passes import Pass, Rounds
from graphfold.dag import NodeType, Schema, TypedDAG, collate, select
from graphfold.dag.depth import IntArray, compute_depth, run_numbers, run_pointers, stable_order
from graphfold.dag.typed_dag import Relation
from graphfold.errors import ConfigError

#: Keys of `Sizes`; the edges of a relation are counted by the name of their space.
GRAPHS: tuple[Kind, int, int] = ("graphs", 0, 0)
OUTPUTS: tuple[Kind, int, int] = ("outputs", 0, 0)

#: The number of different sizes: of each, a step is recorded once.
NUM_SIZES = 12

#: A size has more nodes of each type than any batch: some padding nodes are read, others read.
SPARE_NODES = 2


class Padding:
    """Fills batches up to one of a few sizes.

    Padding is one graph after the others (more, of a node each, where a batch has fewer graphs than
    others of its size), without targets and of weight 0. Its nodes have the features of the first
    node of their type, and no other graph reads them. In rounds they read each other; in passes up
    and down they run at any level and read absent children, see `Filling`.

    Args:
        samples: typical batches: the graphs of the data, and those that the model computes in
            their place or None.
        passes: the passes of the model.

    Attributes:
        sizes: the limits of the batches that are filled up to each size, and the size.
        num_padded: how many batches were filled.
        num_unpadded: how many batches fitted no size.

    Raises:
        ConfigError: if the model computes other nodes than those of the data, or a target cannot
            be missing.
    """

    def __init__(
        self, samples: Iterable[tuple[TypedDAG, TypedDAG | None]], passes: Sequence[Pass]
    ) -> None:
        self.passes = tuple(passes)
        self.num_padded = self.num_unpadded = 0
        self._num_nodes = self._num_added = 0
        self._kinds: dict[str, Mapping[str, Tensor]] = {}  # all kinds of edges
        self._types: Sequence[NodeType] = ()
        counted, outputs = [], Counter[int]()
        for dag, lowered in samples:
            computed = dag if lowered is None else lowered
            _refuse_unpadded(dag.schema, computed.schema)
            self._types = computed.schema.types
            self._note_kinds(computed)
            counted.append(count_sizes(computed, self.passes)[0])
            outputs.update(computed.op_type[computed.output_index].tolist())
        counted.sort(key=lambda sizes: sum(n for _, _, n in numbers_of(sizes, NODES)))
        most = Counter({t: n for t, _, n in numbers_of(counted[-1], NODES)})
        ((self._output_type, _),) = (outputs or most).most_common(1)
        parts = np.array_split(np.arange(len(counted)), min(NUM_SIZES, len(counted)))
        self.sizes = [self._size_of([counted[i] for i in part]) for part in parts]

    def plan(self, dag: TypedDAG, lowered: TypedDAG | None = None) -> Batch:
        """A planned batch, filled if it fits one of the sizes.

        Args:
            dag: the graphs of the data.
            lowered: those that the model computes in their place; None if it computes `dag`.
        """
        computed = dag if lowered is None else lowered
        sizes, depths = count_sizes(computed, self.passes)
        left = self._left(sizes)
        if left is None:
            self.num_unpadded += 1
            return plan_batch(dag, lowered, self.passes)
        padded = self._pad(computed, left)
        self.num_padded += 1
        self._num_nodes += computed.num_nodes
        self._num_added += padded.num_nodes - computed.num_nodes
        filling = Filling(padded, depths, left)
        if lowered is None:
            return plan_batch(padded, None, self.passes, filling=filling)
        kept = [GRAPHS, OUTPUTS, *((NODES, t, 0) for t in range(len(dag.schema.types)))]
        own = self._pad(dag, Counter({key: left[key] for key in kept}))
        return plan_batch(own, padded, self.passes, filling=filling)

    def __str__(self) -> str:
        """The counts of filled and of unpadded batches, and the share of padding nodes."""
        total = self.num_padded + self.num_unpadded
        share = self._num_added / max(self._num_nodes, 1)
        return (
            f"static shapes: {self.num_padded} of {total} batches fill one of {len(self.sizes)} "
            f"sizes, with {share:.0%} more nodes; {self.num_unpadded} fit none and run unpadded"
        )

    # ---- The sizes

    def _note_kinds(self, dag: TypedDAG) -> None:
        """Collects the kinds of edges: padding has all, so that tables of kinds have equal rows."""
        for space in dict.fromkeys(space for item in self.passes for space in item.spaces):
            columns = dag.columns[space]
            if columns and not any(column.is_floating_point() for column in columns.values()):
                before = self._kinds.get(space, columns)
                both = {name: torch.cat([before[name], c]) for name, c in columns.items()}
                num_rows = len(next(iter(both.values())))
                self._kinds[space] = find_kinds(both, num_rows, dag.device).columns

    def _size_of(self, samples: Sequence[Sizes]) -> tuple[Sizes, Sizes]:
        """The limits of batches, and the size that they are filled up to."""
        limits: Sizes = reduce(or_, samples, Counter())
        size, graphs = limits.copy(), sorted(one[GRAPHS] for one in samples)
        per_graph = {one[OUTPUTS] / one[GRAPHS] for one in samples}
        size[GRAPHS] += 1
        size[OUTPUTS] += 1
        if len(per_graph) == 1:  # roots, or pairs of them: each padding graph has as many
            size[OUTPUTS] = round(per_graph.pop() * size[GRAPHS])
        for t, _, _ in numbers_of(size, NODES):
            size[NODES, t, 0] += SPARE_NODES
        # A node for each padding graph; the last batch of an epoch may have too few graphs.
        size[NODES, self._output_type, 0] += graphs[-1] - graphs[len(graphs) // 20]
        for space, kinds in self._kinds.items():
            own = [(n, t, s) for t, s, n in numbers_of(size, _kind_of(space))]
            if own:
                size[(_kind_of(space), *max(own)[1:])] += len(next(iter(kinds.values())))
        self._even_out(size, samples)
        return limits, size

    def _even_out(self, size: Sizes, samples: Sequence[Sizes]) -> None:
        """Gives all passes the same nodes, and levels the edges that these read."""
        passes = [None, *(n for n, item in enumerate(self.passes) if not isinstance(item, Rounds))]
        # Edges of a node, where all nodes of a level have as many.
        counts: dict[tuple[int | None, int, int], int] = {}
        for n in passes:
            for t, level, _ in numbers_of(size, ("reads", n)):
                reads, nodes = (("reads", n), t, level), (("level", n), t, level)
                ratios = {one[reads] / one[nodes] for one in samples if one[nodes]}
                ratio = ratios.pop()
                if ratios or not ratio.is_integer():
                    size[nodes] += 1  # for the edges that are left
                else:
                    counts[n, t, level] = int(ratio)
        for t, _, _ in numbers_of(size, NODES):
            own = {
                n: [(count, level) for s, level, count in numbers_of(size, ("level", n)) if s == t]
                for n in passes
            }
            totals = {n: sum(count for count, _ in levels) for n, levels in own.items()}
            for n, levels in own.items():
                size[("level", n), t, max(levels)[1]] += max(totals.values()) - totals[n]
        for (n, t, level), count in counts.items():
            size[("reads", n), t, level] = count * size[("level", n), t, level]

    def _left(self, sizes: Sizes) -> Sizes | None:
        """The difference from the least size that a batch fits into; None if there is none."""
        for limits, size in self.sizes:
            if all(count <= limits[key] for key, count in sizes.items()):
                left = size - sizes
                readers = (
                    left[("level", kind[1]), t, level]
                    for kind, t, level in left
                    if isinstance(kind, tuple) and kind[0] == "reads"
                )
                if all(readers) and left[NODES, self._output_type, 0] >= left[GRAPHS]:
                    return left
        return None

    # ---- The padding graphs

    def _pad(self, dag: TypedDAG, left: Sizes) -> TypedDAG:
        """The graphs followed by padding."""
        counts = {t: n for t, _, n in numbers_of(left, NODES)}
        types = [*(t for t in counts if t != self._output_type), self._output_type]
        added = np.repeat(types, [counts.get(t, 0) for t in types])
        edges = {"inputs": self._inputs(added, left)}
        for space in (f"relation:{name}" for name in dag.relations):
            edges[space] = _edges(added, numbers_of(left, space))
        input_ptr, input_index = map(torch.from_numpy, edges["inputs"])
        padding = replace(
            dag,
            op_type=torch.from_numpy(added),
            input_ptr=input_ptr,
            input_index=input_index,
            depth=compute_depth(input_ptr, input_index),
            num_graphs=left[GRAPHS],
            span=dag.span.new_full((len(added), 2), -1),
            origin=dag.origin.new_full((left[GRAPHS], 3), -1),
            columns=self._columns(dag, added, left[GRAPHS], edges),
            relations={
                name: Relation(*map(torch.from_numpy, edges[f"relation:{name}"]))
                for name in dag.relations
            },
            **self._outputs(len(added), counts.get(self._output_type, 0), left),
        )
        return collate([dag, padding])

    def _outputs(self, num_nodes: int, count: int, left: Sizes) -> dict[str, Any]:
        """The graph of each padding node, and the outputs of each graph.

        Args:
            num_nodes: how many nodes there are.
            count: how many of them, the last ones, are of the type of outputs.
            left: what is left to fill.
        """
        # The last nodes are graphs of their own; the others are one, with one output.
        alone = np.arange(num_nodes - left[GRAPHS] + 1, num_nodes)
        graph = np.maximum(np.arange(num_nodes) - (num_nodes - left[GRAPHS]), 0)
        counts = spread(left[OUTPUTS], left[GRAPHS])
        return {
            "batch": torch.from_numpy(graph),
            "output_ptr": torch.from_numpy(run_pointers(counts)),
            "output_index": torch.from_numpy(np.append(num_nodes - count, alone).repeat(counts)),
        }

    def _inputs(self, added: IntArray, left: Sizes) -> tuple[IntArray, IntArray]:
        """The inputs of padding nodes: where those of each node begin, and what they are.

        All of them are the first node of a type that need not have inputs; absent if there is none.
        """
        types = np.unique(added).tolist()
        counts, sources = np.zeros(len(added), np.int64), np.full(len(added), -1)
        for t in types:
            own, names = np.flatnonzero(added == t), self._types[t].inputs
            arity = self._types[t].arity
            readers = own if arity else own[len(own) // 2 :]
            counts[readers] = arity or spread(left[INPUTS, t, 0], len(readers))
            for s in types[::-1]:
                read = self._types[s]
                if not read.arity and (names is None or read.name in names):
                    sources[own] = np.flatnonzero(added == s)[0]
        return run_pointers(counts), sources.repeat(counts)

    def _columns(
        self,
        dag: TypedDAG,
        added: IntArray,
        num_graphs: int,
        edges: Mapping[str, tuple[IntArray, IntArray]],
    ) -> dict[str, dict[str, Tensor]]:
        """The columns of padding: the first row of the graphs, but for targets and weights."""
        rows = {"node": len(added), "graph": num_graphs}
        rows |= {space: len(index) for space, (_, index) in edges.items()}
        rows |= {f"type:{t.name}": int((added == n).sum()) for n, t in enumerate(dag.schema.types)}
        values: dict[tuple[str, str], float] = {
            (space, column.name): column.missing for space, column in dag.schema.targets()
        }
        if dag.schema.weight is not None:
            values["graph", dag.schema.weight.name] = 0.0
        columns: dict[str, dict[str, Tensor]] = {space: {} for space in dag.columns}
        for space, group in dag.columns.items():
            for name, column in group.items():
                first = column[:1] if len(column) else column.new_zeros(1, *column.shape[1:])
                if (space, name) in values:
                    first = torch.full_like(first, values[space, name])
                kinds = self._kinds.get(space, {}).get(name, column[:0])[: rows[space]]
                again = first.expand(rows[space] - len(kinds), *column.shape[1:])
                columns[space][name] = torch.cat([kinds, again])
        return columns


def without_padding(dag: TypedDAG) -> TypedDAG:
    """The graphs that are no padding: those of a record."""
    return select(dag, torch.nonzero(dag.origin[:, 2] >= 0).view(-1))


def _refuse_unpadded(schema: Schema, computed: Schema) -> None:
    """Raises ConfigError if graphs cannot be padded.

    Args:
        schema: of the graphs of the data.
        computed: of those that the model computes.
    """
    if computed.types[: len(schema.types)] != schema.types:
        raise ConfigError(
            "data.shapes=static pads the nodes of the data, but this model of blocks computes "
            "others. Set data.shapes=free."
        )
    for space, column in schema.targets():
        if space in ("graph", "node") and column.missing == 0:
            raise ConfigError(
                f"data.shapes=static needs targets that may be missing, but '{column.name}' holds "
                f"{column.dtype}. Make it int64 or float32 in the schema, or set data.shapes=free."
            )


def count_sizes(dag: TypedDAG, passes: Sequence[Pass]) -> tuple[Sizes, dict[int, IntArray]]:
    """The numbers of graphs, outputs, nodes and edges, and those of each level of passes.

    Returns:
        The numbers, and number of a pass up or down -> [num_nodes] the level of each node.
    """
    op_type = dag.op_type.numpy()
    sizes: Sizes = Counter({GRAPHS: dag.num_graphs, OUTPUTS: len(dag.output_index)})
    depths: dict[int, IntArray] = {}
    reader = op_type[run_numbers(dag.input_ptr.numpy())]
    _count(sizes, NODES, op_type, np.zeros_like(op_type))
    _count(sizes, INPUTS, reader, np.zeros_like(reader))
    for name, relation in dag.relations.items():
        reader = op_type[run_numbers(relation.ptr.numpy())]
        _count(sizes, f"relation:{name}", reader, op_type[relation.index.numpy()])
    for number, item in enumerate(passes):
        if not isinstance(item, Rounds):
            edges = Edges.of_pass(dag, item)
            depths[number] = depth = depth_of_pass(dag, item, edges)
            _count(sizes, ("level", number), op_type, depth)
            _count(sizes, ("reads", number), op_type[edges.parent], depth[edges.parent])
    return sizes, depths


def _count(sizes: Sizes, kind: Kind, op_type: IntArray, other: IntArray) -> None:
    base = int(other.max(initial=0)) + 1
    counts = np.bincount(op_type * base + other)
    for number in counts.nonzero()[0].tolist():
        sizes[(kind, *divmod(number, base))] = int(counts[number])


def _kind_of(space: str) -> Kind:
    """The kind of `Sizes` that edges of a space are."""
    return INPUTS if space == "inputs" else space


def _edges(added: IntArray, pairs: Iterable[tuple[int, int, int]]) -> tuple[IntArray, IntArray]:
    """Edges among padding nodes: where those of each node begin, and the nodes that they read.

    The second half of a type reads and the first half is read, so there is no cycle.

    Args:
        added: [num_added] the types of the nodes.
        pairs: (type that reads, type that is read, how many edges).
    """
    reader, source = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for t, s, count in pairs:
        readers, sources = np.flatnonzero(added == t), np.flatnonzero(added == s)
        reader.append(np.resize(readers[len(readers) // 2 :], count))
        source.append(np.resize(sources[: len(sources) // 2], count))
    node = np.concatenate(reader)
    order = stable_order(node)
    return run_pointers(np.bincount(node, minlength=len(added))), np.concatenate(source)[order]


def shape_of(batch: Batch) -> tuple[Any, ...]:
    """All numbers that the shapes of a training step depend on, nested.

    Batches of one shape differ in the contents of their tensors alone. The edges that read a group
    of a pass up or down do differ in number: a recorded step has to find them by pointers.
    """
    dag, schedule = batch.computed.dag, batch.schedule
    passes = [*schedule.passes, *(own.plan for own in schedule.unrolled if own is not None)]
    kinds = (
        find_kinds(dag.columns[space], dag.num_rows(space), dag.device).num_kinds
        for item in schedule.built_for
        for space in item.spaces
    )
    return (
        tuple(own for graphs in (dag, batch.dag) for own in _rows(graphs)),
        tuple(kinds),
        tuple(own for plan in passes for own in _groups(plan)),
    )


def _rows(dag: TypedDAG) -> Iterator[int]:
    yield from (dag.num_rows(space) for space in dag.schema.spaces())
    yield len(dag.output_index)


def _groups(plan: PassSchedule) -> Iterator[tuple[Any, ...]]:
    yield plan.groups
    yield tuple(sorted(plan.read_types))
    yield plan.loop is None, *(own is None for own in plan.type_order)
    for own in plan.by_relation.values():
        yield from _groups(own)
