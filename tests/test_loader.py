"""Which records are in which batch: all of them, once, within the limits, the same when resumed.

The batches of a loader: records, plans, policy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from postfix_adapter import NAME, random_expressions, write_expressions

from graphfold import loader as loader_module
from graphfold.batching import Batch, Pass, Rounds, Up, build_schedule
from graphfold.batching.scheduling.deduplicate import EqualNodes, deduplicate
from graphfold.dag import TypedDAG
from graphfold.dag.compare import difference
from graphfold.datasets.features.feature_spec import FeatureSpec
from graphfold.datasets.readers.spec import AdapterSpec
from graphfold.datasets.storage.packing import pack
from graphfold.errors import ConfigError
from graphfold.loader import BatchSampler, GraphDataset, GraphLoader

SIZES = st.lists(st.integers(1, 9), min_size=5, max_size=60)


def samplers(sizes: list[int], world_size: int = 1, **settings: Any) -> list[BatchSampler]:
    """One for each rank, over the records 100, 101, ..."""
    indices = torch.arange(100, 100 + len(sizes))
    return [
        BatchSampler(indices, torch.tensor(sizes), rank=rank, world_size=world_size, **settings)
        for rank in range(world_size)
    ]


@given(
    sizes=SIZES,
    world_size=st.integers(1, 5),
    batch_size=st.none() | st.integers(1, 8),
    max_nodes=st.none() | st.integers(1, 30),
    shuffle=st.booleans(),
    epoch=st.integers(0, 3),
)
def test_every_record_once_in_as_many_steps_on_every_rank(
    sizes, world_size, batch_size, max_nodes, shuffle, epoch
):
    if batch_size is None and max_nodes is None:
        batch_size = 3
    limits = {"batch_size": batch_size, "max_nodes": max_nodes}
    ranks = samplers(sizes, world_size, shuffle=shuffle, **limits)
    for sampler in ranks:
        sampler.set_epoch(epoch)
    batches = [list(sampler) for sampler in ranks]
    assert {len(of_rank) for of_rank in batches} == {len(ranks[0])}
    everything = [number for of_rank in batches for batch in of_rank for number in batch]
    assert sorted(everything) == list(range(100, 100 + len(sizes)))
    for batch in (batch for of_rank in batches for batch in of_rank):
        nodes = sum(sizes[number - 100] for number in batch)
        assert len(batch) >= 1
        if world_size == 1:
            assert batch_size is None or len(batch) <= batch_size
            assert max_nodes is None or nodes <= max_nodes or len(batch) == 1


@given(sizes=SIZES, max_nodes=st.integers(5, 30))
def test_the_number_of_batches_is_the_same_in_every_epoch(sizes, max_nodes):
    (sampler,) = samplers(sizes, max_nodes=max_nodes, shuffle=True)
    counts = set()
    for epoch in range(4):
        sampler.set_epoch(epoch)
        batches = list(sampler)
        counts.add(len(batches))
        for batch in batches:
            assert sum(sizes[n - 100] for n in batch) <= max_nodes or len(batch) == 1
    assert counts == {len(sampler)}


def test_ranks_together_see_what_one_process_sees():
    sizes = [1] * 83
    (one,) = samplers(sizes, batch_size=20, shuffle=True)
    ranks = samplers(sizes, 2, batch_size=10, shuffle=True)
    for epoch in range(3):
        for sampler in (one, *ranks):
            sampler.set_epoch(epoch)
        joined = [list(chain(*step)) for step in zip(*ranks, strict=True)]
        assert joined == list(one)


def test_the_last_batch_is_shared_out():
    ranks = samplers([1] * 25, 2, batch_size=10)
    assert [[len(batch) for batch in sampler] for sampler in ranks] == [[10, 3], [10, 2]]


def test_what_is_left_for_too_many_ranks_joins_the_step_before():
    ranks = samplers([1] * 7, 3, batch_size=2)
    assert [[len(batch) for batch in sampler] for sampler in ranks] == [[2], [2], [3]]


def test_epochs_differ_and_repeat():
    for settings in ({"batch_size": 4}, {"max_nodes": 12}):
        (sampler,) = samplers([1, 2, 3] * 10, shuffle=True, **settings)
        first = list(sampler)
        sampler.set_epoch(1)
        second = list(sampler)
        assert first != second
        state = sampler.state_dict()
        (resumed,) = samplers([1, 2, 3] * 10, shuffle=True, **settings)
        resumed.load_state_dict(state)
        assert list(resumed) == second


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, r"batches have no limit\. Set data\.batch_size or data\.max_nodes"),
        ({"batch_size": 0}, r"data\.batch_size is 0\. Give at least 1"),
        ({"max_nodes": -5}, r"data\.max_nodes is -5\. Give at least 1"),
        ({"batch_size": 2, "world_size": 9}, r"3 records cannot be shared by 9 devices\. Use fewe"),
    ],
)
def test_impossible_settings(settings, message):
    with pytest.raises(ConfigError, match=message):
        samplers([1, 1, 1], **settings)


PASSES = [Rounds("next", 2), Up()]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> GraphDataset:
    folder = tmp_path_factory.mktemp("data")
    path = write_expressions(folder / "f.txt", random_expressions(100))
    dag = pack(AdapterSpec(NAME), path, folder / "cache").dag
    return GraphDataset(FeatureSpec.fit(dag).encode(dag), PASSES)


def make_loader(dataset: GraphDataset) -> GraphLoader:
    sizes = dataset.dag.node_ptr.diff()
    sampler = BatchSampler(torch.arange(len(sizes)), sizes, 16, shuffle=True)
    return GraphLoader(dataset, sampler)


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


def test_equal_nodes_of_a_corpus_are_found_once(dataset, monkeypatch):
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
def test_batches_are_made_some_at_a_time(dataset, monkeypatch, most, most_nodes, asked):
    monkeypatch.setattr(loader_module, "PLAN_AHEAD", most)
    monkeypatch.setattr(loader_module, "PLAN_AHEAD_NODES", most_nodes)
    made: list[list[int]] = []

    class Noted(GraphDataset):
        def __getitem__(self, numbers: Sequence[int]) -> Batch:
            made.append(list(numbers))
            return super().__getitem__(numbers)

    loader = make_loader(Noted(dataset.dag, PASSES))
    assert [len(made) for _ in loader] == asked
    assert made == list(loader.sampler)


class Counted(GraphDataset):
    """Counts the batches that it makes."""

    num_made = 0

    def __getitem__(self, numbers: Sequence[int]) -> Batch:
        self.num_made += 1
        return super().__getitem__(numbers)


def in_file_order(dataset: GraphDataset) -> GraphLoader:
    sizes = dataset.dag.node_ptr.diff()
    return GraphLoader(dataset, BatchSampler(torch.arange(len(sizes)), sizes, 16))


def test_batches_of_every_epoch_are_planned_once(dataset):
    counted = Counted(dataset.dag, PASSES)
    loader = in_file_order(counted)
    next(iter(loader))  # an epoch that is broken off leaves nothing behind
    counted.num_made = 0
    first, second = list(loader), list(loader)
    assert counted.num_made == len(first) == 7
    for one, other in zip(first, second, strict=True):
        assert one is other
    for batch, numbers in zip(second, loader.sampler, strict=True):
        assert_same(batch, dataset[numbers])


@pytest.mark.parametrize("shuffle", [False, True])
def test_batches_that_change_or_are_large_are_not_kept(dataset, monkeypatch, shuffle):
    counted = Counted(dataset.dag, PASSES)
    loader = make_loader(counted) if shuffle else in_file_order(counted)
    if not shuffle:
        monkeypatch.setattr(loader_module, "KEPT_NODES", dataset.dag.num_nodes - 1)
    for _ in range(2):
        assert len(list(loader)) == 7
    assert counted.num_made == 14


@pytest.mark.gpu
def test_batches_can_be_pinned(dataset):
    loader = GraphLoader(dataset, make_loader(dataset).sampler, pin_memory=True)
    assert next(iter(loader)).dag.op_type.is_pinned()
