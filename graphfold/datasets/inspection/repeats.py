"""Records that are the same molecule, and those that a split puts on both sides."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

from graphfold.dag import TypedDAG
from graphfold.datasets.inspection.graph_hash import hash_graphs
from graphfold.datasets.splits.split import Split
from graphfold.errors import count_of, shortened

#: How many molecules a message names.
_SHOWN = 3


def repeated_molecules(dag: TypedDAG) -> list[list[int]]:
    """The records of each molecule that more than one record holds.

    Molecules are the same if their canonical SMILES are. These take long, so they are made only
    where graphs have the same hash: a molecule has one, however it is written.

    Args:
        dag: the records, as read; graphs that are no molecules give nothing.

    Returns:
        Increasing record numbers, two or more in each list.
    """
    if ("graph", "smiles") not in dag.dictionaries:
        return []
    from graphfold.datasets.molecules.molecule import canonical_smiles

    smiles = dag.strings("graph", "smiles")
    alike = _groups(hash_graphs(dag).tolist(), range(dag.num_graphs))
    return [
        same
        for records in alike
        for same in _groups(canonical_smiles([smiles[k] or "" for k in records]), records)
    ]


def describe_leak(dag: TypedDAG, split: Split) -> str | None:
    """Counts and names the molecules that are in train and in val or test as well.

    Args:
        dag: the records, as read.
        split: of the records.

    Returns:
        A message, or None if there are none.
    """
    train = set(split.train.tolist())
    repeated = repeated_molecules(dag)
    shared = [same for same in repeated if 0 < len(train.intersection(same)) < len(same)]
    if not shared:
        return None
    smiles = dag.strings("graph", "smiles")
    names = ", ".join(shortened(smiles[same[0]] or "") for same in shared[:_SHOWN])
    more = f" and {len(shared) - _SHOWN} more" if len(shared) > _SHOWN else ""
    held_out = sum(len(set(same) - train) for same in shared)
    return (
        f"{count_of(held_out, 'record')} of val or test hold molecules that train has too, so "
        f"scores flatter the model: {names}{more}. Keep the records of a molecule together with "
        "data.groups=molecule, or make the files anew where they are the split."
    )


def _groups(keys: Sequence[Hashable], records: Iterable[int]) -> list[list[int]]:
    """The records of each key that several have."""
    found: dict[Hashable, list[int]] = {}
    for key, record in zip(keys, records, strict=True):
        found.setdefault(key, []).append(record)
    return [same for same in found.values() if len(same) > 1]
