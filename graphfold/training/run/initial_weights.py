"""The model of a new run, and the weights that it begins with.

They are drawn from the seed, but for word vectors out of a file (`data.vectors`) and the weights of
another run (`init_from`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from graphfold.dag import Column, Schema
from graphfold.datasets.data_module import DataModule
from graphfold.datasets.features.feature_spec import FeatureSpec
from graphfold.datasets.words.vectors import WordVectors
from graphfold.errors import CheckpointError, ConfigError, DataError
from graphfold.layers import ColumnEncoder, FeatureEncoder, Model
from graphfold.layers.normalisation import is_batch_norm
from graphfold.training.config.model import build_model
from graphfold.training.config.training_config import TrainingConfig
from graphfold.training.process.process import member_seed, seed_generators
from graphfold.training.run.checkpoint import Checkpoint
from graphfold.training.run.chemprop_encoder import take_encoder
from graphfold.training.run.run_folder import find_checkpoint

#: What a row of a table of embeddings is for: column, place in it, and a word, a code or "missing".
Row = tuple[str, int, object]

#: Remarks on weights are made up to this number.
MAX_NAMED = 8


class Outcome(NamedTuple):
    """The fate of a weight."""

    is_taken: bool
    remark: str = ""


class Table(NamedTuple):
    """The embeddings of a `ColumnEncoder`: of the codes of some columns of a space."""

    space: str | None  # None where it is not known
    encoder: ColumnEncoder


def make_model(
    config: TrainingConfig, data: DataModule, member: int = 0, begins: bool = True
) -> Model:
    """A fresh model.

    Args:
        config: with all that the data decide, see `decide`.
        data: what the model is to learn from, prepared.
        member: which member of an ensemble it is.
        begins: whether its weights are to be used; otherwise a checkpoint replaces them, and no
            file of vectors is read.

    Raises:
        ConfigError: if the model does not fit the data.
    """
    seed_generators(member_seed(config.seed, member))
    model = build_model(config.model, data.spec.schema, data.spec.scalers)
    if begins and data.word_vectors is not None:
        set_word_vectors(model, data.spec, data.word_vectors)
    return model


def begin_model(config: TrainingConfig, data: DataModule, member: int) -> Model:
    """`make_model`, with the weights of another run where the config names one."""
    model, encoder = make_model(config, data, member), config.model.get("encoder_from")
    if config.init_from is not None:
        print(take_weights(model, data.spec, Path(config.init_from), member), flush=True)
    if encoder is not None:
        print(take_encoder(model, Path(encoder)), flush=True)
    return model


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


def take_weights(model: Model, spec: FeatureSpec, run: Path, member: int = 0) -> str:
    """Gives a model those weights of a checkpoint that have the same name and shape.

    Embeddings of words are taken word by word, whatever ids the two vocabularies give them. The
    head's weights are taken if it has the same targets. Buffers belong to the data (scalers of
    targets) and stay, but for the statistics of normalisation.

    Args:
        model: the new model.
        spec: the feature spec of the new run.
        run: a run folder or a checkpoint file; nothing that it names is imported.
        member: which member of an ensemble in it, beginning anew after the last.

    Returns:
        What was taken and what was not, for the user.

    Raises:
        CheckpointError: if the checkpoint cannot be read.
        ConfigError: if nothing in it fits.
    """
    path = find_checkpoint(run)
    checkpoint = Checkpoint.load(path)
    try:
        earlier = FeatureSpec.from_dict(checkpoint.spec)
    except DataError as error:
        raise CheckpointError(f"{path}: {error.message}") from error
    has_targets = _targets(earlier.source) == _targets(spec.source)
    tables, outcomes, weights = _tables(model), {}, checkpoint.member(member)
    for name, own in _weights(model).items():
        theirs = weights.get(name)
        if theirs is None:
            outcomes[name] = Outcome(False, "not in the checkpoint")
        elif name.startswith("head.") and not has_targets:
            outcomes[name] = Outcome(False, "other targets")
        elif name in tables:
            outcomes[name] = _take_rows(own, theirs, tables[name], spec, earlier)
        else:
            outcomes[name] = _take_whole(own, theirs)
    if not any(outcome.is_taken for outcome in outcomes.values()):
        raise ConfigError(
            f"init_from: no weight of {path} fits this model. Name a run of a model with the same "
            "cells and widths."
        )
    return _describe(outcomes, path)


def _weights(model: Model) -> dict[str, Tensor]:
    """Parameters, and the statistics of normalisation."""
    found: dict[str, Tensor] = {name: p.detach() for name, p in model.named_parameters()}
    for prefix, module in model.named_modules():
        if is_batch_norm(module):
            found |= {f"{prefix}.{name}": buffer for name, buffer in module.named_buffers()}
    return found


def _targets(schema: Schema) -> set[tuple[str, str, int | None]]:
    columns = (*schema.graph_targets, *schema.node_targets)
    return {(column.name, column.dtype, column.size) for column in columns}


def _take_whole(own: Tensor, theirs: Tensor) -> Outcome:
    """Copies a tensor of the same shape."""
    if own.shape != theirs.shape:
        return Outcome(False, f"{list(theirs.shape)} there, {list(own.shape)} here")
    own.copy_(theirs)
    return Outcome(True)


def _tables(model: Model) -> dict[str, Table]:
    """The tables of embeddings by the names of their weights."""
    found = {
        f"{name}.table": Table(None, module)
        for name, module in model.named_modules()
        if isinstance(module, ColumnEncoder)
    }
    for prefix, module in model.named_modules():
        if isinstance(module, FeatureEncoder):
            for name, encoder in module.encoders.items():
                assert isinstance(encoder, ColumnEncoder)
                found[f"{prefix}.encoders.{name}.table"] = Table(f"type:{name}", encoder)
    return found


def _take_rows(
    own: Tensor, theirs: Tensor, table: Table, spec: FeatureSpec, earlier: FeatureSpec
) -> Outcome:
    """Copies the embeddings of the words and codes that both tables have."""
    if _vocabularies(spec, table) == _vocabularies(earlier, table):
        return _take_whole(own, theirs)
    if table.space is None:
        return Outcome(False, "another vocabulary")
    rows = list(_rows(table.encoder.codes, table.space, spec))
    names = [column.name for column in table.encoder.codes]
    known = {column.name: column for column in _features(earlier.schema, table.space)}
    before = list(_rows([known[n] for n in names if n in known], table.space, earlier))
    if len(before) != len(theirs) or own.shape[1] != theirs.shape[1]:
        return Outcome(False, "other columns or another width")
    place = {row: number for number, row in enumerate(before)}
    shared = torch.tensor([n for n, row in enumerate(rows) if row in place], dtype=torch.int64)
    if not len(shared):
        return Outcome(False, "no word in common")
    own[shared] = theirs[[place[rows[number]] for number in shared.tolist()]].to(own.dtype)
    return Outcome(True, f"{len(shared)} of {len(rows)} rows, by word")


def _vocabularies(spec: FeatureSpec, table: Table) -> dict[tuple[str, str], tuple[str, ...]]:
    """The words of the vocabularies that a table's columns may have."""
    names = {column.name for column in table.encoder.codes}
    return {
        (space, name): vocabulary.words
        for (space, name), vocabulary in spec.vocabularies.items()
        if name in names and table.space in (None, space)
    }


def _rows(columns: Sequence[Column], space: str, spec: FeatureSpec) -> Iterator[Row]:
    """The meaning of each row of a table, in the order of `ColumnEncoder`."""
    for column in columns:
        vocabulary = spec.vocabularies.get((space, column.name))
        words = None if vocabulary is None else ("unknown", *vocabulary.words)
        codes = range(column.size or 0)
        for place in range(math.prod(column.shape)):
            for code in codes:
                # A pair, so that no word of a vocabulary is taken for "missing".
                yield column.name, place, (code if words is None else words[code], code == 0)
            yield column.name, place, "missing"


def _features(schema: Schema, space: str) -> tuple[Column, ...]:
    return next((t.features for t in schema.types if space == f"type:{t.name}"), ())


def _describe(outcomes: Mapping[str, Outcome], path: Path) -> str:
    taken = sum(outcome.is_taken for outcome in outcomes.values())
    text = f"init_from: {taken} of {len(outcomes)} weights taken from {path}"
    for title, is_taken in (("in part", True), ("not taken", False)):
        found = [
            f"{name} ({outcome.remark})"
            for name, outcome in outcomes.items()
            if outcome.is_taken is is_taken and outcome.remark
        ]
        if found:
            more = f", and {len(found) - MAX_NAMED} more" if len(found) > MAX_NAMED else ""
            text += f"; {title}: {', '.join(found[:MAX_NAMED])}{more}"
    return text
