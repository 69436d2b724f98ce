"""Schedule: the plans of all passes of a model over one batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from graphfold._torch import outside_modes
from graphfold.batching.kernels.gather import RowIndex
from graphfold.batching.kernels.row_numbers import Classes, Numbers, first_equal
from graphfold.batching.scheduling.deduplicate import EqualNodes, deduplicate
from graphfold.batching.scheduling.edges import Edges, depth_of_pass
from graphfold.batching.scheduling.filling import Filling
from graphfold.batching.scheduling.pass_schedule import Group as Group
from graphfold.batching.scheduling.pass_schedule import PassSchedule as PassSchedule
from graphfold.batching.scheduling.passes import Pass, Rounds, check_passes
from graphfold.batching.scheduling.plan import plan_levels, plan_round
from graphfold.batching.scheduling.policies import PassGraph, get_policy
from graphfold.batching.scheduling.schedule_report import ScheduleReport
from graphfold.batching.scheduling.sources import CellInputs, Sources, find_sources
from graphfold.batching.scheduling.unrolled import UnrolledRounds, unroll
from graphfold.dag import TypedDAG
from graphfold.dag.depth import IntArray
from graphfold.dag.typed_dag import tensor_property


@dataclass(frozen=True, eq=False)
class Schedule:
    """The plans of all passes of a model over one batch.

    Under plans that share, nodes are classes of equal nodes, and cells are given the inputs of
    `sources` alone, by op type.

    Args:
        passes: the plan of each pass.
        unrolled: of those that are rounds of message passing, all rounds as one pass.
        built_for: the passes of the model.
        structure: `TypedDAG.structure` of the graphs.
        sources: by op type, the nodes whose inputs cells are given; None for all nodes.
        class_of: [num_nodes] the class of each node; None if each is a class of its own.
        real: by op type, [num_nodes_of_type, 1] 1, and 0 for nodes of padding; None without any.
        on_cpu: of a plan on a GPU, the plan that it is a copy of.
    """

    passes: tuple[PassSchedule, ...]
    unrolled: tuple[UnrolledRounds | None, ...]
    built_for: tuple[Pass, ...]
    structure: int
    sources: tuple[Sources, ...] | None = None
    class_of: Tensor | None = None
    real: tuple[Tensor, ...] | None = None
    on_cpu: Schedule | None = None

    @property
    def is_shared(self) -> bool:
        """True if equal nodes are computed once."""
        return self.sources is not None

    @tensor_property
    def node_rows(self) -> list[RowIndex]:
        """By pass, [num_nodes] the row of each node."""
        rows = [plan.row for plan in self.passes]
        if self.class_of is not None:
            rows = [row.index_select(0, self.class_of) for row in rows]
        return self._known(rows, lambda plan: plan.node_rows)

    @tensor_property
    def source_rows(self) -> list[RowIndex]:
        """By op type, the nodes whose inputs cells are given."""
        return self._known([own.node for own in self.sources or ()], lambda plan: plan.source_rows)

    def _known(
        self, rows: Sequence[Tensor], find: Callable[[Schedule], Sequence[RowIndex]]
    ) -> list[RowIndex]:
        """Rows with those that a function finds in the plan on the CPU."""
        if self.on_cpu is None:
            return [RowIndex(own) for own in rows]
        return [RowIndex(*pair) for pair in zip(rows, find(self.on_cpu), strict=True)]

    def map_tensors(self, function: Callable[[Tensor], Tensor]) -> Schedule:
        """A copy with `function` applied to every tensor (a move, a pin)."""
        sources, class_of = self.sources, self.class_of
        passes = tuple(plan.map_tensors(function) for plan in self.passes)
        return Schedule(
            passes,
            tuple(rounds and rounds.map_tensors(function) for rounds in self.unrolled),
            self.built_for,
            self.structure,
            None if sources is None else tuple(Sources(*map(function, own)) for own in sources),
            None if class_of is None else function(class_of),
            None if self.real is None else tuple(map(function, self.real)),
            None if passes[0].row.is_cpu else self.on_cpu or self,
        )

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Schedule:
        """A copy on `device`."""
        return self.map_tensors(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def report(self, passes: Sequence[Pass]) -> ScheduleReport:
        """The number of calls of cells for the passes, and the least there can be; on the CPU.

        Args:
            passes: those that the schedule was built for.
        """
        num_nodes = None if self.class_of is None else len(self.class_of)
        return ScheduleReport.of(zip(passes, self.passes, strict=True), num_nodes)


@outside_modes
def build_schedule(
    dag: TypedDAG,
    passes: Sequence[Pass],
    policy: str = "depth",
    share: bool = False,
    equal: EqualNodes | None = None,
    filling: Filling | None = None,
) -> Schedule:
    """Plans the passes over all graphs of `dag` at once, with array operations only.

    With `share`, nodes that must come to equal states in every pass are computed once, and their
    gradients are added up, see `deduplicate`. Outputs, and gradients of parameters, are those
    without sharing, provided that nothing in the model is random or looks at the whole batch, and
    that a cell's input `x` is a function of the node's features: it is read, and gets a gradient,
    at the nodes of `Schedule.sources` only.

    Args:
        dag: the batch, on the CPU.
        passes: the passes of the model, in order.
        policy: the name of a policy of `graphfold.batching.scheduling.policies`.
        share: whether nodes that must be equal are computed once.
        equal: what `deduplicate` says of these graphs and passes, if it is known already.
        filling: the levels of padding, for the policy "depth" without sharing; None without any.

    Raises:
        KindError: if the passes are no list of passes.
        ConfigError: if there is no such policy.
        SchemaError: if a pass names a relation that the schema lacks.
    """
    check_passes(passes)
    op_type, sizes = dag.op_type.numpy(), np.array(dag.num_nodes_by_type, np.int64)
    sources, class_of = None, None
    if share:
        equal = deduplicate(dag, passes) if equal is None else equal
        sources, inputs = find_sources(op_type, sizes, equal)
        classes = None if equal.final.are_single else equal.final
        class_of = None if classes is None else torch.from_numpy(classes.inverse)
        stages = [stage and _equal_rows(inputs.by_type[0], stage) for stage in equal.stages]
        own = [
            _build_pass(dag, item, policy, inputs, classes, depth, stages[begin:])
            for item, depth, begin in zip(passes, equal.depth, equal.begin, strict=True)
        ]
    else:
        inputs = CellInputs(op_type, None, sizes)
        own = [
            _build_pass(dag, item, policy, inputs, filling=(number, filling))
            for number, item in enumerate(passes)
        ]
    plans, unrolled = tuple(plan for plan, _ in own), tuple(rounds for _, rounds in own)
    real = None if filling is None else filling.real
    return Schedule(plans, unrolled, tuple(passes), dag.structure, sources, class_of, real)


def _build_pass(
    dag: TypedDAG,
    item: Pass,
    policy: str,
    inputs: CellInputs,
    classes: Classes | None = None,
    depth: IntArray | None = None,
    stages: Sequence[IntArray | None] = (),
    filling: tuple[int, Filling | None] = (0, None),
) -> tuple[PassSchedule, UnrolledRounds | None]:
    """The plan of one pass over the quotient graph of classes, with rounds unrolled.

    A class has the edges of its representative; `depth` is of classes. `stages` are `_equal_rows`
    before the first round and after each, if the pass is rounds.
    """
    choose = get_policy(policy)
    if isinstance(item, Rounds):
        return _build_rounds(dag, item, inputs, classes, stages)
    edges, graph = Edges.of_pass(dag, item), dag.batch.numpy()
    if classes is not None:
        edges = edges.select(classes.representative, np.append(classes.inverse, -1))
        graph = graph[classes.representative]
    number, own = filling
    if own is not None:
        edges, depth = own.fill(number, item, edges)
    elif depth is None:
        depth = depth_of_pass(dag, item, edges)
    rank = _rank(dag.num_graphs, graph, edges, depth)
    step = choose(PassGraph(inputs.op_type, depth, edges))
    return plan_levels(inputs, edges, step, rank), None


def _build_rounds(
    dag: TypedDAG,
    item: Rounds,
    inputs: CellInputs,
    classes: Classes | None,
    stages: Sequence[IntArray | None],
) -> tuple[PassSchedule, UnrolledRounds]:
    """The plan of a round, and of all rounds; of several relations, for each one of its own."""
    plan = plan_round(dag, item, inputs, classes)
    unrolled, relations = unroll(plan, item.rounds, stages), item.relations
    if len(relations) > 1:
        own = (Rounds(name, item.rounds) for name in relations)
        parts = (_build_rounds(dag, part, inputs, classes, stages)[1].plan for part in own)
        by_relation = dict(zip(relations, parts, strict=True))
        unrolled = replace(unrolled, plan=replace(unrolled.plan, by_relation=by_relation))
    return plan, unrolled


def _equal_rows(node: IntArray, numbers: Numbers) -> IntArray:
    """[num_rows + 1] the first of the rows that each row equals; nodes with equal numbers do.

    Args:
        node: [num_rows] the node of each row, row 1 first.
        numbers: of the nodes.
    """
    return np.append(0, first_equal([numbers.at(node)]) + 1)


def _rank(num_graphs: int, graph: IntArray, edges: Edges, depth: IntArray) -> IntArray | None:
    """[num_nodes] what the rows of a group are sorted by, or None for node order.

    Where every edge spans one level (chains, perfect trees) and the graphs differ in depth, the
    deepest graph goes first. Then the rows that a group reads are consecutive, as hand-written code
    for sorted sequences has them. Elsewhere they would not be, and node order saves sorting `x`.
    """
    child, parent = edges.present()
    if (depth[parent] - depth[child] != 1).any():
        return None
    deepest = np.zeros(num_graphs, dtype=np.int64)
    np.maximum.at(deepest, graph, depth)
    if len(deepest) == 0 or (deepest == deepest[0]).all():
        return None
    rank: IntArray = (deepest.max() - deepest)[graph]
    return rank
