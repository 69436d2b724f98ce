"""Word vectors out of a file, as the first values of a model's embeddings."""

from __future__ import annotations

from graphfold.datasets.features.feature_spec import FeatureSpec
from graphfold.datasets.words.word_vectors import WordVectors
from graphfold.errors import ConfigError
from graphfold.layers import ColumnEncoder, FeatureEncoder, Model


def set_word_vectors(model: Model, spec: FeatureSpec, vectors: WordVectors) -> None:
    """Gives the words of a new model their vectors, and those without one small random values.

    Args:
        model: the model, whose encoder is as wide as the vectors.
        spec: the feature spec of the run, with vectors.
        vectors: of the words of its vocabulary.

    Raises:
        ConfigError: if the encoder does not read the words.
    """
    assert spec.words is not None
    name, column = spec.words.type_name, spec.words.column
    table = vectors.embeddings(spec.vocabularies[f"type:{name}", column].words)
    own = getattr(model, "encoder", None)
    encoder = dict(own.encoders.items()).get(name) if isinstance(own, FeatureEncoder) else None
    if not isinstance(encoder, ColumnEncoder) or all(c.name != column for c in encoder.codes):
        raise ConfigError(
            f"data.vectors gives vectors to '{column}' of the type '{name}', which the encoder of "
            "the model does not read. Name it in model.encoder.features, or leave data.vectors out."
        )
    encoder.set_embeddings(column, table)
