"""FeatureSpec: vocabularies and scalers of a model, learnt from the training part.

Unknown values, those of string inputs that the model has not learnt, are counted; many of them
are a warning.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from graphfold.dag import Column, Schema, TypedDAG
from graphfold.datasets.features.scalers import InputScaler, Scaler, fit_input_scaler, fit_scaler
from graphfold.datasets.features.vocabulary import UNKNOWN, Vocabulary, count_codes, vocabulary_of
from graphfold.datasets.words.word_features import WordFeatures
from graphfold.errors import (
    ConfigError,
    DataError,
    GraphfoldError,
    SchemaError,
    count_of,
    first_line,
)

#: The loss in the share of known values, from training to other data, without a warning. A tenth is
#: ordinary for new text; another kind of data lacks whole columns.
ORDINARY_LOSS = 0.2

#: The probability of a false warning.
CHANCE = 0.01


class UnknownValuesWarning(UserWarning):
    """Warns of data of another kind than those that a model was trained on."""


Key = tuple[str, str]  # (space, column)


@dataclass
class UnknownCount:
    """The numbers of values of a column, and of unknown ones."""

    values: int = 0
    unknown: int = 0
    records: int = 0  # with an unknown value
    all_records: int = 0

    @property
    def known(self) -> float:
        """The share of the values in the vocabulary."""
        return 1 - self.unknown / max(self.values, 1)


class UnknownValues:
    """Counts, over batches, the values of string inputs that are missing or in no vocabulary.

    A model reads all of them as the same unknown value.

    Args:
        spec: the feature spec of the model.

    Attributes:
        counts: (space, column) -> its count.
    """

    def __init__(self, spec: FeatureSpec) -> None:
        self.vocabularies = spec.vocabularies
        self.counts = {key: UnknownCount() for key in spec.vocabularies}

    def add(self, encoded: TypedDAG) -> None:
        """Counts the values of some encoded graphs."""
        for (space, name), count in self.counts.items():
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
        """A warning for each column with far more unknown values than in the validation part."""
        warned = []
        for (space, name), count in self.counts.items():
            vocabulary = self.vocabularies[space, name]
            usual, part = vocabulary.held_out, "the validation part"
            if usual is None:
                usual, part = vocabulary.known, "training"
            share = count.known
            if usual is None or not _is_much(usual - share, count.values):
                continue
            warned.append(
                f"missing or never seen in training: {count.unknown} of "
                f"{count_of(count.values, 'value')} of '{name}' of {space.removeprefix('type:')} "
                f"({1 - share:.0%}; in {part} {1 - usual:.0%}), in {count.records} of "
                f"{count_of(count.all_records, 'record')}. Predictions for these are worse than "
                "the scores of the model say. Give data of the kind that it was trained on."
            )
        return warned

    def warn(self) -> None:
        """Warns with each of the sentences."""
        for sentence in self.sentences():
            warnings.warn(sentence, UnknownValuesWarning, stacklevel=2)


def _is_much(loss: float, num_values: int) -> bool:
    """True if a loss in the share of known values is above the ordinary, and not by chance.

    The bound is that of Hoeffding (1963), theorem 1, https://doi.org/10.1080/01621459.1963.10500830.
    """
    beyond = loss - ORDINARY_LOSS
    return beyond > 0 and math.exp(-2 * num_values * beyond**2) < CHANCE


@dataclass(frozen=True, eq=False)
class FeatureSpec:
    """Vocabularies of the string features and scalers of the targets, from the training part.

    Args:
        source: the schema of the graphs as the adapter makes them.
        vocabularies: (space, column) -> the vocabulary of that string feature.
        scalers: target -> its scaler, in the target's unit.
        inputs: (space, column) -> the scaler of that input; of floats, for counts are not scaled.
        words: further features of words; None without.
    """

    source: Schema
    vocabularies: Mapping[Key, Vocabulary]
    scalers: Mapping[str, Scaler]
    inputs: Mapping[Key, InputScaler] = field(default_factory=dict)
    words: WordFeatures | None = None
    _tables: dict[Key, tuple[Sequence[str], Tensor]] = field(default_factory=dict, init=False)

    @staticmethod
    def learns_of_nodes(schema: Schema) -> bool:
        """True if `fit` reads more than the columns of whole graphs."""
        of_nodes = [column for space, column in schema.targets() if space != "graph"]
        of_nodes += [column for space, column in _scaled_features(schema) if space != "graph"]
        is_float = any(column.torch_dtype.is_floating_point for column in of_nodes)
        return is_float or bool(_string_features(schema))

    @staticmethod
    def learns_words(schema: Schema) -> bool:
        """True if some strings of nodes or edges get a vocabulary."""
        return bool(_string_features(schema))

    @staticmethod
    def fit(
        train: TypedDAG | Iterable[TypedDAG],
        min_count: int = 1,
        max_size: int | None = None,
        lowercase: bool = False,
    ) -> FeatureSpec:
        """Learns from the training part.

        Features of nodes and of edges that are strings get a vocabulary; features of whole graphs
        (a name, the text) stay strings, which models do not read. Targets and inputs (see the role
        of a `Column`) that are floats get a scaler, in which a graph of weight 2 counts like two.

        Args:
            train: the training part, as read; a large one in pieces with the same dictionaries.
            min_count: how often a word must occur to be in the vocabulary.
            max_size: the most words of each vocabulary; None for all.
            lowercase: whether words are counted and looked up in lower case.

        Raises:
            SchemaError: if two targets of floats have the same name.
        """
        seen = _Columns()
        for part in [train] if isinstance(train, TypedDAG) else train:
            seen.add(part)
        dag = seen.example
        vocabularies = {
            (space, column.name): vocabulary_of(
                seen.counts[space, column.name],
                dag.dictionaries[space, column.name],
                min_count,
                max_size,
                lowercase,
            )
            for space, column in _string_features(dag.schema)
        }
        scalers: dict[str, Scaler] = {}
        for space, column in dag.schema.targets():
            if not column.torch_dtype.is_floating_point:
                continue
            if column.name in scalers:
                raise SchemaError(f"two targets are called '{column.name}'. Rename one of them.")
            scalers[column.name] = fit_scaler(*seen.values(space, column.name))
        inputs = {
            (space, column.name): fit_input_scaler(*seen.values(space, column.name))
            for space, column in _scaled_features(dag.schema)
        }
        return FeatureSpec(dag.schema, vocabularies, scalers, inputs)

    def held_out(self, val: Iterable[TypedDAG]) -> FeatureSpec:
        """Adds the shares of known values in the validation part.

        Args:
            val: the validation part, as read, in pieces.
        """
        unknown, plain = UnknownValues(self), replace(self, words=None)
        for part in val:
            unknown.add(plain.encode(part))
        vocabularies = {
            key: replace(vocabulary, held_out=unknown.counts[key].known)
            for key, vocabulary in self.vocabularies.items()
        }
        return replace(self, vocabularies=vocabularies)

    @property
    def schema(self) -> Schema:
        """The schema of encoded graphs: string features are int64 ids, with a `size`."""
        return self.source.with_features(self._with_ids)

    def encode(self, dag: TypedDAG) -> TypedDAG:
        """Replaces strings by vocabulary ids, and scales inputs.

        Args:
            dag: the graphs, as read; their targets are not checked.

        Raises:
            SchemaError: if types, edges or features differ from the source schema.
        """
        self._check(dag.schema)
        columns = {space: dict(group) for space, group in dag.columns.items()}
        for space, name in self.vocabularies:
            ids = self._ids((space, name), dag.dictionaries[space, name])
            columns[space][name] = ids[columns[space][name]]
        for (space, name), scaler in self.inputs.items():
            columns[space][name] = scaler.scale(columns[space][name])
        if self.words is not None:
            columns[f"type:{self.words.type_name}"] |= self.words.encode(dag)
        return replace(
            dag,
            schema=dag.schema.with_features(self._with_ids),
            columns=columns,
            dictionaries={k: v for k, v in dag.dictionaries.items() if k not in self.vocabularies},
        )

    def _ids(self, key: Key, words: Sequence[str]) -> Tensor:
        """The id of each word of a dictionary; cached while one corpus is encoded in batches."""
        cached = self._tables.get(key)
        if cached is None or cached[0] is not words:
            # Returned from here: another thread may replace the entry.
            cached = self._tables[key] = words, self.vocabularies[key].table(words)
        return cached[1]

    def to_dict(self) -> dict[str, Any]:
        """Plain dicts, lists and numbers, ready for JSON."""
        return {
            "source": self.source.to_dict(),
            "vocabularies": [
                {"space": space, "column": name, **vocabulary.to_dict()}
                for (space, name), vocabulary in self.vocabularies.items()
            ],
            "scalers": {name: scaler._asdict() for name, scaler in self.scalers.items()},
            "inputs": [
                {"space": space, "column": name, **scaler._asdict()}
                for (space, name), scaler in self.inputs.items()
            ],
            "words": None if self.words is None else self.words.to_dict(),
        }

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> FeatureSpec:
        """The spec that `to_dict` (or JSON of it) describes.

        Raises:
            DataError: if it describes none.
        """
        try:
            return FeatureSpec(
                Schema.from_dict(data["source"]),
                {(v["space"], v["column"]): Vocabulary.from_dict(v) for v in data["vocabularies"]},
                {name: Scaler(**values) for name, values in data["scalers"].items()},
                {(v["space"], v["column"]): InputScaler.from_dict(v) for v in data["inputs"]},
                WordFeatures.from_dict(data["words"]) if data["words"] else None,
            )
        except GraphfoldError:
            raise
        except Exception as error:  # of a damaged file any part may fail in any way
            raise DataError(
                f"the feature spec of the run cannot be read ({first_line(error)}). Restore its "
                "files, or train again."
            ) from error

    def check_classes(self, schema: Schema) -> None:
        """Refuses an adapter with another order of the classes of a target than in training.

        Raises:
            ConfigError: naming the target, and both orders.
        """
        targets = {(level, column.name): column for level, column in schema.targets()}
        for level, column in self.source.targets():
            other = targets.get((level, column.name), column)
            if other.names != column.names:
                was, now = (", ".join(map(str, c.classes[:20])) for c in (column, other))
                raise ConfigError(
                    f"the classes of '{column.name}' would be {now}, but they cannot be changed "
                    f"for a trained model, which has them in the order {was}. Leave out the "
                    "setting that changes them, or train again."
                )

    def check_targets(self, schema: Schema) -> None:
        """Refuses data without the targets that the spec was fitted to.

        Raises:
            ConfigError: naming an absent target, and the targets of the data.
        """
        targets = {(level, column.name): column for level, column in schema.targets()}
        for level, column in self.source.targets():
            other = targets.get((level, column.name))
            floats = [c.torch_dtype.is_floating_point for c in (column, other) if c is not None]
            if floats != floats[:1] * 2:
                names = ", ".join(f"'{c.name}' of the {place}" for place, c in schema.targets())
                kind = "numbers" if floats[0] else "classes"
                raise ConfigError(
                    f"the model predicts '{column.name}' of the {level}, {kind}, and the data have "
                    f"as targets: {names or 'none'}. Read them as the run did, without other "
                    "targets."
                )

    def _check(self, schema: Schema) -> None:
        want, have = _features(self.source), _features(schema)
        for key in want.keys() | have.keys():
            if want.get(key) != have.get(key):
                raise SchemaError(
                    f"{key} is {have.get(key, 'absent')} in the data, but the model was trained "
                    f"with {want.get(key, 'none')}. Read the data with the adapter and the options "
                    "of the run."
                )

    def _with_ids(self, space: str, columns: Sequence[Column]) -> Iterator[Column]:
        """The features of a space with ids in place of strings, and with features of words."""
        for column in columns:
            vocabulary = self.vocabularies.get((space, column.name))
            if vocabulary is not None:
                column = Column(column.name, "int64", column.shape, size=len(vocabulary))
            yield column
        if self.words is not None and space == f"type:{self.words.type_name}":
            yield from self.words.columns


class _Columns:
    """Counts of strings, and values and weights of floats, gathered piece by piece."""

    def __init__(self) -> None:
        self.counts: dict[Key, Tensor] = {}  # [num_words + 1] of each word; missing values last
        self._values: dict[Key, list[Tensor]] = {}
        self._weights: dict[str, list[Tensor]] = {}

    def add(self, part: TypedDAG) -> None:
        """Adds a piece."""
        self.example = part
        for space, column in _string_features(part.schema):
            key = space, column.name
            count = count_codes(part.columns[space][column.name], len(part.dictionaries[key]))
            self.counts[key] = self.counts.get(key, 0) + count
        floats = [*part.schema.targets(), *_scaled_features(part.schema)]
        for space, column in floats:
            if column.torch_dtype.is_floating_point:
                column_values = part.columns[space][column.name]
                self._values.setdefault((space, column.name), []).append(column_values)
        for space in {space for space, _ in floats}:
            weights = part.weights(space)
            if weights is not None:
                self._weights.setdefault(space, []).append(weights)

    def values(self, space: str, name: str) -> tuple[Tensor, Tensor | None]:
        """The rows of a column of floats, and their weights; None if each counts once."""
        weights = self._weights.get(space)
        values = torch.cat(self._values[space, name])
        return values, None if weights is None else torch.cat(weights)


def _string_features(schema: Schema) -> list[tuple[str, Column]]:
    return [(space, column) for space, column in _part_features(schema) if column.dtype == "string"]


def _scaled_features(schema: Schema) -> list[tuple[str, Column]]:
    """The inputs that are floats, of whole graphs and of their parts."""
    inputs = [("graph", column) for column in schema.graph_inputs]
    inputs += [(space, column) for space, column in _part_features(schema) if column.role]
    return [(space, column) for space, column in inputs if column.torch_dtype.is_floating_point]


def _part_features(schema: Schema) -> list[tuple[str, Column]]:
    """The features of nodes and edges, each with its space."""
    groups = [(f"type:{t.name}", t.features) for t in schema.types]
    groups.append(("inputs", schema.inputs.features))
    groups += [(f"relation:{edge.name}", edge.features) for edge in schema.relations]
    return [(space, column) for space, group in groups for column in group]


def _features(schema: Schema) -> dict[str, str]:
    """Descriptions of the inputs of a model: everything except targets and notes of graphs."""
    facts = {}
    for number, node_type in enumerate(schema.types):
        facts[f"node type '{node_type.name}'"] = f"number {number} with arity {node_type.arity}"
    groups = [(f"node type '{t.name}'", t.features) for t in schema.types]
    groups += [("inputs", schema.inputs.features), ("whole graphs", schema.graph_inputs)]
    for edge in schema.relations:
        facts[f"relation '{edge.name}'"] = "present"
        groups.append((f"relation '{edge.name}'", edge.features))
    for owner, columns in groups:
        for column in columns:
            size = "" if column.size is None else f" with {column.size} codes"
            facts[f"feature '{column.name}' of {owner}"] = (
                f"{column.dtype}{list(column.shape) or ''}{size}"
            )
    return facts
