"""FeatureSet: which features atoms and bonds have, under a name."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol

from graphfold.dag import Column
from graphfold.datasets.molecules.features.facts import AtomFacts, BondFacts


class Feature(Protocol):
    """One feature column and its value for one atom or bond."""

    @property
    def column(self) -> Column:
        """The column: a code, a number, or several numbers side by side."""

    def value(self, facts: Any) -> Any:
        """The value out of `AtomFacts` or `BondFacts`: a number, or a tuple of the row's shape."""


@dataclass(frozen=True)
class FeatureSet:
    """The features of atoms and bonds; what a name stands for never changes.

    Args:
        name: its name.
        atom: the features of an atom.
        bond: the features of a bond, the same in both directions.
        labels: whether some feature is made of CIP labels, which take time to find.
        taken: names of targets of atoms or bonds; a feature NAME is NAME_feature beside such a one.
    """

    name: str
    atom: tuple[Feature, ...]
    bond: tuple[Feature, ...]
    labels: bool = False
    taken: frozenset[str] = frozenset()

    @property
    def atom_columns(self) -> tuple[Column, ...]:
        """The feature columns of an atom."""
        return tuple(map(self._column, self.atom))

    @property
    def bond_columns(self) -> tuple[Column, ...]:
        """The feature columns of a bond."""
        return tuple(map(self._column, self.bond))

    def _column(self, feature: Feature) -> Column:
        column = feature.column
        is_taken = column.name in self.taken
        return replace(column, name=f"{column.name}_feature") if is_taken else column

    def atom_row(self, facts: AtomFacts) -> tuple[Any, ...]:
        """The value of each feature of an atom."""
        return tuple([feature.value(facts) for feature in self.atom])

    def bond_row(self, facts: BondFacts) -> tuple[Any, ...]:
        """The value of each feature of a bond."""
        return tuple([feature.value(facts) for feature in self.bond])
