"""The features of chemprop: one place for each value, and the mass, as numbers."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from operator import attrgetter
from typing import Any

from rdkit.Chem.rdchem import Atom, BondType, HybridizationType

from graphfold.dag import Column
from graphfold.datasets.molecules.features.facts import AtomFacts, BondFacts
from graphfold.datasets.molecules.features.feature_set import FeatureSet


class OneHot:
    """A value as the one 1 among zeros, or as zeros where it is unknown and has no place.

    Args:
        name: the name of the feature column.
        read: takes the value from `AtomFacts` or `BondFacts`.
        values: the values with a place of their own, in order.
        has_other: whether all other values share a last place.
    """

    def __init__(
        self,
        name: str,
        read: Callable[[Any], Hashable],
        values: Iterable[Hashable],
        has_other: bool = True,
    ) -> None:
        self.read = read
        self.place = {value: place for place, value in enumerate(values)}
        size = len(self.place) + has_other
        self.column = Column(name, "bool", (size,))
        self._rows = [tuple(place == one for place in range(size)) for one in range(size)]
        self._unknown = self._rows[-1] if has_other else (False,) * size

    def value(self, facts: Any) -> tuple[bool, ...]:
        """The row of one atom or bond."""
        place = self.place.get(self.read(facts))
        return self._unknown if place is None else self._rows[place]


class Flag:
    """A yes or no as 1 or 0.

    Args:
        name: the name of the feature column.
        read: takes it from `AtomFacts` or `BondFacts`.
    """

    def __init__(self, name: str, read: Callable[[Any], bool]) -> None:
        self.read = read
        self.column = Column(name, "bool")

    def value(self, facts: Any) -> bool:
        """The flag of one atom or bond."""
        return self.read(facts)


class Mass:
    """A hundredth of the mass of an atom, of its isotope where one is given, in dalton."""

    column = Column("mass", "float32", unit="100 Da")

    def value(self, facts: AtomFacts) -> float:
        """The mass of one atom / 100."""
        atom = Atom(facts.element)
        atom.SetIsotope(facts.isotope)
        return 0.01 * float(atom.GetMass())


_H = HybridizationType
_V1_HYBRIDS = (_H.SP, _H.SP2, _H.SP3, _H.SP3D, _H.SP3D2)
_V2_HYBRIDS = (_H.S, _H.SP, _H.SP2, _H.SP2D, _H.SP3, _H.SP3D, _H.SP3D2)


def _atom(elements: Iterable[int], hybrids: Iterable[Hashable]) -> tuple[OneHot | Flag | Mass, ...]:
    return (
        OneHot("element", attrgetter("element"), elements),
        OneHot("degree", attrgetter("degree"), range(6)),
        OneHot("charge", attrgetter("charge"), (-1, -2, 1, 2, 0)),
        OneHot("chiral_tag", attrgetter("chiral_tag"), range(4)),
        OneHot("hydrogens", attrgetter("hydrogens"), range(5)),
        OneHot("hybridization", attrgetter("hybridization"), hybrids),
        Flag("aromatic", attrgetter("aromatic")),
        Mass(),
    )


class NoBond:
    """0 for every bond: the place that chemprop sets where there is no bond."""

    column = Column("no_bond", "bool")

    def value(self, facts: BondFacts) -> bool:
        """0."""
        return False


_ORDERS = (BondType.SINGLE, BondType.DOUBLE, BondType.TRIPLE, BondType.AROMATIC)
_BOND = (
    NoBond(),
    OneHot("order", attrgetter("order"), _ORDERS, has_other=False),
    Flag("conjugated", attrgetter("conjugated")),
    Flag("in_ring", attrgetter("in_ring")),
    OneHot("stereo", attrgetter("stereo"), range(6)),
)

#: The default of chemprop 2 (Heid et al. 2024, https://doi.org/10.1021/acs.jcim.3c01250): side by
#: side, its 72 numbers of an atom and 14 of a bond. Chirality is RDKit's tag, which depends on the
#: order in which the atoms are written.
CHEMPROP_V2 = FeatureSet("chemprop-v2", _atom((*range(1, 37), 53), _V2_HYBRIDS), _BOND)

#: That of chemprop 1 (Yang et al. 2019, https://arxiv.org/abs/1904.01561): 133 numbers of an atom.
CHEMPROP_V1 = FeatureSet("chemprop-v1", _atom(range(1, 101), _V1_HYBRIDS), _BOND)
