"""Schedule: the plans of all passes of a model over one batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch
from torch import Tensor

from graphfold.batching.scheduling.edges import Edges
from graphfold.batching.scheduling.equal_nodes import find_equal, sharing_passes
from graphfold.batching.scheduling.pass_schedule import Group as Group
from graphfold.batching.scheduling.pass_schedule import PassSchedule as PassSchedule
from graphfold.batching.scheduling.passes import Pass, Rounds, Up
from graphfold.batching.scheduling.plan import plan_pass
from graphfold.batching.scheduling.policies import PassGraph, get_policy
from graphfold.batching.scheduling.schedule_report import ScheduleReport
from graphfold.batching.scheduling.shared_rounds import plan_shared_rounds, plan_without_edges
from graphfold.batching.scheduling.sharing import Distinct
from graphfold.batching.scheduling.sources import CellInputs, Sources, find_sources
from graphfold.dag import TypedDAG
from graphfold.dag.depth import IntArray, longest_path


@dataclass(frozen=True, eq=False)
class Schedule:
    """The plans of all passes of a model over one batch.

    Under plans that share, cells are given the inputs of `sources` alone, by op type.
    """

    passes: tuple[PassSchedule, ...]
    sources: tuple[Sources, ...] | None = None

    @property
    def is_shared(self) -> bool:
        """Whether equal nodes are computed once, if there are any."""
        return self.sources is not None

    def map_tensors(self, function: Callable[[Tensor], Tensor]) -> Schedule:
        """A copy with `function` applied to every tensor (a move, a pin)."""
        passes = tuple(plan.map_tensors(function) for plan in self.passes)
        if self.sources is None:
            return Schedule(passes)
        return Schedule(passes, tuple(Sources(*map(function, own)) for own in self.sources))

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Schedule:
        """A copy on `device`."""
        return self.map_tensors(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def report(self, passes: Sequence[Pass]) -> ScheduleReport:
        """How many calls of cells the passes take, and how few could do; on the CPU.

        Args:
            passes: those that the schedule was built for.
        """
        return ScheduleReport.of(zip(passes, self.passes, strict=True))


def build_schedule(
    dag: TypedDAG,
    passes: Sequence[Pass],
    policy: str = "depth",
    share: bool = False,
    equal: Sequence[Distinct] | None = None,
) -> Schedule:
    """Plans the passes over all graphs of `dag` at once, with array operations only.

    With `share`, nodes that must come to the same state are computed once, and their gradients are
    added up: nodes of one type with equal features whose inputs, in order, are such nodes over
    equal edges; in rounds, nodes that were equal before and have such neighbours. It holds for
    passes up from the beginning and for rounds that follow them; later passes compute every node.
    Outputs, and gradients of parameters, are those without sharing, provided that nothing in the
    model is random or looks at the whole batch, and that a cell's input `x` is a function of the
    node's features: it is read, and gets a gradient, at the nodes of `Schedule.sources` only.

    Args:
        dag: the batch, on the CPU.
        passes: the passes of the model, in order.
        policy: the name of a policy of `graphfold.batching.scheduling.policies`.
        share: whether nodes that must be equal are computed once.
        equal: what `find_equal` says of these graphs and passes, if it is known already.

    Raises:
        ConfigError: if there is no such policy.
        SchemaError: if a pass names a relation that the schema lacks.
    """
    op_type, num_types = dag.op_type.numpy(), len(dag.schema.types)
    if not share:
        inputs = CellInputs.of_nodes(op_type, num_types)
        return Schedule(tuple(_build_pass(dag, item, policy, inputs) for item in passes))
    equal = find_equal(dag, passes) if equal is None else equal
    sources, inputs = find_sources(op_type, num_types, equal[0])
    return Schedule(tuple(_build_shared(dag, passes, policy, inputs, equal)), sources)


def _build_shared(
    dag: TypedDAG,
    passes: Sequence[Pass],
    policy: str,
    inputs: CellInputs,
    equal: Sequence[Distinct],
) -> Iterator[PassSchedule]:
    """Passes up from the beginning share, and rounds after them; later passes do not."""
    sharing, stages = sharing_passes(passes), iter(equal)
    distinct, before = next(stages), None
    for item in sharing:
        if isinstance(item, Rounds):
            before = plan_without_edges(inputs, distinct) if before is None else before
            edges = Edges.of_relation(dag, item.relation)
            own = list(islice(stages, item.rounds))
            before = plan_shared_rounds(edges, inputs, before, own)
            yield before
        else:
            distinct = next(stages)
            yield _build_pass(dag, item, policy, inputs, distinct)
    for item in passes[len(sharing) :]:
        yield _build_pass(dag, item, policy, inputs)


def _build_pass(
    dag: TypedDAG, item: Pass, policy: str, inputs: CellInputs, distinct: Distinct | None = None
) -> PassSchedule:
    choose = get_policy(policy)
    if isinstance(item, Rounds):
        edges = Edges.of_relation(dag, item.relation)
        return plan_pass(inputs, edges, np.zeros_like(inputs.op_type))
    edges = Edges.from_csr(dag.input_ptr.numpy(), dag.input_index.numpy())
    if isinstance(item, Up):
        depth = dag.depth.numpy()
    else:
        edges = edges.reversed()
        depth = longest_path(dag.num_nodes, source=edges.child, target=edges.parent)
    rank = _rank(dag, edges, depth, distinct)
    op_type = inputs.op_type
    if distinct is not None:
        op_type, depth = op_type[distinct.node], depth[distinct.node]
    step = choose(PassGraph(op_type, depth, edges, distinct))
    return plan_pass(inputs, edges, step, rank, distinct)


def _rank(
    dag: TypedDAG, edges: Edges, depth: IntArray, distinct: Distinct | None
) -> IntArray | None:
    """[num_nodes] what the rows of a group are sorted by, or None for node order.

    Where every edge spans one level (chains, perfect trees) and the graphs differ in depth, the
    deepest graph goes first. Then the rows that a group reads are consecutive, as hand-written code
    for sorted sequences has them. Elsewhere they would not be, and node order saves sorting `x`.
    """
    child, parent = edges.present()
    if (depth[parent] - depth[child] != 1).any():
        return None
    batch = dag.batch.numpy()
    if distinct is not None:
        depth, batch = depth[distinct.node], batch[distinct.node]
    deepest = np.zeros(dag.num_graphs, dtype=np.int64)
    np.maximum.at(deepest, batch, depth)
    if len(deepest) == 0 or (deepest == deepest[0]).all():
        return None
    rank: IntArray = (deepest.max() - deepest)[batch]
    return rank
