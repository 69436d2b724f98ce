"""GraphLoader and BatchSampler: planned batches of graphs, in the order of an epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice

import numpy as np
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from graphfold.batching import Batch, Pass
from graphfold.batching.batch import plan_batch
from graphfold.batching.padding import Padding
from graphfold.batching.scheduling.deduplicate import EqualNodes, deduplicate
from graphfold.batching.scheduling.policies import get_policy
from graphfold.dag import TypedDAG, nodes_of_graphs, select
from graphfold.errors import ConfigError

Array = np.ndarray


class BatchSampler(Sampler[list[int]]):
    """Batches of record numbers, by number of records, by number of nodes, or by both.

    Every record occurs exactly once per epoch, over all ranks. All ranks have the same number of
    batches in every epoch, and none is empty: where the last batches do not go round, the largest
    of them are halved (if fewer records than ranks are left, they join the step before, whose
    batches may exceed their limits then). N ranks with batches of B records see, step by step, what
    one process with batches of N * B records sees.

    The order of an epoch depends on `seed` and the epoch alone, so that a resumed run repeats an
    epoch exactly. With a node budget, the sequence of sizes is drawn once and records of equal size
    change places from epoch to epoch, so that every epoch has the same number of batches.

    Args:
        indices: [num_records] the record numbers to draw from.
        num_nodes: [num_records] how many nodes each of them has.
        batch_size: the most records in a batch; None for any number.
        max_nodes: the most nodes in a batch; a record with more is alone in its batch.
        shuffle: whether the order changes from epoch to epoch; otherwise it is that of `indices`.
        seed: of the order.
        rank: which of the processes this one is.
        world_size: how many processes share the records.

    Raises:
        ConfigError: if a limit is not positive, both are None, or there are fewer records than
            ranks.
    """

    def __init__(
        self,
        indices: Tensor,
        num_nodes: Tensor,
        batch_size: int | None = None,
        max_nodes: int | None = None,
        shuffle: bool = False,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        for name, limit in {"batch_size": batch_size, "max_nodes": max_nodes}.items():
            if limit is not None and limit < 1:
                raise ConfigError(f"data.{name} is {limit}. Give at least 1.")
        if batch_size is None and max_nodes is None:
            raise ConfigError("batches have no limit. Set data.batch_size or data.max_nodes.")
        if 0 < len(indices) < world_size:
            raise ConfigError(
                f"{len(indices)} records cannot be shared by {world_size} devices. Use fewer "
                "devices (trainer.devices)."
            )
        self.shuffle = shuffle
        self.seed = seed
        self.rank = rank
        self.world_size = world_size
        self.epoch = 0
        self._indices = indices.numpy()
        self._sizes = num_nodes.numpy()
        self._fixed_sizes = max_nodes is not None
        first = self._order(0)
        bounds = _cut(self._sizes[first], batch_size, max_nodes)
        self._bounds = _even_out(bounds, world_size)

    def __iter__(self) -> Iterator[list[int]]:
        order = self._indices[self._order(self.epoch)]
        for step in self._steps():
            batch = step * self.world_size + self.rank
            yield order[self._bounds[batch] : self._bounds[batch + 1]].tolist()

    def __len__(self) -> int:
        return (len(self._bounds) - 1) // self.world_size

    def set_epoch(self, epoch: int) -> None:
        """Chooses the order of an epoch."""
        self.epoch = epoch

    def state_dict(self) -> dict[str, int]:
        """The epoch; the order within it follows."""
        return {"epoch": self.epoch}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Goes to the beginning of the epoch of `state`."""
        self.epoch = state["epoch"]

    def _order(self, epoch: int) -> Array:
        """[num_records] positions in `indices`, in the order of an epoch."""
        count = len(self._indices)
        if not self.shuffle:
            return np.arange(count)
        order = np.random.default_rng([self.seed, epoch]).permutation(count)
        if not self._fixed_sizes or epoch == 0:
            return order
        first = np.random.default_rng([self.seed, 0]).permutation(count)
        places = np.argsort(self._sizes[first], kind="stable")
        arranged = np.empty(count, dtype=np.int64)
        arranged[places] = order[np.argsort(self._sizes[order], kind="stable")]
        return arranged

    def _steps(self) -> Sequence[int]:
        if not (self.shuffle and self._fixed_sizes):
            return range(len(self))
        rng = np.random.default_rng([self.seed, self.epoch, 1])
        steps: list[int] = rng.permutation(len(self)).tolist()
        return steps


def _cut(sizes: Array, batch_size: int | None, max_nodes: int | None) -> list[int]:
    """The beginnings of batches, and the end: each takes as many records as its limits allow."""
    count = len(sizes)
    if max_nodes is None:
        return [*range(0, count, batch_size or count), count]
    ends = np.cumsum(sizes)
    bounds = [0]
    while bounds[-1] < count:
        begin = bounds[-1]
        before = int(ends[begin - 1]) if begin else 0
        end = int(np.searchsorted(ends, before + max_nodes, side="right"))
        end = min(end, begin + batch_size) if batch_size else end
        bounds.append(max(end, begin + 1))
    return bounds


def _even_out(bounds: list[int], world_size: int) -> list[int]:
    """Makes the number of batches a multiple of `world_size`.

    Only the last step changes: its largest batches are halved until each rank has one. If it has
    fewer records than ranks, it joins the step before.
    """
    num_batches = len(bounds) - 1
    extra = num_batches % world_size
    if not extra:
        return bounds
    first = num_batches - extra
    if bounds[-1] - bounds[first] < world_size:
        first -= world_size
        ends = np.linspace(bounds[first], bounds[-1], world_size + 1)
        return bounds[:first] + [int(end) for end in ends]
    tail = bounds[first:]
    for _ in range(world_size - extra):
        sizes = np.diff(tail)
        widest = int(np.argmax(sizes))
        tail.insert(widest + 1, tail[widest] + int(sizes[widest] + 1) // 2)
    return bounds[:first] + tail


#: How many batches are planned in a row, or as many as have so many nodes.
PLAN_AHEAD, PLAN_AHEAD_NODES = 8, 1 << 15

#: Batches that are the same in every epoch are planned once if they have at most so many nodes
#: together, some tens of megabytes.
KEPT_NODES = 1 << 16

#: Batches of so many epochs, and so many of each, decide the sizes of static shapes.
SAMPLED_EPOCHS, SAMPLED_BATCHES = 4, 256


class GraphDataset(Dataset[Batch]):
    """Planned batches of a corpus: `dataset[numbers]` is a `Batch` of these records.

    Args:
        dag: all graphs, encoded; none of them if `read` is given.
        passes: the passes of the model.
        policy: the scheduling policy.
        share: whether equal nodes of a batch are computed once.
        lowered: the graphs that the model computes in place of those of `dag`, one for each; None
            if the model computes the graphs of `dag`.
        read: returns the graphs with some numbers, encoded; None if all of them are in `dag`.

    Attributes:
        padding: fills batches up to one of a few sizes; None for batches as they are.
    """

    def __init__(
        self,
        dag: TypedDAG,
        passes: Sequence[Pass],
        policy: str = "depth",
        share: bool = False,
        lowered: TypedDAG | None = None,
        read: Callable[[Sequence[int]], TypedDAG] | None = None,
    ) -> None:
        self.dag = dag
        self.lowered = lowered
        self.passes = tuple(passes)
        get_policy(policy)  # raises an error for an unknown one
        self.policy = policy
        self.share = share
        self.padding: Padding | None = None
        self._read = read
        self._computed = dag if lowered is None else lowered
        # With `read`, equal nodes are found batch by batch.
        is_ahead = share and read is None
        self._equal = _equal_nodes(self._computed, self.passes) if is_ahead else None

    def __getitem__(self, numbers: Sequence[int]) -> Batch:
        """The graphs with these numbers."""
        dag, lowered = self.graphs(numbers)
        if self.padding is not None:
            return self.padding.plan(dag, lowered)
        equal = self.equal_among(numbers)
        return plan_batch(dag, lowered, self.passes, self.policy, self.share, equal)

    def graphs(self, numbers: Sequence[int]) -> tuple[TypedDAG, TypedDAG | None]:
        """The graphs with these numbers, and those that the model computes in their place."""
        lowered = None if self.lowered is None else select(self.lowered, numbers)
        return select(self.dag, numbers) if self._read is None else self._read(numbers), lowered

    def pad(self, sampler: BatchSampler) -> None:
        """Chooses the sizes of `padding` by the batches of some epochs."""
        numbers: list[list[int]] = []
        for epoch in range(SAMPLED_EPOCHS):
            sampler.set_epoch(epoch)
            numbers += islice(sampler, SAMPLED_BATCHES)
        sampler.set_epoch(0)
        if numbers:
            self.padding = Padding(map(self.graphs, numbers), self.passes)

    def equal_among(self, numbers: Sequence[int]) -> EqualNodes | None:
        """The equal nodes among the graphs with these numbers; None without sharing."""
        if self._equal is None:
            return None
        return self._equal.among(nodes_of_graphs(self._computed, numbers).numpy())


class GraphLoader(DataLoader[Batch]):
    """Iterates over planned batches.

    A training step evicts records and the planning code from the processor's caches, so a few
    batches are planned in a row: planning the second one takes half of the time. A part that is not
    shuffled has the same batches in every epoch; unless it is large, they are planned once.

    Args:
        dataset: makes a batch of record numbers.
        sampler: the record numbers of each batch.
        pin_memory: whether batches come in page-locked memory, for a GPU.
    """

    def __init__(
        self, dataset: GraphDataset, sampler: BatchSampler, pin_memory: bool = False
    ) -> None:
        super().__init__(dataset, batch_size=None, sampler=sampler, pin_memory=pin_memory)
        self.dataset: GraphDataset
        self.sampler: BatchSampler
        self._planned: list[Batch] | None = None  # all batches, if every epoch has the same

    @property
    def policy(self) -> str:
        """The scheduling policy."""
        return self.dataset.policy

    def __iter__(self) -> Iterator[Batch]:  # type: ignore[override]
        # The base class's iterator draws from torch's generator; a resumed run, which makes new
        # iterators, must draw the same masks of dropout.
        if self._planned is not None:
            yield from self._pinned(self._planned)
            return
        batches: list[Batch] = []
        num_nodes = 0
        for batch in self._plan_ahead():
            if not self.sampler.shuffle and num_nodes <= KEPT_NODES:
                batches.append(batch)
                num_nodes += batch.computed.dag.num_nodes
            yield from self._pinned([batch])
        if len(batches) == len(self.sampler) and num_nodes <= KEPT_NODES:
            self._planned = batches

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
    """The batches in order; each is removed from the list, so that its memory can be freed."""
    planned.reverse()
    while planned:
        yield planned.pop()


def _equal_nodes(dag: TypedDAG, passes: tuple[Pass, ...]) -> EqualNodes:
    """The result of `deduplicate`, cached: every part of a corpus has its own loader."""
    cache: dict[tuple[Pass, ...], EqualNodes]
    cache = dag.__dict__.setdefault("_equal_nodes", {})
    if passes not in cache:
        cache[passes] = deduplicate(dag, passes)
    return cache[passes]
