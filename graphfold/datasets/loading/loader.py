"""GraphLoader: iterates over planned batches of a corpus."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from torch.utils.data import DataLoader, Dataset

from graphfold.batching import Batch, Pass
from graphfold.batching.batch import plan_batch
from graphfold.batching.scheduling.deduplicate import EqualNodes, deduplicate
from graphfold.batching.scheduling.schedule_report import CANDIDATES, count_calls
from graphfold.dag import TypedDAG, nodes_of_graphs, select
from graphfold.datasets.loading.sampler import BatchSampler

#: How many batches are planned in a row, or as many as have so many nodes.
PLAN_AHEAD, PLAN_AHEAD_NODES = 8, 1 << 15

#: Batches that are the same in every epoch are planned once if they have at most so many nodes
#: together, some tens of megabytes.
KEPT_NODES = 1 << 16

#: How many batches are planned under each policy to choose one.
NUM_TRIALS = 3


class GraphDataset(Dataset[Batch]):
    """A corpus that is asked for whole batches: `dataset[numbers]` is a planned `Batch`.

    Args:
        dag: all graphs, encoded.
        passes: the passes of the model.
        policy: the scheduling policy.
        share: whether equal nodes of a batch are computed once.
        lowered: the graphs that the model computes in place of those of `dag`, one for each; None
            if it computes them as they are.
    """

    def __init__(
        self,
        dag: TypedDAG,
        passes: Sequence[Pass],
        policy: str = "depth",
        share: bool = False,
        lowered: TypedDAG | None = None,
    ) -> None:
        self.dag = dag
        self.lowered = lowered
        self.passes = tuple(passes)
        self.policy = policy
        self.share = share
        self._computed = dag if lowered is None else lowered
        self._equal = _equal_nodes(self._computed, self.passes) if share else None

    def __getitem__(self, numbers: Sequence[int]) -> Batch:
        """The graphs with these numbers."""
        return self.plan(numbers, self.policy)

    def plan(self, numbers: Sequence[int], policy: str) -> Batch:
        """The graphs with these numbers, planned under a policy."""
        lowered = None if self.lowered is None else select(self.lowered, numbers)
        dag, equal = select(self.dag, numbers), self.equal_among(numbers)
        return plan_batch(dag, lowered, self.passes, policy, self.share, equal)

    def equal_among(self, numbers: Sequence[int]) -> EqualNodes | None:
        """The equal nodes among the graphs with these numbers; None without sharing."""
        if self._equal is None:
            return None
        return self._equal.among(nodes_of_graphs(self._computed, numbers).numpy())


class GraphLoader(DataLoader[Batch]):
    """Iterates over planned batches.

    A training step drives the records and the code that plans out of the processor's caches, so a
    few batches are planned in a row: planning the second one takes half of the time. A part that is
    not shuffled has the same batches in every epoch; unless it is large, they are planned once.

    Args:
        dataset: makes a batch of record numbers.
        sampler: decides which records are in which batch.
        pin_memory: whether batches come in page-locked memory, for a GPU.

    Attributes:
        calls: policy -> calls of cells per batch, if policies were tried.
    """

    def __init__(
        self, dataset: GraphDataset, sampler: BatchSampler, pin_memory: bool = False
    ) -> None:
        super().__init__(dataset, batch_size=None, sampler=sampler, pin_memory=pin_memory)
        self.dataset: GraphDataset
        self.sampler: BatchSampler
        self.calls: dict[str, float] = {}
        self._kept: list[Batch] | None = None  # those of every epoch, once they are all planned

    @property
    def policy(self) -> str:
        """The scheduling policy."""
        return self.dataset.policy

    def choose_policy(self, policy: str) -> None:
        """Plans with `policy` from now on; "auto" takes the one with the fewest calls of cells."""
        if policy == "auto":
            samples = list(islice(self.sampler, NUM_TRIALS))
            plan = self.dataset.plan
            self.calls = count_calls(
                self.dataset.passes,
                lambda name: (plan(numbers, name).schedule.passes for numbers in samples),
            )
            policy = next(iter(self.calls), CANDIDATES[0])
        self.dataset.policy = policy
        self._kept = None

    def __iter__(self) -> Iterator[Batch]:  # type: ignore[override]
        # Not the base class's, which draws from torch's generator: a resumed run, which makes its
        # iterators anew, is to draw the same masks of dropout.
        if self._kept is not None:
            yield from self._pinned(self._kept)
            return
        every: list[Batch] = []
        kept_nodes = 0
        for batch in self._plan_ahead():
            if not self.sampler.shuffle and kept_nodes <= KEPT_NODES:
                every.append(batch)
                kept_nodes += batch.computed.dag.num_nodes
            yield from self._pinned([batch])
        if len(every) == len(self.sampler) and kept_nodes <= KEPT_NODES:
            self._kept = every

    def _plan_ahead(self) -> Iterator[Batch]:
        planned: list[Batch] = []
        num_nodes = 0
        for numbers in self.sampler:
            planned.append(self.dataset[numbers])
            num_nodes += planned[-1].computed.dag.num_nodes
            if len(planned) == PLAN_AHEAD or num_nodes >= PLAN_AHEAD_NODES:
                yield from _hand_out(planned)
                num_nodes = 0
        yield from _hand_out(planned)

    def _pinned(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        return (batch.pin_memory() if self.pin_memory else batch for batch in batches)


def _hand_out(planned: list[Batch]) -> Iterator[Batch]:
    """The batches in order; each is dropped here as it goes."""
    planned.reverse()
    while planned:
        yield planned.pop()


def _equal_nodes(dag: TypedDAG, passes: tuple[Pass, ...]) -> EqualNodes:
    """`deduplicate`, remembered, since every part of a corpus has its own loader."""
    cache: dict[tuple[Pass, ...], EqualNodes]
    cache = dag.__dict__.setdefault("_equal_nodes", {})
    if passes not in cache:
        cache[passes] = deduplicate(dag, passes)
    return cache[passes]
