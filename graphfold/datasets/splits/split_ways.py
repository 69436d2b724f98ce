"""Functions that split records: at random, by label, by scaffold or cluster, as given.

Records with equal keys are a group, which is not divided.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
from torch import Tensor

from graphfold.dag import TypedDAG
from graphfold.datasets.corpora.corpus import PARTS
from graphfold.datasets.inspection.graph_hash import has_molecules, molecule_keys, molecule_smiles
from graphfold.datasets.splits.split import Split
from graphfold.errors import ConfigError, DataError

#: [num_records] records with equal keys are one group.
Keys: TypeAlias = Sequence[Hashable]

#: The option for no groups.
NONE = "none"


def molecule_groups(dag: TypedDAG) -> list[int]:
    """Records of the same molecule, by its canonical SMILES."""
    first: dict[str, int] = {}
    return [first.setdefault(key, record) for record, key in enumerate(canonical_keys(dag))]


def canonical_keys(dag: TypedDAG) -> list[str]:
    """The molecule of each record, see `molecule_keys`."""
    _smiles(dag, "data.groups=molecule")
    return molecule_keys(dag)


def scaffold_groups(dag: TypedDAG) -> list[str]:
    """Molecules with the same Bemis-Murcko scaffold."""
    smiles = _smiles(dag, "a scaffold split")
    from graphfold.datasets.molecules.structure_splits import murcko_scaffolds

    return murcko_scaffolds(smiles)


def butina_groups(dag: TypedDAG) -> list[int]:
    """Similar molecules: Butina clusters of Morgan fingerprints."""
    smiles = _smiles(dag, "a split by Butina clusters")
    from graphfold.datasets.molecules.structure_splits import butina_clusters

    return butina_clusters(smiles)


#: The groups by name.
GROUPINGS: Mapping[str, Callable[[TypedDAG], Keys]] = {
    "molecule": molecule_groups,
    "scaffold": scaffold_groups,
    "butina": butina_groups,
}


def group_keys(dag: TypedDAG, name: str) -> Keys | None:
    """The key of each record; None for no groups.

    Raises:
        ConfigError: if the graphs are no molecules, so that they lack the string `smiles`.
    """
    return None if name == NONE else GROUPINGS[name](dag)


def members(keys: Keys) -> list[list[int]]:
    """The positions of each key, in order of first occurrence."""
    groups: dict[Hashable, list[int]] = {}
    for index, key in enumerate(keys):
        groups.setdefault(key, []).append(index)
    return list(groups.values())


def _smiles(dag: TypedDAG, what: str) -> list[str]:
    if not has_molecules(dag):
        raise ConfigError(
            f"{what} needs molecules with a SMILES. Use data.split=random, stratified or kfold, "
            "with data.groups=none."
        )
    return molecule_smiles(dag)


Fractions = Sequence[float]


def random_split(
    num_records: int, fractions: Fractions, seed: int, groups: Keys | None = None
) -> Split:
    """Records drawn at random, or groups of them, as in `scaffold_balanced_split`.

    Args:
        num_records: how many there are.
        fractions: the shares of train, val and test; their sum is 1.
        seed: the same seed gives the same split.
        groups: [num_records] keys; records with equal ones are in one part.

    Raises:
        ConfigError: if the fractions are no shares of a whole.
        DataError: if a part with a positive share would be empty.
    """
    if groups is not None:
        return _balanced(groups, fractions, seed, "random")
    order = np.random.default_rng(seed).permutation(num_records)
    return _cut(order, fractions, "random")


def stratified_split(labels: Tensor, fractions: Fractions, seed: int) -> Split:
    """Records drawn at random such that each label has its share in every part.

    Args:
        labels: [num_records] one label each; a missing one (NaN, -1) counts as a label.
        fractions: the shares of train, val and test; their sum is 1.
        seed: the same seed gives the same split.

    Raises:
        ConfigError: if the fractions are no shares of a whole.
        DataError: if a part with a positive share would be empty.
    """
    _, codes = np.unique(labels.numpy(), return_inverse=True)
    order = np.random.default_rng(seed).permutation(len(codes))
    order = order[np.argsort(codes[order], kind="stable")]  # label by label, shuffled within
    _, val, test = check_fractions(fractions)
    # Every 1/share-th record of a label is held out, so rounding errors do not add up over labels.
    is_held_out = _every(np.ones(len(order), dtype=bool), val + test)
    is_test = _every(is_held_out, test / (val + test) if val + test else 0.0)
    parts = [order[~is_held_out], order[is_held_out & ~is_test], order[is_test]]
    return _split(parts, fractions, "stratified")


def scaffold_split(scaffolds: Sequence[str], fractions: Fractions) -> Split:
    """Molecules of one scaffold together: the largest groups in train, rare ones in test.

    Groups are taken by size, descending (of equal ones first the one that occurs last, as DeepChem
    does), and go to train while it has room, then to val, then to test (Wu et al. 2018,
    MoleculeNet, https://arxiv.org/abs/1703.00564). Molecules without rings have the empty scaffold
    and form one group.

    Args:
        scaffolds: [num_records] the scaffold of each molecule.
        fractions: the shares of train, val and test; their sum is 1.

    Raises:
        ConfigError: if the fractions are no shares of a whole.
        DataError: if a part with a positive share would be empty.
    """
    return _largest_first(scaffolds, fractions, "scaffold")


def butina_split(clusters: Sequence[int], fractions: Fractions) -> Split:
    """Similar molecules together, Butina clusters: the largest in train, rare ones in test.

    It equals `scaffold_split` with clusters in place of scaffolds; see
    `graphfold.datasets.molecules.structure_splits`.
    """
    return _largest_first(clusters, fractions, "butina")


def scaffold_balanced_split(scaffolds: Sequence[str], fractions: Fractions, seed: int) -> Split:
    """Molecules of one scaffold together, the groups in random order.

    Groups larger than half of val or test come first, so that they are in train (Yang et al. 2019,
    https://arxiv.org/abs/1904.01561, and its program chemprop); difference: of these, groups larger
    than val or test come before the others.
    """
    return _balanced(scaffolds, fractions, seed, "scaffold_balanced")


def given_split(
    parts: Sequence[str | None], counts: Sequence[int], fractions: Fractions, seed: int
) -> Split:
    """The split of the source; without a val part a random share of train becomes val.

    Args:
        parts: the part of each file.
        counts: how many records each file has.
        fractions: val / (train + val) is the share of train that becomes val.
        seed: of that choice.

    Raises:
        DataError: if there is no part to train on.
    """
    part = np.repeat([name or "none" for name in parts], counts)
    train, val, test = (np.flatnonzero(part == name) for name in PARTS)
    if not len(train) or "none" in part:
        present = ", ".join(name for name in PARTS if name in part) or "none"
        raise DataError(
            f"data.split=given needs files for train, but the parts given are: {present}. Use "
            "data.split=random (or stratified, scaffold, scaffold_balanced, butina, kfold), name a "
            "file for train in data.path, or set data.split_column for a table that says train, "
            "val or test.",
        )
    notes = []
    shares = check_fractions(fractions)
    if not len(val) and shares[1]:
        share = shares[1] / (shares[0] + shares[1])
        inner = random_split(len(train), (1 - share, share, 0.0), seed)
        train, val = train[inner.train.numpy()], train[inner.val.numpy()]
        notes.append(
            f"The source gives no val part: {len(val)} of its {len(train) + len(val)} training "
            "records, drawn at random, are val."
        )
    if not len(test):
        notes.append("The source gives no test part, so there are no test metrics.")
    return Split.of_parts([train, val, test], "given", notes)


def check_fractions(fractions: Fractions) -> tuple[float, float, float]:
    """The shares of train, val and test; raises ConfigError unless they are shares of a whole."""
    values = [float(value) for value in fractions]
    if len(values) != 3 or min(values) < 0 or abs(sum(values) - 1) > 1e-6 or values[0] == 0:
        raise ConfigError(
            f"data.fractions is {values}. Give the shares of train, val and test, with the sum 1."
        )
    train, val, test = values
    return train, val, test


def _sizes(num_records: int, fractions: Fractions) -> tuple[int, int, int]:
    """The sizes of the parts; at least one record where a share is positive."""
    train, val, test = check_fractions(fractions)
    # A share such as 0.7 + 0.1 falls a rounding error short of 0.8.
    first = int(train * num_records + 1e-6)
    second = int((train + val) * num_records + 1e-6)
    num_val = max(second - first, int(val > 0))
    num_test = max(num_records - second, int(test > 0))
    return max(num_records - num_val - num_test, 0), num_val, num_test


def _cut(order: np.ndarray, fractions: Fractions, method: str) -> Split:
    train, val, _ = _sizes(len(order), fractions)
    return _split(np.split(order, [train, train + val]), fractions, method)


def _fill(groups: list[list[int]], total: int, fractions: Fractions, method: str) -> Split:
    """Groups in order, each to the first part with room for it; test has room for all."""
    room = list(_sizes(total, fractions))
    parts: list[list[int]] = [[], [], []]
    for group in groups:
        part = next((k for k in (0, 1) if len(group) <= room[k] - len(parts[k])), 2)
        parts[part] += group
    return _split([np.array(part, dtype=np.int64) for part in parts], fractions, method)


def _largest_first(keys: Keys, fractions: Fractions, method: str) -> Split:
    groups = sorted(members(keys), key=lambda group: (len(group), group[0]), reverse=True)
    return _fill(groups, len(keys), fractions, method)


def _balanced(keys: Keys, fractions: Fractions, seed: int, method: str) -> Split:
    groups = members(keys)
    _, val, test = _sizes(len(keys), fractions)
    order = np.random.default_rng(seed).permutation(len(groups))
    shuffled = [groups[index] for index in order]
    room = min(val, test)
    ranked = sorted(shuffled, key=lambda g: (len(g) <= room, len(g) <= room / 2))  # it is stable
    return _fill(ranked, len(keys), fractions, method)


def _split(parts: Sequence[np.ndarray], fractions: Fractions, method: str) -> Split:
    for name, part, share in zip(PARTS, parts, check_fractions(fractions), strict=True):
        if share and not len(part):
            total = sum(len(p) for p in parts)
            raise DataError(
                f"data.split={method} leaves no record for {name} ({total} records, fractions "
                f"{list(fractions)}). Give more records, change data.fractions, or use another "
                "data.split."
            )
    return Split.of_parts(parts, method)


def _every(chosen: np.ndarray, share: float) -> np.ndarray:
    """[n] evenly spaced True, for a `share` of the entries where `chosen` is True."""
    count = np.cumsum(chosen)
    return chosen & (np.floor(count * share + 1e-6) > np.floor((count - 1) * share + 1e-6))
