"""Every record is in exactly one part, the same way for the same seed."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfold.datasets.splits.split import Split
from graphfold.datasets.splits.split_ways import (
    given_split,
    random_split,
    scaffold_balanced_split,
    scaffold_split,
    stratified_split,
)
from graphfold.errors import ConfigError, DataError

FRACTIONS = (0.8, 0.1, 0.1)


def is_partition(split: Split, num_records: int) -> bool:
    parts = [split.train, split.val, split.test]
    increasing = all(bool((part.diff() > 0).all()) for part in parts)
    return increasing and sorted(torch.cat(parts).tolist()) == list(range(num_records))


def same(first: Split, second: Split) -> bool:
    return first.to_dict() == second.to_dict()


@given(num_records=st.integers(10, 300), seed=st.integers(0, 5))
def test_random_split(num_records, seed):
    split = random_split(num_records, FRACTIONS, seed)
    assert is_partition(split, num_records)
    assert same(split, random_split(num_records, FRACTIONS, seed))
    assert abs(len(split.train) - 0.8 * num_records) <= 1


def test_sizes_are_those_of_the_shares():
    assert random_split(1128, FRACTIONS, 0).sizes() == {"train": 902, "val": 113, "test": 113}
    assert random_split(10, (0.7, 0.1, 0.2), 0).sizes() == {"train": 7, "val": 1, "test": 2}
    assert random_split(10, (0.9, 0.1, 0.0), 0).sizes() == {"train": 9, "val": 1, "test": 0}
    # A part with a share gets at least one record.
    assert random_split(3, FRACTIONS, 0).sizes() == {"train": 1, "val": 1, "test": 1}


@pytest.mark.parametrize(
    "fractions", [(0.8, 0.1), (0.8, 0.1, 0.2), (1.2, -0.1, -0.1), (0, 0.5, 0.5)]
)
def test_fractions_that_are_no_shares(fractions):
    with pytest.raises(ConfigError, match=r"data\.fractions is .* Give the shares of train, val"):
        random_split(10, fractions, 0)


@given(
    counts=st.lists(st.integers(1, 60), min_size=1, max_size=5).filter(lambda c: sum(c) >= 20),
    seed=st.integers(0, 5),
)
def test_stratified_split(counts, seed):
    labels = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    labels = labels[torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))]
    split = stratified_split(labels, FRACTIONS, seed)
    assert is_partition(split, len(labels))
    assert same(split, stratified_split(labels, FRACTIONS, seed))
    for label, count in enumerate(counts):
        for part, share in zip(("train", "val", "test"), FRACTIONS, strict=True):
            found = int((labels[split.part(part)] == label).sum())
            assert abs(found - share * count) <= 2


def test_stratified_split_keeps_rare_labels_in_every_part():
    labels = torch.tensor([1.0] * 20 + [0.0] * 160 + [float("nan")] * 20)
    split = stratified_split(labels, FRACTIONS, 0)
    for part, count in {"train": 16, "val": 2, "test": 2}.items():
        assert int((labels[split.part(part)] == 1).sum()) == count
        assert int(labels[split.part(part)].isnan().sum()) == count


SCAFFOLDS = [*"aaaaaaaaaaaaaaa", *"bbbb", "", *"ccc", "", "d", "e", *"fff", "g"]


@pytest.mark.parametrize(
    "make",
    [
        lambda scaffolds: scaffold_split(scaffolds, FRACTIONS),
        lambda scaffolds: scaffold_balanced_split(scaffolds, FRACTIONS, 3),
    ],
    ids=["scaffold", "scaffold_balanced"],
)
def test_no_scaffold_is_in_two_parts(make):
    split = make(SCAFFOLDS)
    assert is_partition(split, len(SCAFFOLDS))
    parts = [{SCAFFOLDS[k] for k in split.part(name).tolist()} for name in ("train", "val", "test")]
    assert sum(map(len, parts)) == len(set(SCAFFOLDS))
    assert same(split, make(SCAFFOLDS))


def test_scaffold_split_takes_large_groups_first():
    split = scaffold_split(SCAFFOLDS, FRACTIONS)
    # Of 30 records 24 go to train: a (15), b (4), then f before c, of equal size; then "" (2).
    train = Counter(SCAFFOLDS[k] for k in split.train.tolist())
    assert train == {"a": 15, "b": 4, "f": 3, "": 2}
    assert [SCAFFOLDS[k] for k in split.val.tolist()] == ["c", "c", "c"]
    assert sorted(SCAFFOLDS[k] for k in split.test.tolist()) == ["d", "e", "g"]


def test_a_random_split_keeps_groups_together():
    split = random_split(len(SCAFFOLDS), FRACTIONS, 3, SCAFFOLDS)
    assert split.method == "random"
    same_parts = scaffold_balanced_split(SCAFFOLDS, FRACTIONS, 3)
    assert torch.equal(split.train, same_parts.train)
    assert torch.equal(split.test, same_parts.test)
    alone = random_split(30, FRACTIONS, 3, list(range(30)))
    assert alone.sizes() == {"train": 24, "val": 3, "test": 3}


def test_given_split():
    split = given_split(["test", "train", "val"], [2, 5, 3], FRACTIONS, 0)
    assert split.train.tolist() == [2, 3, 4, 5, 6]
    assert split.val.tolist() == [7, 8, 9]
    assert split.test.tolist() == [0, 1]
    assert split.notes == ()


def test_given_split_without_val_takes_a_share_of_train():
    split = given_split(["train", "test"], [90, 10], FRACTIONS, 0)
    assert is_partition(split, 100)
    assert split.sizes() == {"train": 80, "val": 10, "test": 10}
    assert split.notes[0].startswith("The source gives no val part: 10 of its 90 training records")


def test_given_split_without_test_says_so():
    split = given_split(["train", "val"], [9, 1], FRACTIONS, 0)
    assert split.sizes() == {"train": 9, "val": 1, "test": 0}
    assert split.notes == ("The source gives no test part, so there are no test metrics.",)


@pytest.mark.parametrize(
    ("parts", "given_parts"), [(["val", "test"], "val, test"), ([None], "none")]
)
def test_given_split_needs_a_train_part(parts, given_parts):
    with pytest.raises(DataError, match=rf"needs files for train, but .* are: {given_parts}\. Use"):
        given_split(parts, [10] * len(parts), FRACTIONS, 0)


def test_too_few_records():
    with pytest.raises(DataError, match=r"data\.split=random leaves no record for train \(2 rec"):
        random_split(2, FRACTIONS, 0)
