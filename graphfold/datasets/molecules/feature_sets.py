"""The feature sets of graphfold; the features behind a name never change."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import replace

from rdkit import Chem
from rdkit.Chem.rdchem import Atom, Bond, BondStereo, BondType, ChiralType, HybridizationType

from graphfold.datasets.molecules.atom_features import (
    Feature,
    FeatureSet,
    codes,
    flag,
    number,
    one_hot,
)
from graphfold.datasets.molecules.molecule import cip_label


def chirality(atom: Atom) -> str | None:
    """The CIP label of a stereo centre, None if it has none; "none" for any other atom."""
    return cip_label(atom) if atom.GetChiralTag() else "none"


def isotope(atom: Atom) -> Hashable:
    """The mass number minus the most common isotope's; "natural" for an unmarked atom."""
    mass = atom.GetIsotope()
    if not mass:
        return "natural"
    return mass - Chem.GetPeriodicTable().GetMostCommonIsotope(atom.GetAtomicNum())


_STEREO: dict[int, str] = {
    BondStereo.STEREONONE: "none",
    BondStereo.STEREOE: "E",
    BondStereo.STEREOZ: "Z",
}


def double_bond_stereo(bond: Bond) -> str | None:
    """The configuration of a double bond: none, E, Z, or its CIP label."""
    stereo = bond.GetStereo()
    return _STEREO[stereo] if stereo in _STEREO else cip_label(bond)


_H = HybridizationType
_ORDERS = (BondType.SINGLE, BondType.DOUBLE, BondType.TRIPLE, BondType.AROMATIC)
_NO_YES = (False, True)

#: The features of an atom are after those of the Open Graph Benchmark (Hu et al. 2020,
#: https://arxiv.org/abs/2005.00687, `ogb/utils/features.py`). Differences: chirality is the CIP
#: label, since RDKit's own tag (clockwise or not) depends on the order in which the atoms are
#: written; hybridisation knows unspecified (wildcards), s and sp2d; isotopes are told apart; a bond
#: says whether it is in a ring. Each value is coded by its place in the list, and any value outside
#: the list by the last code. Of an atom:
#:
#: - `element`: atomic number; 0 is a wildcard.
#: - `chirality`: none; R or S; r or s (pseudo-asymmetric, such as cis and trans in a ring).
#:   Other: a centre without a label, such as an octahedral one.
#: - `degree`: neighbours, hydrogens included.
#: - `charge`: formal charge, in elementary charges.
#: - `hydrogens`: hydrogens that are not atoms of the graph.
#: - `radicals`: unpaired electrons.
#: - `hybridization`: of the orbitals.
#: - `aromatic`, `in_ring`: 0 no, 1 yes.
#: - `isotope`: natural; else the mass number less that of the element's most common isotope, from
#:   -8 to 8.
#:
#: Of a bond, the same in both directions:
#:
#: - `order`: single, double, triple, aromatic, dative. Other: quadruple, unspecified (`~`) ...
#: - `stereo`: none, E, Z. Other: marked as unknown, or not a double bond.
#: - `conjugated`, `in_ring`: 0 no, 1 yes.
GRAPHFOLD = FeatureSet(
    atom=(
        codes("element", Atom.GetAtomicNum, range(119)),
        codes("chirality", chirality, ("none", "R", "S", "r", "s")),
        codes("degree", Atom.GetTotalDegree, range(11)),
        codes("charge", Atom.GetFormalCharge, range(-5, 6)),
        codes("hydrogens", Atom.GetTotalNumHs, range(9)),
        codes("radicals", Atom.GetNumRadicalElectrons, range(5)),
        codes(
            "hybridization",
            Atom.GetHybridization,
            (_H.UNSPECIFIED, _H.S, _H.SP, _H.SP2, _H.SP3, _H.SP2D, _H.SP3D, _H.SP3D2),
        ),
        codes("aromatic", Atom.GetIsAromatic, _NO_YES, has_other=False),
        codes("in_ring", Atom.IsInRing, _NO_YES, has_other=False),
        codes("isotope", isotope, ("natural", *range(-8, 9))),
    ),
    bond=(
        codes("order", Bond.GetBondType, (*_ORDERS, BondType.DATIVE)),
        codes("stereo", double_bond_stereo, ("none", "E", "Z")),
        codes("conjugated", Bond.GetIsConjugated, _NO_YES, has_other=False),
        codes("in_ring", Bond.IsInRing, _NO_YES, has_other=False),
    ),
    labels=True,
)

_SIMPLE = ("element", "degree", "charge", "hydrogens", "aromatic")

#: What a structural formula without wedges shows: element, degree, charge, hydrogens, aromaticity;
#: the order of a bond. Each is coded as in `GRAPHFOLD`.
SIMPLE = FeatureSet(
    atom=tuple(feature for feature in GRAPHFOLD.atom if feature.column.name in _SIMPLE),
    bond=tuple(feature for feature in GRAPHFOLD.bond if feature.column.name == "order"),
)

#: 9 codes of an atom and 3 of a bond: Hu et al. (2020), https://arxiv.org/abs/2005.00687, after the
#: lists of `ogb/utils/features.py`; the last code of a list is that of all other values. Chirality
#: is RDKit's tag, which depends on the order in which the atoms are written. Difference: `ogb`
#: refuses a stereo of bonds that is not in its list.
OGB = FeatureSet(
    atom=(
        codes("element", Atom.GetAtomicNum, range(1, 119)),
        codes(
            "chirality",
            Atom.GetChiralTag,
            (
                ChiralType.CHI_UNSPECIFIED,
                ChiralType.CHI_TETRAHEDRAL_CW,
                ChiralType.CHI_TETRAHEDRAL_CCW,
                ChiralType.CHI_OTHER,
            ),
        ),
        codes("degree", Atom.GetTotalDegree, range(11)),
        codes("charge", Atom.GetFormalCharge, range(-5, 6)),
        codes("hydrogens", Atom.GetTotalNumHs, range(9)),
        codes("radicals", Atom.GetNumRadicalElectrons, range(5)),
        codes("hybridization", Atom.GetHybridization, (_H.SP, _H.SP2, _H.SP3, _H.SP3D, _H.SP3D2)),
        codes("aromatic", Atom.GetIsAromatic, _NO_YES, has_other=False),
        codes("in_ring", Atom.IsInRing, _NO_YES, has_other=False),
    ),
    bond=(
        codes("order", Bond.GetBondType, _ORDERS),
        codes(
            "stereo",
            Bond.GetStereo,
            (
                BondStereo.STEREONONE,
                BondStereo.STEREOZ,
                BondStereo.STEREOE,
                BondStereo.STEREOCIS,
                BondStereo.STEREOTRANS,
                BondStereo.STEREOANY,
            ),
        ),
        codes("conjugated", Bond.GetIsConjugated, _NO_YES, has_other=False),
    ),
)


def hundredth_of_mass(atom: Atom) -> float:
    """A hundredth of the mass of an atom (of its isotope, if marked), in dalton."""
    return 0.01 * float(atom.GetMass())


def no_bond(bond: Bond) -> bool:
    """0 for every bond; the bond that one side of a reaction lacks has 1."""
    return False


def _chemprop(elements: Iterable[int], hybridizations: Iterable[Hashable]) -> FeatureSet:
    atom: tuple[Feature, ...] = (
        one_hot("element", Atom.GetAtomicNum, elements),
        one_hot("degree", Atom.GetTotalDegree, range(6)),
        one_hot("charge", Atom.GetFormalCharge, (-1, -2, 1, 2, 0)),
        one_hot("chiral_tag", Atom.GetChiralTag, range(4)),
        one_hot("hydrogens", Atom.GetTotalNumHs, range(5)),
        one_hot("hybridization", Atom.GetHybridization, hybridizations),
        flag("aromatic", Atom.GetIsAromatic),
        number("mass", hundredth_of_mass, unit="100 Da"),
    )
    bond = (
        replace(flag("no_bond", no_bond), absent=1),
        one_hot("order", Bond.GetBondType, _ORDERS, has_other=False),
        flag("conjugated", Bond.GetIsConjugated),
        flag("in_ring", Bond.IsInRing),
        one_hot("stereo", Bond.GetStereo, range(6)),
    )
    return FeatureSet(atom, bond)


#: The default of chemprop 2 (Heid et al. 2024, https://doi.org/10.1021/acs.jcim.3c01250): side by
#: side, its 72 numbers of an atom and 14 of a bond. Chirality is RDKit's tag, which depends on the
#: order in which the atoms are written.
CHEMPROP_V2 = _chemprop(
    (*range(1, 37), 53), (_H.S, _H.SP, _H.SP2, _H.SP2D, _H.SP3, _H.SP3D, _H.SP3D2)
)

#: That of chemprop 1 (Yang et al. 2019, https://arxiv.org/abs/1904.01561): 133 numbers of an atom.
CHEMPROP_V1 = _chemprop(range(1, 101), (_H.SP, _H.SP2, _H.SP3, _H.SP3D, _H.SP3D2))
