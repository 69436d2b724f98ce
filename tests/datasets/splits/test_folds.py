"""Folds: every record is in test once, groups stay together, repetitions differ."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfold.datasets.splits.cross_validation import kfold_split, repeated_kfold_split
from graphfold.datasets.splits.split import Split
from graphfold.errors import ConfigError, DataError


def is_partition(split: Split, num_records: int) -> bool:
    parts = torch.cat([split.train, split.val, split.test])
    return sorted(parts.tolist()) == list(range(num_records))


@pytest.mark.parametrize(("share", "num_val"), [(0.0, 0), (0.25, 20), (0.001, 1)])
def test_val_is_a_share_of_the_training_folds(share, num_val):
    split = kfold_split(100, 5, 2, seed=1, val_share=share)
    assert split.sizes() == {"train": 80 - num_val, "val": num_val, "test": 20}
    assert is_partition(split, 100)
    plain = kfold_split(100, 5, 2, seed=1)
    assert torch.equal(split.test, plain.test)
    assert split.notes if num_val else split.notes == ("There is no val part.",)


@pytest.mark.parametrize(
    ("num_records", "num_folds", "fold", "message"),
    [
        (10, 1, 0, r"num_folds is 1\. Ask for at least 2"),
        (10, 5, 5, r"fold is 5\. Give a number from 0 to 4"),
        (4, 5, 0, r"4 records cannot make 5 folds\. Lower data\.num_folds"),
    ],
)
def test_impossible_folds(num_records, num_folds, fold, message):
    with pytest.raises((ConfigError, DataError), match=message):
        kfold_split(num_records, num_folds, fold, 0)


@given(
    sizes=st.lists(st.integers(1, 9), min_size=5, max_size=30),
    seed=st.integers(0, 3),
    repeat=st.integers(0, 2),
)
def test_groups_stay_in_one_fold(sizes, seed, repeat):
    keys = [key for key, size in enumerate(sizes) for _ in range(size)]
    count = len(keys)
    splits = [repeated_kfold_split(count, 3, 5, repeat * 5 + fold, seed, keys) for fold in range(5)]
    assert all(is_partition(split, count) for split in splits)
    assert sorted(torch.cat([split.test for split in splits]).tolist()) == list(range(count))
    folds = [{keys[record] for record in split.test.tolist()} for split in splits]
    assert sum(map(len, folds)) == len(sizes)
    for split in splits:
        sides = [{keys[record] for record in part.tolist()} for part in (split.train, split.val)]
        assert not sides[0] & sides[1]
        assert sides[0]
        assert sides[1]
    lengths = [len(split.test) for split in splits]
    assert max(lengths) - min(lengths) <= max(sizes)


def test_repetitions_are_drawn_anew_and_the_first_is_that_of_kfold():
    splits = [repeated_kfold_split(40, 5, 5, fold, seed=2) for fold in range(25)]
    assert [split.method for split in splits] == ["repeated_kfold"] * 25
    assert len({tuple(split.test.tolist()) for split in splits}) == 25
    for repeat in range(5):
        tests = [split.test for split in splits[5 * repeat : 5 * repeat + 5]]
        assert sorted(torch.cat(tests).tolist()) == list(range(40))
    for fold in range(5):
        assert torch.equal(splits[fold].test, kfold_split(40, 5, fold, seed=2).test)
    again = repeated_kfold_split(40, 5, 5, 17, seed=2)
    assert again.to_dict() == splits[17].to_dict()


def test_repetitions_and_groups_that_cannot_be():
    with pytest.raises(ConfigError, match=r"fold is 25\. Give a number from 0 to 24"):
        repeated_kfold_split(40, 5, 5, 25, 0)
    with pytest.raises(ConfigError, match=r"num_repeats is 0\. Ask for at least 1"):
        repeated_kfold_split(40, 0, 5, 0, 0)
    with pytest.raises(DataError, match=r"4 groups of records cannot make 5 folds"):
        kfold_split(8, 5, 0, 0, [0, 0, 1, 1, 2, 2, 3, 3])
