"""GraphLoader: batches selected and planned in worker processes, sent over in one piece."""

from __future__ import annotations

import io
import pickle
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, BinaryIO, cast

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler, get_worker_info

from graphfold.batching import Batch, Pass
from graphfold.batching.lowered_batch import plan_batch
from graphfold.batching.scheduling.deduplicate import EqualNodes, deduplicate
from graphfold.dag import Schema, TypedDAG, nodes_of_graphs, select
from graphfold.datasets.storage.reading import start_method

#: Tensors begin at multiples of this many bytes, so that any dtype may view them.
_ALIGNMENT = 16

_NO_SCHEMA = Schema(())

#: Without workers, so many batches are made in one go, or as many as have so many nodes.
BURST, BURST_NODES = 8, 1 << 15


class GraphDataset(Dataset[Batch]):
    """A corpus that is asked for whole batches: `dataset[numbers]` is a planned `Batch`.

    Args:
        dag: all graphs, encoded.
        passes: the passes of the model.
        policy: how to plan them.
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
        lowered = None if self.lowered is None else select(self.lowered, numbers)
        dag, equal = select(self.dag, numbers), self.equal_among(numbers)
        return plan_batch(dag, lowered, self.passes, self.policy, self.share, equal)

    def equal_among(self, numbers: Sequence[int]) -> EqualNodes | None:
        """Which nodes of the graphs with these numbers are equal, if that matters."""
        if self._equal is None:
            return None
        return self._equal.among(nodes_of_graphs(self._computed, numbers).numpy())


class GraphLoader(DataLoader[Batch]):
    """Iterates over planned batches.

    Args:
        dataset: what makes a batch of record numbers.
        sampler: which records are in which batch.
        num_workers: processes that make batches; 0 for none but this one.
        pin_memory: whether batches come in page-locked memory, for a GPU.
    """

    def __init__(
        self,
        dataset: GraphDataset,
        sampler: Sampler[list[int]],
        num_workers: int = 0,
        pin_memory: bool = False,
    ) -> None:
        for dag in _dags(dataset).values():
            select(dag, [])  # computes the pointers that all workers then share
        super().__init__(
            dataset,
            batch_size=None,  # the sampler's items are batches already
            sampler=sampler,
            num_workers=num_workers,
            collate_fn=_ship,  # type: ignore[arg-type]  # it gets what the dataset returns
            pin_memory=pin_memory,
            # Workers are seeded from here, so that iterating draws nothing from torch's own
            # generator: a resumed run, which makes its iterators anew, draws the same masks.
            generator=torch.Generator(),
            persistent_workers=num_workers > 0,
            multiprocessing_context=start_method() if num_workers else None,
        )

    def __iter__(self) -> Iterator[Batch]:  # type: ignore[override]
        # A generator, so that workers begin with the first batch: the sampler knows the epoch then.
        assert isinstance(self.dataset, GraphDataset)
        if not self.num_workers:
            yield from _in_bursts(super().__iter__())
            return
        for parcel in cast(Iterator[Parcel], super().__iter__()):
            yield parcel.open(self.dataset)


@dataclass(frozen=True, eq=False)
class Parcel:
    """A batch on its way from a worker: one tensor instead of dozens, no dictionaries."""

    memory: Tensor  # [num_bytes] uint8, all tensors one after another
    skeleton: bytes  # the pickled batch, with places in `memory` instead of tensors

    @staticmethod
    def of(batch: Batch) -> Parcel:
        """Packs a batch."""
        # The receiver has these, and the strings of a corpus are many.
        light: dict[str, Any] = {
            name: replace(dag, schema=_NO_SCHEMA, dictionaries={}, files=())
            for name, dag in _dags(batch).items()
        }
        skeleton = io.BytesIO()
        packer = _Packer(skeleton)
        packer.dump(replace(batch, **light))
        memory = torch.empty(packer.num_bytes, dtype=torch.uint8)
        for tensor, begin in packer.tensors:
            _view(memory, begin, tensor.dtype, tensor.shape).copy_(tensor)
        return Parcel(memory, skeleton.getvalue())

    def open(self, dataset: GraphDataset) -> Batch:
        """The batch; `dataset` is what it was selected from."""
        batch: Batch = _Unpacker(self.skeleton, self.memory).load()
        whole = _dags(dataset)
        filled: dict[str, Any] = {
            name: replace(
                dag,
                schema=whole[name].schema,
                dictionaries=whole[name].dictionaries,
                files=whole[name].files,
            )
            for name, dag in _dags(batch).items()
        }
        return replace(batch, **filled)

    def pin_memory(self) -> Parcel:
        """A copy in page-locked memory."""
        return replace(self, memory=self.memory.pin_memory())


class _Packer(pickle.Pickler):
    """Pickles everything but tensors, which it gives places one after another."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self.tensors: list[tuple[Tensor, int]] = []  # with the first byte of its place
        self.num_bytes = 0

    def persistent_id(self, obj: Any) -> Any:
        """The place of a tensor; None for other objects."""
        if not isinstance(obj, Tensor):
            return None
        begin = self.num_bytes
        self.tensors.append((obj, begin))
        self.num_bytes += -(-obj.numel() * obj.element_size() // _ALIGNMENT) * _ALIGNMENT
        return begin, obj.dtype, obj.shape


class _Unpacker(pickle.Unpickler):
    """Puts views of the memory where tensors were."""

    def __init__(self, skeleton: bytes, memory: Tensor) -> None:
        super().__init__(io.BytesIO(skeleton))
        self.memory = memory

    def persistent_load(self, pid: Any) -> Tensor:
        """The tensor at a place."""
        return _view(self.memory, *pid)


def _equal_nodes(dag: TypedDAG, passes: tuple[Pass, ...]) -> EqualNodes:
    """`deduplicate`, remembered, since every part of a corpus has a loader of its own."""
    cache: dict[tuple[Pass, ...], EqualNodes]
    cache = dag.__dict__.setdefault("_equal_nodes", {})
    if passes not in cache:
        cache[passes] = deduplicate(dag, passes)
    return cache[passes]


def _in_bursts(batches: Iterator[Batch]) -> Iterator[Batch]:
    """The batches, of which some are made before the first of them is handed out.

    A training step drives the records and the code that makes batches out of the processor's
    caches. For a batch right after another they are there, and making it takes half of the time.
    """
    while burst := deque(_burst(batches)):
        while burst:
            yield burst.popleft()


def _burst(batches: Iterator[Batch]) -> Iterator[Batch]:
    """The next `BURST` batches, or fewer if they have many nodes."""
    num_nodes = 0
    for number, batch in enumerate(batches, start=1):
        yield batch
        num_nodes += batch.computed.dag.num_nodes
        if number == BURST or num_nodes >= BURST_NODES:
            return


def _dags(owner: GraphDataset | Batch) -> dict[str, TypedDAG]:
    """The graphs of a dataset or a batch, by the name of their attribute."""
    found = {name: getattr(owner, name, None) for name in ("dag", "lowered")}
    return {name: dag for name, dag in found.items() if dag is not None}


def _ship(batch: Batch) -> Batch | Parcel:
    return batch if get_worker_info() is None else Parcel.of(batch)


def _view(memory: Tensor, begin: int, dtype: torch.dtype, shape: torch.Size) -> Tensor:
    end = begin + shape.numel() * dtype.itemsize
    return memory[begin:end].view(dtype).view(shape)
