"""Atom features: the field's standard set, as integer codes."""

from __future__ import annotations

from collections.abc import Hashable
from operator import attrgetter

from rdkit import Chem
from rdkit.Chem.rdchem import HybridizationType

from graphfold.datasets.molecules.features.coded_property import CodedProperty
from graphfold.datasets.molecules.features.facts import AtomFacts


def _chirality(atom: AtomFacts) -> str | None:
    return atom.label if atom.chiral_tag else "none"


def _isotope(atom: AtomFacts) -> Hashable:
    if not atom.isotope:
        return "natural"
    return atom.isotope - Chem.GetPeriodicTable().GetMostCommonIsotope(atom.element)


_HYBRIDS = HybridizationType

#: The features of an atom, after those of the Open Graph Benchmark (Hu et al. 2020,
#: https://arxiv.org/abs/2005.00687, `ogb/utils/features.py`). Differences: chirality is the CIP
#: label, since RDKit's own tag (clockwise or not) depends on the order in which the atoms are
#: written; hybridisation knows unspecified (wildcards), s and sp2d; isotopes are told apart.
#: Each value is coded by its place in the list, and any value outside the list by the last code.
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
ATOM_FEATURES = (
    CodedProperty("element", attrgetter("element"), range(119)),
    CodedProperty("chirality", _chirality, ("none", "R", "S", "r", "s")),
    CodedProperty("degree", attrgetter("degree"), range(11)),
    CodedProperty("charge", attrgetter("charge"), range(-5, 6)),
    CodedProperty("hydrogens", attrgetter("hydrogens"), range(9)),
    CodedProperty("radicals", attrgetter("radicals"), range(5)),
    CodedProperty(
        "hybridization",
        attrgetter("hybridization"),
        (
            _HYBRIDS.UNSPECIFIED,
            _HYBRIDS.S,
            _HYBRIDS.SP,
            _HYBRIDS.SP2,
            _HYBRIDS.SP3,
            _HYBRIDS.SP2D,
            _HYBRIDS.SP3D,
            _HYBRIDS.SP3D2,
        ),
    ),
    CodedProperty("aromatic", attrgetter("aromatic"), (False, True), has_other=False),
    CodedProperty("in_ring", attrgetter("in_ring"), (False, True), has_other=False),
    CodedProperty("isotope", _isotope, ("natural", *range(-8, 9))),
)
