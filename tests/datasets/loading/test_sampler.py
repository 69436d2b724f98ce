"""Which records are in which batch: all of them, once, within the limits, the same when resumed."""

from __future__ import annotations

from itertools import chain
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfold.datasets.loading.sampler import BatchSampler
from graphfold.errors import ConfigError

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
    sizes: list[int],
    world_size: int,
    batch_size: int | None,
    max_nodes: int | None,
    shuffle: bool,
    epoch: int,
) -> None:
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
def test_the_number_of_batches_is_the_same_in_every_epoch(sizes: list[int], max_nodes: int) -> None:
    (sampler,) = samplers(sizes, max_nodes=max_nodes, shuffle=True)
    counts = set()
    for epoch in range(4):
        sampler.set_epoch(epoch)
        batches = list(sampler)
        counts.add(len(batches))
        for batch in batches:
            assert sum(sizes[n - 100] for n in batch) <= max_nodes or len(batch) == 1
    assert counts == {len(sampler)}


def test_ranks_together_see_what_one_process_sees() -> None:
    sizes = [1] * 83
    (one,) = samplers(sizes, batch_size=20, shuffle=True)
    ranks = samplers(sizes, 2, batch_size=10, shuffle=True)
    for epoch in range(3):
        for sampler in (one, *ranks):
            sampler.set_epoch(epoch)
        joined = [list(chain(*step)) for step in zip(*ranks, strict=True)]
        assert joined == list(one)


def test_the_last_batch_is_shared_out() -> None:
    ranks = samplers([1] * 25, 2, batch_size=10)
    assert [[len(batch) for batch in sampler] for sampler in ranks] == [[10, 3], [10, 2]]


def test_what_is_left_for_too_many_ranks_joins_the_step_before() -> None:
    ranks = samplers([1] * 7, 3, batch_size=2)
    assert [[len(batch) for batch in sampler] for sampler in ranks] == [[2], [2], [3]]


def test_order_without_shuffling_is_that_of_the_records() -> None:
    (sampler,) = samplers([1] * 7, batch_size=3)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        assert list(sampler) == [[100, 101, 102], [103, 104, 105], [106]]


def test_epochs_differ_and_repeat() -> None:
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


def test_seeds_differ() -> None:
    batches = [list(samplers([1] * 30, batch_size=4, shuffle=True, seed=s)[0]) for s in (0, 1)]
    assert batches[0] != batches[1]


def test_a_record_over_the_budget_goes_alone() -> None:
    (sampler,) = samplers([3, 50, 3, 3], max_nodes=6)
    assert list(sampler) == [[100], [101], [102, 103]]


def test_both_limits_hold() -> None:
    (sampler,) = samplers([1, 1, 1, 1, 5, 5], batch_size=3, max_nodes=6)
    assert list(sampler) == [[100, 101, 102], [103, 104], [105]]


def test_no_records() -> None:
    (sampler,) = samplers([], batch_size=3)
    assert list(sampler) == []
    assert len(sampler) == 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, r"batches have no limit\. Set data\.batch_size or data\.max_nodes"),
        ({"batch_size": 0}, r"data\.batch_size is 0\. Give at least 1"),
        ({"max_nodes": -5}, r"data\.max_nodes is -5\. Give at least 1"),
        ({"batch_size": 2, "world_size": 9}, r"3 records cannot be shared by 9 devices\. Use fewe"),
    ],
)
def test_impossible_settings(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        samplers([1, 1, 1], **settings)
