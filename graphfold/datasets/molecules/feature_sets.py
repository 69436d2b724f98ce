"""graphfold's own feature sets; what a name stands for never changes."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from functools import partial
from operator import attrgetter

from rdkit import Chem
from rdkit.Chem.rdchem import Atom, BondStereo, BondType, ChiralType, HybridizationType

from graphfold.datasets.molecules import features
from graphfold.datasets.molecules.facts import AtomFacts, BondFacts
from graphfold.datasets.molecules.features import Feature, FeatureSet

codes = partial(features.codes, of="facts")
one_hot = partial(features.one_hot, of="facts")
flag = partial(features.flag, of="facts")
number = partial(features.number, of="facts")


def chirality(atom: AtomFacts) -> str | None:
    """The CIP label of a stereo centre, None if it has none; "none" for any other atom."""
    return atom.label if atom.chiral_tag else "none"


def isotope(atom: AtomFacts) -> Hashable:
    """The mass number less that of the most common isotope; "natural" if none is given."""
    if not atom.isotope:
        return "natural"
    return atom.isotope - Chem.GetPeriodicTable().GetMostCommonIsotope(atom.element)


_STEREO: dict[int, str] = {
    BondStereo.STEREONONE: "none",
    BondStereo.STEREOE: "E",
    BondStereo.STEREOZ: "Z",
}


def double_bond_stereo(bond: BondFacts) -> str | None:
    """The configuration of a double bond: none, E, Z, or its CIP label."""
    return _STEREO.get(bond.stereo, bond.label)


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
        codes("element", attrgetter("element"), range(119)),
        codes("chirality", chirality, ("none", "R", "S", "r", "s")),
        codes("degree", attrgetter("degree"), range(11)),
        codes("charge", attrgetter("charge"), range(-5, 6)),
        codes("hydrogens", attrgetter("hydrogens"), range(9)),
        codes("radicals", attrgetter("radicals"), range(5)),
        codes(
            "hybridization",
            attrgetter("hybridization"),
            (_H.UNSPECIFIED, _H.S, _H.SP, _H.SP2, _H.SP3, _H.SP2D, _H.SP3D, _H.SP3D2),
        ),
        codes("aromatic", attrgetter("aromatic"), _NO_YES, has_other=False),
        codes("in_ring", attrgetter("in_ring"), _NO_YES, has_other=False),
        codes("isotope", isotope, ("natural", *range(-8, 9))),
    ),
    bond=(
        codes("order", attrgetter("order"), (*_ORDERS, BondType.DATIVE)),
        codes("stereo", double_bond_stereo, ("none", "E", "Z")),
        codes("conjugated", attrgetter("conjugated"), _NO_YES, has_other=False),
        codes("in_ring", attrgetter("in_ring"), _NO_YES, has_other=False),
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
        codes("element", attrgetter("element"), range(1, 119)),
        codes(
            "chirality",
            attrgetter("chiral_tag"),
            (
                ChiralType.CHI_UNSPECIFIED,
                ChiralType.CHI_TETRAHEDRAL_CW,
                ChiralType.CHI_TETRAHEDRAL_CCW,
                ChiralType.CHI_OTHER,
            ),
        ),
        codes("degree", attrgetter("degree"), range(11)),
        codes("charge", attrgetter("charge"), range(-5, 6)),
        codes("hydrogens", attrgetter("hydrogens"), range(9)),
        codes("radicals", attrgetter("radicals"), range(5)),
        codes(
            "hybridization", attrgetter("hybridization"), (_H.SP, _H.SP2, _H.SP3, _H.SP3D, _H.SP3D2)
        ),
        codes("aromatic", attrgetter("aromatic"), _NO_YES, has_other=False),
        codes("in_ring", attrgetter("in_ring"), _NO_YES, has_other=False),
    ),
    bond=(
        codes("order", attrgetter("order"), _ORDERS),
        codes(
            "stereo",
            attrgetter("stereo"),
            (
                BondStereo.STEREONONE,
                BondStereo.STEREOZ,
                BondStereo.STEREOE,
                BondStereo.STEREOCIS,
                BondStereo.STEREOTRANS,
                BondStereo.STEREOANY,
            ),
        ),
        codes("conjugated", attrgetter("conjugated"), _NO_YES, has_other=False),
    ),
)


def hundredth_of_mass(facts: AtomFacts) -> float:
    """A hundredth of the mass of an atom, of its isotope where one is given, in dalton."""
    atom = Atom(facts.element)
    atom.SetIsotope(facts.isotope)
    return 0.01 * float(atom.GetMass())


def no_bond(bond: BondFacts) -> bool:
    """0 for every bond: the place that chemprop sets where there is no bond."""
    return False


def _chemprop(elements: Iterable[int], hybridizations: Iterable[Hashable]) -> FeatureSet:
    atom: tuple[Feature, ...] = (
        one_hot("element", attrgetter("element"), elements),
        one_hot("degree", attrgetter("degree"), range(6)),
        one_hot("charge", attrgetter("charge"), (-1, -2, 1, 2, 0)),
        one_hot("chiral_tag", attrgetter("chiral_tag"), range(4)),
        one_hot("hydrogens", attrgetter("hydrogens"), range(5)),
        one_hot("hybridization", attrgetter("hybridization"), hybridizations),
        flag("aromatic", attrgetter("aromatic")),
        number("mass", hundredth_of_mass, unit="100 Da"),
    )
    bond = (
        flag("no_bond", no_bond),
        one_hot("order", attrgetter("order"), _ORDERS, has_other=False),
        flag("conjugated", attrgetter("conjugated")),
        flag("in_ring", attrgetter("in_ring")),
        one_hot("stereo", attrgetter("stereo"), range(6)),
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
