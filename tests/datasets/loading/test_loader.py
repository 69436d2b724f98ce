"""Batches from workers are the batches that this process would make."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from postfix_adapter import NAME, random_expressions, write_expressions

from graphfold.batching import Batch, Pass, Rounds, Up, build_schedule
from graphfold.batching.scheduling.deduplicate import EqualNodes, deduplicate
from graphfold.dag import TypedDAG
from graphfold.dag.compare import difference
from graphfold.datasets.adapters.registry import AdapterSpec
from graphfold.datasets.features.feature_spec import FeatureSpec
from graphfold.datasets.loading import loader as loader_module
from graphfold.datasets.loading.loader import GraphDataset, GraphLoader, Parcel
from graphfold.datasets.loading.sampler import BatchSampler
from graphfold.datasets.storage.packing import pack

PASSES = [Rounds("next", 2), Up()]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> GraphDataset:
    folder = tmp_path_factory.mktemp("data")
    path = write_expressions(folder / "f.txt", random_expressions(100))
    dag = pack(AdapterSpec(NAME), path, folder / "cache").dag
    return GraphDataset(FeatureSpec.fit(dag).encode(dag), PASSES)


def make_loader(dataset: GraphDataset, num_workers: int) -> GraphLoader:
    sizes = dataset.dag.node_ptr.diff()
    sampler = BatchSampler(torch.arange(len(sizes)), sizes, 16, shuffle=True)
    return GraphLoader(dataset, sampler, num_workers)


def assert_same(first: Batch, second: Batch) -> None:
    assert difference(first.dag, second.dag) is None
    assert first.dag.dictionaries == second.dag.dictionaries
    left: list[torch.Tensor] = []
    right: list[torch.Tensor] = []
    first.schedule.map_tensors(lambda t: left.append(t) or t)  # type: ignore[func-returns-value]
    second.schedule.map_tensors(lambda t: right.append(t) or t)  # type: ignore[func-returns-value]
    assert len(left) == len(right) > 0
    assert all(map(torch.equal, left, right))
    groups = [[plan.groups for plan in batch.schedule.passes] for batch in (first, second)]
    assert groups[0] == groups[1]


def test_batches_hold_the_records_of_the_sampler(dataset: GraphDataset) -> None:
    loader = make_loader(dataset, 0)
    assert len(loader) == 7
    for batch, numbers in zip(loader, loader.sampler, strict=True):
        assert batch.dag.origin[:, 2].tolist() == numbers
        assert len(batch.schedule.passes) == 2


def test_equal_nodes_of_a_corpus_are_found_once(
    dataset: GraphDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []

    def find_and_note(dag: TypedDAG, passes: Sequence[Pass]) -> EqualNodes:
        found.append(tuple(passes))
        return deduplicate(dag, passes)

    monkeypatch.setattr(loader_module, "deduplicate", find_and_note)
    corpus, up, rounds = replace(dataset.dag), [Up()], [Rounds("next", 2)]
    for passes in (up, rounds, up, rounds):
        shared = GraphDataset(corpus, passes, share=True)[[4, 2]]
        assert_same(shared, Batch(shared.dag, build_schedule(shared.dag, passes, share=True)))
    assert found == [tuple(up), tuple(rounds)]
    GraphDataset(corpus, [Rounds("next", 1)])
    assert len(found) == 2


@pytest.mark.parametrize(
    ("most", "most_nodes", "asked"),
    [(3, 1 << 16, [3, 3, 3, 6, 6, 6, 7]), (8, 1, [1, 2, 3, 4, 5, 6, 7]), (8, 1 << 16, [7] * 7)],
)
def test_batches_are_made_some_at_a_time(
    dataset: GraphDataset,
    monkeypatch: pytest.MonkeyPatch,
    most: int,
    most_nodes: int,
    asked: list[int],
) -> None:
    monkeypatch.setattr(loader_module, "BURST", most)
    monkeypatch.setattr(loader_module, "BURST_NODES", most_nodes)
    made: list[list[int]] = []

    class Noted(GraphDataset):
        def __getitem__(self, numbers: Sequence[int]) -> Batch:
            made.append(list(numbers))
            return super().__getitem__(numbers)

    loader = make_loader(Noted(dataset.dag, PASSES), 0)
    assert [len(made) for _ in loader] == asked
    assert made == list(loader.sampler)


@pytest.mark.parametrize("num_workers", [1, 2])
def test_workers_make_the_same_batches(dataset: GraphDataset, num_workers: int) -> None:
    here, there = make_loader(dataset, 0), make_loader(dataset, num_workers)
    for epoch in range(2):
        for loader in (here, there):
            loader.sampler.set_epoch(epoch)  # type: ignore[attr-defined]
        for first, second in zip(here, there, strict=True):
            assert_same(first, second)


def test_a_parcel_holds_the_batch_in_one_tensor(dataset: GraphDataset) -> None:
    batch = dataset[[5, 3, 99]]
    marked = replace(batch.dag, dictionaries={**batch.dag.dictionaries, "more": ["unmistakable"]})
    parcel = Parcel.of(Batch(marked, batch.schedule))
    assert parcel.memory.dtype == torch.uint8
    assert b"unmistakable" not in parcel.skeleton
    opened = parcel.open(dataset)
    assert_same(batch, opened)
    tensors: list[torch.Tensor] = []
    opened.map_tensors(lambda t: tensors.append(t) or t)  # type: ignore[func-returns-value]
    storages = {t.untyped_storage().data_ptr() for t in tensors}
    assert storages == {parcel.memory.untyped_storage().data_ptr()}


def test_an_empty_batch(dataset: GraphDataset) -> None:
    batch = dataset[[]]
    assert batch.num_graphs == 0
    assert_same(batch, Parcel.of(batch).open(dataset))


@pytest.mark.gpu
def test_a_parcel_can_be_pinned(dataset: GraphDataset, tmp_path: Path) -> None:
    opened = Parcel.of(dataset[[1]]).pin_memory().open(dataset)
    assert opened.dag.op_type.is_pinned()
