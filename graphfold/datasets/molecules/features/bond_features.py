"""Bond features, as integer codes."""

from __future__ import annotations

from operator import attrgetter

from rdkit.Chem.rdchem import BondStereo, BondType

from graphfold.datasets.molecules.features.coded_property import CodedProperty
from graphfold.datasets.molecules.features.facts import BondFacts


def _stereo(bond: BondFacts) -> str | None:
    return _STEREO.get(bond.stereo, bond.label)


_STEREO: dict[int, str] = {
    BondStereo.STEREONONE: "none",
    BondStereo.STEREOE: "E",
    BondStereo.STEREOZ: "Z",
}

#: The features of a bond, after those of the Open Graph Benchmark (see `ATOM_FEATURES`), and
#: whether it is in a ring. Both directions of a bond have the same features.
#:
#: - `order`: single, double, triple, aromatic, dative. Other: quadruple, unspecified (`~`) ...
#: - `stereo`: none, E, Z. Other: marked as unknown, or not a double bond.
#: - `conjugated`, `in_ring`: 0 no, 1 yes.
BOND_FEATURES = (
    CodedProperty(
        "order",
        attrgetter("order"),
        (BondType.SINGLE, BondType.DOUBLE, BondType.TRIPLE, BondType.AROMATIC, BondType.DATIVE),
    ),
    CodedProperty("stereo", _stereo, ("none", "E", "Z")),
    CodedProperty("conjugated", attrgetter("conjugated"), (False, True), has_other=False),
    CodedProperty("in_ring", attrgetter("in_ring"), (False, True), has_other=False),
)
