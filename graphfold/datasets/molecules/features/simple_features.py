"""The fewest features that tell molecules apart, as integer codes."""

from __future__ import annotations

from graphfold.datasets.molecules.features.atom_features import ATOM_FEATURES
from graphfold.datasets.molecules.features.bond_features import BOND_FEATURES
from graphfold.datasets.molecules.features.feature_set import FeatureSet

_SIMPLE = ("element", "degree", "charge", "hydrogens", "aromatic")

#: What a structural formula without wedges shows: element, degree, charge, hydrogens, aromaticity;
#: the order of a bond. Each is coded as in the set `graphfold`.
SIMPLE = FeatureSet(
    "simple",
    tuple(feature for feature in ATOM_FEATURES if feature.name in _SIMPLE),
    tuple(feature for feature in BOND_FEATURES if feature.name == "order"),
)
