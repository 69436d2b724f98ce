"""Schedule: the plan of a batch, as index arrays in execution order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from graphfold.batching.passes import Pass, Rounds, Up
from graphfold.batching.policies import PassGraph, get_policy
from graphfold.dag import TypedDAG
from graphfold.dag.depth import IntArray, input_edges, longest_path, runs


class Group(NamedTuple):
    """Nodes of one type that run together: a contiguous slice of rows."""

    op_type: int
    start: int  # first row
    stop: int  # last row plus one
    edge_start: int  # first child edge
    edge_stop: int
    type_start: int  # first row among the rows of this type


@dataclass(frozen=True, eq=False)
class PassSchedule:
    """The plan of one pass. Row 0 stands for an absent child; nodes have the rows 1 .. num_nodes.

    Rows are in execution order, so a group writes one slice; edges are sorted by the row that
    reads, so a group's edges are one slice as well.
    """

    groups: tuple[Group, ...]
    row: Tensor  # [num_nodes] int64, the row of each node
    node: Tensor  # [num_nodes] int64, the node of each row, row 1 first
    child_ptr: Tensor  # [num_nodes + 1] int64, where the child edges of each row begin
    child_row: Tensor  # [num_edges] int64, the row that each edge reads; 0 for an absent child
    parent: Tensor  # [num_edges] int64, the reading node's position in its group
    edge: Tensor  # [num_edges] int64, the number of the edge in the `TypedDAG`
    type_order: tuple[Tensor | None, ...]  # per type, its nodes in row order; None: node order
    read_types: frozenset[tuple[int, int]]  # (type that reads, type that is read) in this batch
    reader: Tensor | None = None  # [num_edges] the readers' positions, by the row read (rounds)
    reader_ptr: Tensor | None = None  # [num_nodes + 2] where the readers of each row begin (rounds)
    reader_edge: Tensor | None = None  # [num_edges] the position of each reader's edge (rounds)

    @property
    def num_nodes(self) -> int:
        return self.row.shape[0]

    def child_count(self, row: Tensor) -> Tensor:
        """[len(row)] how many children the nodes of some rows have; 0 for an absent child."""
        return self.child_ptr[row] - self.child_ptr[(row - 1).clamp(min=0)]


@dataclass(frozen=True, eq=False)
class Schedule:
    """The plans of all passes of a model over one batch."""

    passes: tuple[PassSchedule, ...]

    def map_tensors(self, function: Callable[[Tensor], Tensor]) -> Schedule:
        """A copy with `function` applied to every tensor (a move, a pin)."""
        return Schedule(tuple(_map_pass(plan, function) for plan in self.passes))

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Schedule:
        """A copy on `device`."""
        return self.map_tensors(lambda tensor: tensor.to(device, non_blocking=non_blocking))


def build_schedule(dag: TypedDAG, passes: Sequence[Pass], policy: str = "depth") -> Schedule:
    """Plans the passes over all graphs of `dag` at once, with array operations only.

    Args:
        dag: the batch, on the CPU.
        passes: the passes of the model, in order.
        policy: the name of a policy of `graphfold.batching.policies`.

    Raises:
        ConfigError: if there is no such policy.
        SchemaError: if a pass names a relation that the schema lacks.
    """
    return Schedule(tuple(_build_pass(dag, item, policy) for item in passes))


def _build_pass(dag: TypedDAG, item: Pass, policy: str) -> PassSchedule:
    choose = get_policy(policy)
    if isinstance(item, Rounds):
        dag.schema.relation(item.relation)
        relation = dag.relations[item.relation]
        edges = _Edges.from_csr(relation.ptr.numpy(), relation.index.numpy())
        plan = _plan(dag, edges, np.zeros(dag.num_nodes, dtype=np.int64))
        return _with_readers(plan)
    edges = _Edges.from_csr(dag.input_ptr.numpy(), dag.input_index.numpy())
    if isinstance(item, Up):
        depth = dag.depth.numpy()
        child, parent = input_edges(dag.input_ptr, dag.input_index)
    else:
        edges = edges.reversed(dag.num_nodes)
        child, parent = edges.child, edges.parent
        depth = longest_path(dag.num_nodes, source=child, target=parent)
    graph = PassGraph(dag.op_type.numpy(), depth, child, parent)
    return _plan(dag, edges, choose(graph))


class _Edges(NamedTuple):
    """Edges sorted by parent; child -1 for an absent slot."""

    ptr: IntArray
    child: IntArray
    parent: IntArray
    number: IntArray

    @staticmethod
    def from_csr(ptr: IntArray, child: IntArray) -> _Edges:
        parent = np.repeat(np.arange(len(ptr) - 1), np.diff(ptr))
        return _Edges(ptr, child, parent, np.arange(len(child)))

    def reversed(self, num_nodes: int) -> _Edges:
        """Each node's readers in edge order; absent slots drop out."""
        present = np.flatnonzero(self.child >= 0)
        order = present[np.argsort(self.child[present], kind="stable")]
        parent, child = self.child[order], self.parent[order]
        ptr = np.searchsorted(parent, np.arange(num_nodes + 1))
        return _Edges(ptr, child, parent, self.number[order])


def _plan(dag: TypedDAG, edges: _Edges, step: IntArray) -> PassSchedule:
    op_type = dag.op_type.numpy()
    num_types = len(dag.schema.types)
    key = step * num_types + op_type
    node = np.argsort(key, kind="stable")
    row = np.empty(len(node), dtype=np.int64)
    row[node] = np.arange(1, len(node) + 1)
    count = np.diff(edges.ptr)[node]
    child_ptr = np.concatenate([[0], np.cumsum(count)])
    # Each row's edges, in the order of its node's edges.
    take = runs(edges.ptr[node], edges.ptr[node + 1])
    child = edges.child[take]
    child_row = np.where(child < 0, 0, row[child]) if len(row) else child
    starts = np.flatnonzero(np.diff(key[node], prepend=-1))
    bounds = np.append(starts, len(node))
    first_row = np.repeat(starts, np.diff(bounds))  # of the group that each row is in
    parent = np.repeat(np.arange(len(node)) - first_row, count)
    return PassSchedule(
        groups=_groups(op_type[node], bounds, child_ptr),
        row=torch.from_numpy(row),
        node=torch.from_numpy(node),
        child_ptr=torch.from_numpy(child_ptr),
        child_row=torch.from_numpy(child_row),
        parent=torch.from_numpy(parent),
        edge=torch.from_numpy(edges.number[take]),
        type_order=tuple(_type_order(op_type, node, t) for t in range(num_types)),
        read_types=_read_types(op_type, edges, num_types),
    )


def _groups(op_type: IntArray, bounds: IntArray, child_ptr: IntArray) -> tuple[Group, ...]:
    """Groups from the first position of each, in row order; rows are positions plus one."""
    begin, end = bounds[:-1].tolist(), bounds[1:].tolist()
    edge_bounds = child_ptr[bounds].tolist()
    seen: dict[int, int] = {}
    groups = []
    for index, group_type in enumerate(op_type[bounds[:-1]].tolist()):
        size = end[index] - begin[index]
        type_start = seen.get(group_type, 0)
        seen[group_type] = type_start + size
        groups.append(
            Group(
                group_type,
                begin[index] + 1,
                end[index] + 1,
                edge_bounds[index],
                edge_bounds[index + 1],
                type_start,
            )
        )
    return tuple(groups)


def _type_order(op_type: IntArray, node: IntArray, index: int) -> Tensor | None:
    """The type's nodes, numbered among themselves, in row order."""
    in_row_order = node[op_type[node] == index]
    if np.all(in_row_order[1:] > in_row_order[:-1]):
        return None
    number = np.cumsum(op_type == index) - 1
    return torch.from_numpy(number[in_row_order])


def _read_types(op_type: IntArray, edges: _Edges, num_types: int) -> frozenset[tuple[int, int]]:
    present = edges.child >= 0
    reads = op_type[edges.parent[present]] * num_types + op_type[edges.child[present]]
    found = np.flatnonzero(np.bincount(reads, minlength=1))
    return frozenset((int(pair) // num_types, int(pair) % num_types) for pair in found)


def _with_readers(plan: PassSchedule) -> PassSchedule:
    """Adds the edges sorted by what they read, for the backward of sums over neighbours."""
    child = plan.child_row.numpy()
    parent = np.repeat(np.arange(plan.num_nodes), np.diff(plan.child_ptr.numpy()))
    order = np.argsort(child, kind="stable")
    ptr = np.searchsorted(child[order], np.arange(plan.num_nodes + 2))
    return replace(
        plan,
        reader=torch.from_numpy(parent[order]),
        reader_ptr=torch.from_numpy(ptr),
        reader_edge=torch.from_numpy(order),
    )


def _map_pass(plan: PassSchedule, function: Callable[[Tensor], Tensor]) -> PassSchedule:
    names = ["row", "node", "child_ptr", "child_row", "parent", "edge"]
    readers = ("reader", "reader_ptr", "reader_edge")
    names += [name for name in readers if getattr(plan, name) is not None]
    moved: dict[str, Any] = {name: function(getattr(plan, name)) for name in names}
    return replace(
        plan,
        **moved,
        type_order=tuple(None if t is None else function(t) for t in plan.type_order),
    )
