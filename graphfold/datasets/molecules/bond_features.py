"""Bond features, as integer codes."""

from __future__ import annotations

from rdkit.Chem.rdchem import Bond, BondStereo, BondType

from graphfold.datasets.molecules.coded_property import CodedProperty


def _stereo(bond: Bond) -> str:
    stereo = bond.GetStereo()
    if stereo in _STEREO:
        return _STEREO[stereo]
    label: str = bond.GetProp("_CIPCode") if bond.HasProp("_CIPCode") else "unlabelled"
    return label


_STEREO = {BondStereo.STEREONONE: "none", BondStereo.STEREOE: "E", BondStereo.STEREOZ: "Z"}

#: The features of a bond, after those of the Open Graph Benchmark (see `ATOM_FEATURES`), and
#: whether it is in a ring. Both directions of a bond have the same features.
#:
#: - `order`: single, double, triple, aromatic, dative. Other: quadruple, unspecified (`~`) ...
#: - `stereo`: none, E, Z. Other: marked as unknown, or not a double bond.
#: - `conjugated`, `in_ring`: 0 no, 1 yes.
BOND_FEATURES = (
    CodedProperty(
        "order",
        Bond.GetBondType,
        (BondType.SINGLE, BondType.DOUBLE, BondType.TRIPLE, BondType.AROMATIC, BondType.DATIVE),
    ),
    CodedProperty("stereo", _stereo, ("none", "E", "Z")),
    CodedProperty("conjugated", Bond.GetIsConjugated, (False, True), has_other=False),
    CodedProperty("in_ring", Bond.IsInRing, (False, True), has_other=False),
)
