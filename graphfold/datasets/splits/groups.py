"""Groups of records that a split keeps in one part: by name, a key for each record."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TypeAlias

from graphfold.dag import TypedDAG
from graphfold.errors import ConfigError, did_you_mean

#: [num_records] records with equal keys are one group.
Keys: TypeAlias = Sequence[Hashable]

#: Every record by itself.
NONE = "none"


def molecule_groups(dag: TypedDAG) -> list[int]:
    """Records of the same molecule, by its canonical SMILES."""
    _smiles(dag, "data.groups=molecule")
    from graphfold.datasets.inspection.repeats import repeated_molecules

    keys = list(range(dag.num_graphs))
    for same in repeated_molecules(dag):
        for record in same:
            keys[record] = same[0]
    return keys


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


def check_groups(name: str) -> None:
    """Raises ConfigError with the nearest name if `name` is no way to group."""
    names = (NONE, *GROUPINGS)
    if name not in names:
        raise ConfigError(
            f"data.groups is '{name}'.{did_you_mean(name, names)} Use one of {', '.join(names)}."
        )


def group_keys(dag: TypedDAG, name: str) -> Keys | None:
    """The key of each record; None for no groups.

    Raises:
        ConfigError: if the graphs are no molecules: they lack the string `smiles`.
    """
    return None if name == NONE else GROUPINGS[name](dag)


def members(keys: Keys) -> list[list[int]]:
    """The positions of each key, in order of first occurrence."""
    groups: dict[Hashable, list[int]] = {}
    for index, key in enumerate(keys):
        groups.setdefault(key, []).append(index)
    return list(groups.values())


def _smiles(dag: TypedDAG, what: str) -> list[str]:
    if ("graph", "smiles") not in dag.dictionaries:
        raise ConfigError(
            f"{what} needs molecules with a SMILES. Use data.split=random, stratified or kfold, "
            "with data.groups=none."
        )
    return [smiles or "" for smiles in dag.strings("graph", "smiles")]
