"""Values of string inputs that a model has not learnt: counted, with a warning of many."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass

import torch

from graphfold.dag import TypedDAG
from graphfold.datasets.features.feature_spec import FeatureSpec
from graphfold.datasets.features.vocabulary import UNKNOWN
from graphfold.errors import count_of

#: So much smaller than in training may the share of known values be. New text has new words, and a
#: tenth of them is ordinary; another kind of data lacks whole columns.
ORDINARY_LOSS = 0.2


#: The chance that ordinary data look so bad, above which nothing is said.
CHANCE = 0.01


class UnknownValuesWarning(UserWarning):
    """Says that data are of another kind than those that a model was trained on."""


@dataclass
class _Count:
    values: int = 0
    unknown: int = 0
    records: int = 0  # with an unknown value
    all_records: int = 0


class UnknownValues:
    """Counts, over batches, the values of string inputs that are missing or in no vocabulary.

    A model reads all of them as one and the same unknown value.

    Args:
        spec: the feature spec of the model.
    """

    def __init__(self, spec: FeatureSpec) -> None:
        self.vocabularies = spec.vocabularies
        self._counts = {key: _Count() for key in spec.vocabularies}

    def add(self, encoded: TypedDAG) -> None:
        """Counts the values of some graphs, which `FeatureSpec.encode` made."""
        for (space, name), count in self._counts.items():
            ids = encoded.columns[space][name]
            is_unknown = ids == UNKNOWN
            if ids.dim() > 1:  # a row is one value
                is_unknown = is_unknown.flatten(1).any(1)
            per_record = torch.cat([torch.zeros(1).long(), is_unknown.cumsum(0)])
            per_record = per_record[encoded.row_ptr(space)].diff()
            count.values += len(ids)
            count.unknown += int(is_unknown.sum())
            count.records += int((per_record > 0).sum())
            count.all_records += encoded.num_graphs

    def sentences(self) -> list[str]:
        """One for each column of which far more is unknown than was in training."""
        told = []
        for (space, name), count in self._counts.items():
            in_training = self.vocabularies[space, name].known
            known = 1 - count.unknown / max(count.values, 1)
            if in_training is None or not _is_much(in_training - known, count.values):
                continue
            told.append(
                f"missing or never seen in training: {count.unknown} of "
                f"{count_of(count.values, 'value')} of '{name}' of {space.removeprefix('type:')} "
                f"({1 - known:.0%}; in training {1 - in_training:.0%}), in {count.records} of "
                f"{count_of(count.all_records, 'record')}. Predictions for these are worse than "
                "the scores of the model say. Give data of the kind that it was trained on."
            )
        return told

    def warn(self) -> None:
        """Warns with each of the sentences."""
        for sentence in self.sentences():
            warnings.warn(sentence, UnknownValuesWarning, stacklevel=2)


def _is_much(loss: float, num_values: int) -> bool:
    """True if a share of known values is smaller by more than is ordinary, and by no chance.

    The bound is that of Hoeffding (1963), theorem 1, https://doi.org/10.1080/01621459.1963.10500830.
    """
    beyond = loss - ORDINARY_LOSS
    return beyond > 0 and math.exp(-2 * num_values * beyond**2) < CHANCE
