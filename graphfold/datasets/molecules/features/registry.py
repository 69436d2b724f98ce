"""The table of feature sets by name."""

from __future__ import annotations

from collections.abc import Mapping

from graphfold.datasets.molecules.features.atom_features import ATOM_FEATURES
from graphfold.datasets.molecules.features.bond_features import BOND_FEATURES
from graphfold.datasets.molecules.features.chemprop_features import CHEMPROP_V1, CHEMPROP_V2
from graphfold.datasets.molecules.features.feature_set import FeatureSet
from graphfold.datasets.molecules.features.ogb_features import OGB
from graphfold.datasets.molecules.features.simple_features import SIMPLE
from graphfold.errors import ConfigError, did_you_mean

GRAPHFOLD = FeatureSet("graphfold", ATOM_FEATURES, BOND_FEATURES, labels=True)

#: All feature sets by name.
FEATURE_SETS: Mapping[str, FeatureSet] = {
    features.name: features for features in (GRAPHFOLD, CHEMPROP_V2, CHEMPROP_V1, OGB, SIMPLE)
}


def find_features(name: str) -> FeatureSet:
    """The feature set called `name`; raises ConfigError with the nearest name if there is none."""
    if name not in FEATURE_SETS:
        raise ConfigError(
            f"there is no feature set '{name}'.{did_you_mean(name, FEATURE_SETS)} Set features to "
            f"one of {', '.join(FEATURE_SETS)}."
        )
    return FEATURE_SETS[name]
