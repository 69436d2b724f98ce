"""The model of a new run and its initial weights.

They are drawn from the seed, or read: word vectors (`data.vectors`), weights of another run
(`init_from`) or of a chemprop encoder (`model.encoder_from`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor

from graphfold.dag import Schema
from graphfold.datasets.data_module import DataModule
from graphfold.datasets.features.feature_spec import FeatureSpec
from graphfold.datasets.words.vectors import WordVectors
from graphfold.errors import CheckpointError, ConfigError, DataError, some_of
from graphfold.layers import ColumnEncoder, FeatureEncoder, Model
from graphfold.layers.normalisation import is_batch_norm
from graphfold.training.config.build_model import build_model
from graphfold.training.config.training_config import TrainingConfig
from graphfold.training.process.process import member_seed, seed_generators
from graphfold.training.run.checkpoint import Checkpoint
from graphfold.training.run.chemprop_encoder import take_encoder
from graphfold.training.run.run_folder import find_checkpoint

#: The largest number of weights that are listed as not taken.
MAX_NAMED = 8


def make_model(
    config: TrainingConfig, data: DataModule, member: int = 0, is_new: bool = True
) -> Model:
    """A new model, with weights drawn from the seed, and with word vectors.

    Args:
        config: the config, with all values that the data decide, see `decide`.
        data: the training data, prepared.
        member: the number of the member in an ensemble.
        is_new: whether its weights are used; if a checkpoint will replace them, no word vectors are
            read.

    Raises:
        ConfigError: if the model does not fit the data.
    """
    seed_generators(member_seed(config.seed, member))
    model = build_model(config.model, data.spec.schema, data.spec.scalers)
    if is_new and data.word_vectors is not None:
        set_word_vectors(model, data.spec, data.word_vectors)
    return model


def begin_model(config: TrainingConfig, data: DataModule, member: int) -> Model:
    """`make_model`, then weights of other runs and files that the config names."""
    model, encoder = make_model(config, data, member), config.model.get("encoder_from")
    if config.init_from is not None:
        print(take_weights(model, data.spec, Path(config.init_from), member), flush=True)
    if encoder is not None:
        print(take_encoder(model, Path(encoder)), flush=True)
    return model


def set_word_vectors(model: Model, spec: FeatureSpec, vectors: WordVectors) -> None:
    """Sets the embeddings of words to their vectors; words without one get small random values.

    Args:
        model: the model, whose encoder has the width of the vectors.
        spec: the feature spec of the run, with a column of words.
        vectors: the vectors of the words of its vocabulary.

    Raises:
        ConfigError: if the encoder does not read the words.
    """
    assert spec.words is not None
    name, column = spec.words.type_name, spec.words.column
    table = vectors.embeddings(spec.vocabularies[f"type:{name}", column].words)
    encoder: Any = getattr(model, "encoder", None)
    if isinstance(encoder, FeatureEncoder):
        encoder = dict(encoder.encoders.items()).get(name)
    if not isinstance(encoder, ColumnEncoder) or all(c.name != column for c in encoder.codes):
        raise ConfigError(
            f"data.vectors gives vectors to '{column}' of the type '{name}', which the encoder of "
            "the model does not read. Name it in model.encoder.features, or leave data.vectors out."
        )
    encoder.set_embeddings(column, table)


def take_weights(model: Model, spec: FeatureSpec, run: Path, member: int = 0) -> str:
    """Copies the weights of a checkpoint that have the same name and shape.

    Embeddings need the same vocabularies, and the weights of the head the same targets. Buffers
    belong to the data (scalers of targets) and are not copied, except the statistics of
    normalisation.

    Args:
        model: the new model.
        spec: the feature spec of the new run.
        run: a run folder or a checkpoint file; nothing that it names is imported.
        member: the member of an ensemble in it, modulo their number.

    Returns:
        A message for the user: which weights were taken and which were not.

    Raises:
        CheckpointError: if the checkpoint cannot be read.
        ConfigError: if nothing in it fits.
    """
    path = find_checkpoint(run)
    checkpoint = Checkpoint.load(path)
    try:
        other = FeatureSpec.from_dict(checkpoint.spec)
    except DataError as error:
        raise CheckpointError(f"{path}: {error.message}") from error
    has_targets = _targets(other.source) == _targets(spec.source)
    tables, weights, refused = _tables(model), checkpoint.member(member), dict[str, str]()
    targets = _weights(model)
    for name, target in targets.items():
        weight = weights.get(name)
        if weight is None:
            refused[name] = "not in the checkpoint"
        elif name.startswith("head.") and not has_targets:
            refused[name] = "other targets"
        elif name in tables and _words(spec, tables[name]) != _words(other, tables[name]):
            refused[name] = "another vocabulary"
        elif target.shape != weight.shape:
            refused[name] = f"{list(weight.shape)} there, {list(target.shape)} here"
        else:
            target.copy_(weight)
    total = len(targets)
    if len(refused) == total:
        raise ConfigError(
            f"init_from: no weight of {path} fits this model. Name a run of a model with the same "
            "cells and widths."
        )
    text = f"init_from: {total - len(refused)} of {total} weights taken from {path}"
    absent = [f"{name} ({reason})" for name, reason in refused.items()]
    return f"{text}; not taken: {some_of(absent, MAX_NAMED)}" if absent else text


def _weights(model: Model) -> dict[str, Tensor]:
    """The parameters and the statistics of normalisation, by name."""
    weights: dict[str, Tensor] = {name: p.detach() for name, p in model.named_parameters()}
    for prefix, module in model.named_modules():
        if is_batch_norm(module):
            weights |= {f"{prefix}.{name}": buffer for name, buffer in module.named_buffers()}
    return weights


def _targets(schema: Schema) -> set[tuple[str, str, int | None]]:
    columns = (*schema.graph_targets, *schema.node_targets)
    return {(column.name, column.dtype, column.size) for column in columns}


def _tables(model: Model) -> dict[str, ColumnEncoder]:
    """The encoders with embeddings, by the names of their tables."""
    return {
        f"{name}.table": module
        for name, module in model.named_modules()
        if isinstance(module, ColumnEncoder)
    }


def _words(spec: FeatureSpec, table: ColumnEncoder) -> list[tuple[str, ...]]:
    """The words of the vocabularies of a table's columns."""
    names = {column.name for column in table.codes}
    return [v.words for (_, name), v in spec.vocabularies.items() if name in names]
