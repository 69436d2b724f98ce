"""Features of words and vectors for their embeddings, before a training."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from graphfold.dag import TypedDAG
from graphfold.datasets.features.feature_spec import FeatureSpec
from graphfold.datasets.features.vocabulary import count_words
from graphfold.datasets.words.vectors import WordVectors, read_vectors
from graphfold.datasets.words.word_features import WordFeatures

if TYPE_CHECKING:
    from graphfold.datasets.settings import DataSettings


def learn_words(
    spec: FeatureSpec, dag: TypedDAG, words: tuple[str, str], settings: DataSettings
) -> tuple[FeatureSpec, WordVectors | None]:
    """Adds word features to the spec; also returns initial vectors, if the settings name a file.

    With vectors, the vocabulary has the words of the training part and, after them, all words of
    the data with a vector.

    Args:
        spec: learnt from the training part.
        dag: all records, as read.
        words: the node type and the column of the words.
        settings: `vectors` and `characters` are read.

    Raises:
        DataError: if the file of vectors cannot be used.
    """
    features = WordFeatures(*words, has_characters=settings.characters)
    vectors = None
    if settings.vectors is not None:
        vectors = find_word_vectors(spec, dag, words, Path(settings.vectors))
        key = (f"type:{words[0]}", words[1])
        vocabulary = spec.vocabularies[key].with_words(sorted(vectors.vectors))
        spec = replace(spec, vocabularies={**spec.vocabularies, key: vocabulary})
        features = replace(features, vector_size=vectors.size)
    return replace(spec, words=features), vectors


def find_word_vectors(
    spec: FeatureSpec, dag: TypedDAG, words: tuple[str, str], path: Path
) -> WordVectors:
    """The vectors of all words of the data, by the words of the vocabulary."""
    key = (f"type:{words[0]}", words[1])
    written = count_words(dag.columns[key[0]][key[1]], dag.dictionaries[key])
    return read_vectors(path.expanduser(), written, spec.vocabularies[key].lowercase)
