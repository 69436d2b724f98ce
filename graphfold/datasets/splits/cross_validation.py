"""Cross-validation: folds that are each the test part once, and its repetitions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from graphfold.datasets.splits.split import Split
from graphfold.datasets.splits.split_ways import Keys, members
from graphfold.errors import ConfigError, DataError

#: The share of val outside of the test fold, by the usual fractions 0.8, 0.1 and 0.1.
VAL_SHARE = 1 / 9


def kfold_split(
    num_records: int,
    num_folds: int,
    fold: int,
    seed: int,
    groups: Keys | None = None,
    val_share: float = VAL_SHARE,
) -> Split:
    """One split of a cross-validation: a fold is test, a random share of the rest val.

    The folds are disjoint and together hold every record.

    Args:
        num_records: how many there are.
        num_folds: how many folds they make.
        fold: the one to be test, from 0 on.
        seed: the same seed gives the same folds.
        groups: [num_records] keys; records with equal ones are in one fold, and in one part.
        val_share: the share of the records outside of the test fold that is val; 0 for no val part.

    Raises:
        ConfigError: if there are fewer than two folds, or no such fold.
        DataError: if there are fewer records or groups than folds.
    """
    split = repeated_kfold_split(num_records, 1, num_folds, fold, seed, groups, val_share)
    return replace(split, method="kfold")


def repeated_kfold_split(
    num_records: int,
    num_repeats: int,
    num_folds: int,
    fold: int,
    seed: int,
    groups: Keys | None = None,
    val_share: float = VAL_SHARE,
) -> Split:
    """One split of a repeated cross-validation: 5 repetitions of 5 folds by default.

    Repetition `fold // num_folds` has fold `fold % num_folds` as test; the first repetition is that
    of `kfold_split`. Guidelines of the field compare models over such splits (Ash et al. 2025,
    https://doi.org/10.1021/acs.jcim.5c01609).

    Args:
        num_records: how many there are.
        num_repeats: how often the records are divided into folds.
        num_folds: how many folds there are each time.
        fold: from 0 to `num_repeats * num_folds - 1`.
        seed: the same seed gives the same folds.
        groups: [num_records] keys; records with equal ones are in one fold, and in one part.
        val_share: as in `kfold_split`.

    Raises:
        ConfigError: if there is no repetition, fewer than two folds, or no such fold.
        DataError: if there are fewer records or groups than folds.
    """
    if num_repeats < 1:
        raise ConfigError(f"num_repeats is {num_repeats}. Ask for at least 1.")
    if num_folds < 2:
        raise ConfigError(f"num_folds is {num_folds}. Ask for at least 2: one is test.")
    if not 0 <= fold < num_repeats * num_folds:
        most = num_repeats * num_folds - 1
        raise ConfigError(f"fold is {fold}. Give a number from 0 to {most}.")
    repeat, fold = divmod(fold, num_folds)
    folds = _folds(num_records, num_folds, groups, seed, repeat)
    return _split(folds, fold, val_share, seed, groups)


def _folds(
    num_records: int, num_folds: int, groups: Keys | None, seed: int, repeat: int
) -> list[np.ndarray]:
    """The records of each fold, out of the permutation number `repeat` of a seed."""
    together = None if groups is None else members(groups)
    count = num_records if together is None else len(together)
    if count < num_folds:
        what = "records" if together is None else "groups of records"
        raise DataError(f"{count} {what} cannot make {num_folds} folds. Lower data.num_folds.")
    generator = np.random.default_rng(seed)
    order = [generator.permutation(count) for _ in range(repeat + 1)][-1]
    if together is None:
        return np.array_split(order, num_folds)
    return _balanced([together[index] for index in order], num_folds)


def _balanced(groups: Sequence[Sequence[int]], num_folds: int) -> list[np.ndarray]:
    """Groups by size, descending, each to the smallest fold so far; equal ones in their order."""
    folds: list[list[int]] = [[] for _ in range(num_folds)]
    for group in sorted(groups, key=len, reverse=True):
        min(folds, key=len).extend(group)
    return [np.array(fold, dtype=np.int64) for fold in folds]


def _split(
    folds: Sequence[np.ndarray],
    fold: int,
    val_share: float,
    seed: int,
    groups: Keys | None,
) -> Split:
    """The split of one fold; groups of records are not divided."""
    rest = np.sort(np.concatenate([part for number, part in enumerate(folds) if number != fold]))
    keys: Keys = range(len(rest)) if groups is None else [groups[record] for record in rest]
    wanted = max(round(val_share * len(rest)), 1) if val_share else 0
    chosen = _draw(members(keys), wanted, seed)
    val = rest[chosen]
    notes = [
        f"Of the {len(rest)} records outside of fold {fold}, {len(val)} drawn at random are val, "
        f"to choose and calibrate the model by: {val_share:.0%}, as data.fractions says."
    ]
    parts = [np.setdiff1d(rest, val), val, folds[fold]]
    notes = notes if wanted else ["There is no val part."]
    return Split.of_parts(parts, "repeated_kfold", notes)


def _draw(groups: Sequence[Sequence[int]], wanted: int, seed: int) -> list[int]:
    """Whole groups in random order, up to so many records; the smallest one if none fits."""
    chosen: list[int] = []
    for number in np.random.default_rng(seed).permutation(len(groups)):
        if len(chosen) + len(groups[number]) <= wanted:
            chosen += groups[number]
    if not chosen and wanted and len(groups) > 1:
        chosen += sorted(groups, key=len)[0]
    return chosen
