"""The features of the Open Graph Benchmark, as integer codes."""

from __future__ import annotations

from operator import attrgetter

from rdkit.Chem.rdchem import BondStereo, BondType, ChiralType, HybridizationType

from graphfold.datasets.molecules.features.coded_property import CodedProperty
from graphfold.datasets.molecules.features.feature_set import FeatureSet

_H = HybridizationType
_TAGS = (
    ChiralType.CHI_UNSPECIFIED,
    ChiralType.CHI_TETRAHEDRAL_CW,
    ChiralType.CHI_TETRAHEDRAL_CCW,
    ChiralType.CHI_OTHER,
)
_STEREO = (
    BondStereo.STEREONONE,
    BondStereo.STEREOZ,
    BondStereo.STEREOE,
    BondStereo.STEREOCIS,
    BondStereo.STEREOTRANS,
    BondStereo.STEREOANY,
)

#: 9 codes of an atom and 3 of a bond: Hu et al. (2020), https://arxiv.org/abs/2005.00687, after the
#: lists of `ogb/utils/features.py`; the last code of a list is that of all other values. Chirality
#: is RDKit's tag, which depends on the order in which the atoms are written. Difference: `ogb`
#: refuses a stereo of bonds that is not in its list.
OGB = FeatureSet(
    "ogb",
    (
        CodedProperty("element", attrgetter("element"), range(1, 119)),
        CodedProperty("chirality", attrgetter("chiral_tag"), _TAGS),
        CodedProperty("degree", attrgetter("degree"), range(11)),
        CodedProperty("charge", attrgetter("charge"), range(-5, 6)),
        CodedProperty("hydrogens", attrgetter("hydrogens"), range(9)),
        CodedProperty("radicals", attrgetter("radicals"), range(5)),
        CodedProperty(
            "hybridization", attrgetter("hybridization"), (_H.SP, _H.SP2, _H.SP3, _H.SP3D, _H.SP3D2)
        ),
        CodedProperty("aromatic", attrgetter("aromatic"), (False, True), has_other=False),
        CodedProperty("in_ring", attrgetter("in_ring"), (False, True), has_other=False),
    ),
    (
        CodedProperty(
            "order",
            attrgetter("order"),
            (BondType.SINGLE, BondType.DOUBLE, BondType.TRIPLE, BondType.AROMATIC),
        ),
        CodedProperty("stereo", attrgetter("stereo"), _STEREO),
        CodedProperty("conjugated", attrgetter("conjugated"), (False, True), has_other=False),
    ),
)
