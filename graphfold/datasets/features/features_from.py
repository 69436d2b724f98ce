"""Features from elsewhere: files and columns whose numbers join the graphs of any adapter.

`FeatureSource` says where the features of a level are; `FeaturesAdapter` finds those of each
record while it is cut out, and adds them to its graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphfold.dag import Column, Schema, TypedDAG, select
from graphfold.dag.typed_dag import pointers, repeat
from graphfold.datasets.adapter import (
    NUMBERS,
    Adapter,
    AdapterOfMany,
    ManyGraphs,
    Record,
    read_records,
    result_or_error,
)
from graphfold.datasets.features.feature_files import (
    FeatureRow,
    feature_rows,
    read_row,
    with_shapes,
)
from graphfold.datasets.features.feature_sources import FeatureSource, plain_sources
from graphfold.errors import (
    ConfigError,
    DataError,
    RecordError,
    count_of,
    did_you_mean,
    shortened,
    some_of,
)

_ENDS = tuple(NUMBERS.values())

#: What the adapter within says of records is said of them with features, too.
_OF_INNER = (
    *("words", "libraries", "reads_tables", "expands_folders", "text_format", "written_targets"),
    *("training_options", "notes", "added_nodes", "text_of", "write_back", "named_texts"),
)


class FeaturesAdapter(AdapterOfMany):
    """Adds features from elsewhere to the graphs of another adapter.

    Features of graphs are inputs of whole graphs. Those of nodes are for the first type of the
    schema, atoms or words, in the order of the record; those of edges, for adapters that number
    them (see `Adapter.numbered`), are once for both directions.

    Args:
        inner: the adapter.
        features: level -> the source of its features.

    Raises:
        ConfigError: if the graphs have no such level, or a column is a target.
    """

    def __init__(self, inner: Adapter, features: Mapping[str, FeatureSource]) -> None:
        self.inner = inner.numbered() if {*features} - {"graph"} else inner
        self.features = dict(features)
        self.is_open = any(source.is_open for source in features.values())
        for name in _OF_INNER:
            setattr(self, name, getattr(self.inner, name))
        self.spaces = {level: _spaces(self.inner.schema, level) for level in features}
        # The columns of records in which features are, or by which they are found.
        self.own_columns = [*dict.fromkeys(c for f in features.values() for c in f.own_columns)]
        self.schema = self._make_schema()
        self._path: Path | None = None  # the one file of records, of features in its order
        self._keyed: dict[tuple[str, Path], dict[str, Any]] = {}  # files that are searched

    def _make_schema(self) -> Schema:
        schema = self.inner.schema
        added: dict[str, list[Column]] = {}
        for level, source in self.features.items():
            for space, prefix in self.spaces[level]:
                for name, shape in source.shapes.items():
                    name = self._name_in(space, prefix + name)
                    column = Column(name, "float32", shape or (), role="input")
                    added.setdefault(space, []).append(column)
        for name in {*self.own_columns} & {column.name for _, column in schema.targets()}:
            raise ConfigError(
                f"data.features_from names the column '{name}', which is a target. Leave it out."
            )

        def features(space: str, columns: Sequence[Column]) -> Iterator[Column]:
            yield from (column for column in columns if not column.name.endswith(_ENDS))
            yield from added.get(space, ())

        return schema.with_features(features)

    def _name_in(self, space: str, name: str) -> str:
        """The name of a column in a space; beside another NAME it is NAME_feature."""
        schema = self.inner.schema
        names = {column.name for column in (*schema.spaces()[space], *schema.node_targets)}
        return f"{name}_feature" if name in names else name

    @property
    def code(self) -> tuple[str, ...]:
        """The modules of the adapter within, and this one."""
        return (*self.inner.code, __name__)

    def __getstate__(self) -> dict[str, Any]:
        """All but the files that are searched, which workers do not need."""
        return {**vars(self), "_keyed": {}}

    def sources(self, path: Path) -> list[Path]:
        """The files of records and of features; see `Adapter`.

        Raises:
            ConfigError: if features in the order of the records of one file are read for another.
        """
        if any(source.is_of_one for source in self.features.values()):
            self._path = self._path or path.absolute()
            if self._path != path.absolute():
                raise ConfigError(
                    f"data.features_from has features in the order of the records of {self._path}, "
                    f"which are not those of {path}. Name the files alike, and write * for the "
                    "name; or find features by a key."
                )
        files = [source.file_for(path) for source in self.features.values()]
        return [*self.inner.sources(path), *(file for file in files if file is not None)]

    def infer_options(self, paths: Sequence[Path]) -> Mapping[str, Any]:
        """The options that the adapter within infers, and the shapes of features."""
        options = dict(self.inner.infer_options(paths))
        if "target_columns" in options:  # those that fit a pattern
            columns = options["target_columns"]
            options["target_columns"] = [name for name in columns if name not in self.own_columns]
        if self.is_open:
            shaped = {
                level: with_shapes(source, self._rows(source, paths[0]))
                for level, source in self.features.items()
            }
            options["features_from"] = plain_sources(shaped)
        return options

    def _rows(self, source: FeatureSource, path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """The rows of a source for a file of records; see `feature_rows`."""
        file = source.file_for(path)
        if file is not None:
            yield from feature_rows(source, file)
            return
        for number, record in enumerate(self.inner.records(path), start=1):
            texts = self._texts(record, path)
            yield str(number), {name: texts[name] for name in source.shapes}

    def without_targets(self) -> FeaturesAdapter:
        """A copy for prediction; see `Adapter`."""
        return FeaturesAdapter(self.inner.without_targets(), self.features)

    def records(self, path: Path) -> Iterator[Record]:
        """The records with their features; see `Adapter`.

        Raises:
            DataError: if a file of features cannot be used, or has more or fewer rows than records.
        """
        if self.is_open:  # nothing is parsed before the shapes are known
            yield from self.inner.records(path)
            return
        self.sources(path)
        ordered = {
            level: self._rows(source, path)
            for level, source in self.features.items()
            if source.has_order
        }
        both = zip_longest(self.inner.records(path), *ordered.values())
        for number, (record, *found) in enumerate(both, start=1):
            for level, row in zip(ordered, found, strict=True):
                if (record is None) != (row is None):
                    file = str(self.features[level].file_for(path))
                    few, many = (path, file) if record is None else (file, path)
                    raise DataError.in_file(
                        file,
                        f"{few} has {number - 1} records, and {many} has more. Give each record "
                        "its features, in the same order; or name the column that finds them, key.",
                    )
            rows = {level: (number, row[1]) for level, row in zip(ordered, found, strict=True)}
            try:
                features = self._find(self._texts(record, path), path, rows)
                yield replace(record, features=features)
            except RecordError as error:
                yield replace(record, fault=record.fault or error)

    def _texts(self, record: Record, path: Path) -> Mapping[str, Any]:
        """The texts of a record by name; raises an error if one that features need is absent."""
        texts = self.inner.named_texts(record)
        if record.columns:
            self._require(record.columns, f"{path}: ")
        for name in self.own_columns:
            if name not in texts:
                raise RecordError(f"the record has no '{name}', which data.features_from names")
        return texts

    def _require(self, names: Sequence[str], place: str = "") -> None:
        """Raises DataError if a column that features need is absent."""
        for name in self.own_columns:
            if name not in names:
                raise DataError(
                    f"{place}no column '{name}' among {some_of(names)}.{did_you_mean(name, names)} "
                    "Add the column, or set data.features_from.",
                    columns=[name],
                )

    def record_of(self, item: Any) -> Record:
        """The record in a mapping that has the columns of features, and the key; see `Adapter`.

        Raises:
            ConfigError: if features are in the order of a file of records.
        """
        if any(source.has_order for source in self.features.values()):
            raise ConfigError(
                "the model reads features in the order of the records of a file, and items in "
                "Python are in none. Predict a file; or train with features that a key finds."
            )
        cells = item if isinstance(item, Mapping) else dict.fromkeys(self.own_columns, item)
        try:
            names = self._columns_within([*cells])
        except DataError as error:
            needed = ", ".join(f"'{name}'" for name in self.own_columns)
            remedy = f"Give a dict with the record and {needed}."
            raise RecordError(f"{item!r} lacks inputs of the model", remedy) from error
        content = {name: cells[name] for name in names}
        record = self.inner.record_of(content if len(names) > 1 else cells[names[0]])
        return replace(record, features=self._find(cells, Path(), {}))

    def item_columns(self, names: Sequence[str]) -> Sequence[str]:
        """The columns of records, of features and of keys; see `Adapter`."""
        return [*dict.fromkeys([*self._columns_within(names), *self.own_columns])]

    def _columns_within(self, names: Sequence[str]) -> Sequence[str]:
        """The columns for the adapter within."""
        self._require(names)
        others = [name for name in names if name not in self.own_columns]
        return self.inner.item_columns(names if self.reads_tables else others)

    def _find(
        self, texts: Mapping[str, Any], path: Path, rows: Mapping[str, tuple[int, Any]]
    ) -> dict[str, FeatureRow]:
        """Level -> the features of a record.

        Args:
            texts: the texts of the record by name.
            path: its file.
            rows: level -> number and values of the record, of features in the order of the records.

        Raises:
            RecordError: if features are absent or cannot be used.
        """
        found = {}
        for level, source in self.features.items():
            file, where = source.file_for(path), ""
            if file is None:
                values = {name: texts[name] for name in source.shapes}
            elif source.key is None:
                number, values = rows[level]
                where = f" ({file.name}, record {number})"
            else:
                key = str(texts[source.key])
                where = f" ({file.name}, '{shortened(key)}')"
                if key not in (searched := self._searched(source, file)):
                    raise RecordError(f"the {source.key} of the record has no features{where}")
                values = searched[key]
            found[level] = read_row(source, values, where)
        return found

    def _searched(self, source: FeatureSource, file: Path) -> dict[str, Any]:
        """Key -> values of a file; raises DataError if two rows have the same key."""
        if (source.level, file) not in self._keyed:
            by_key: dict[str, Any] = {}
            for key, values in feature_rows(source, file):
                if key in by_key:
                    raise DataError.in_file(
                        file, f"two rows have the {source.key} '{key}'. Leave one of them out."
                    )
                by_key[key] = values
            self._keyed[source.level, file] = by_key
        return self._keyed[source.level, file]

    def parse_many(self, records: Sequence[Record], file: str) -> ManyGraphs:
        """All records by the adapter within, and their features."""
        if self.is_open:
            raise ConfigError(
                "the files decide the shapes of features from elsewhere. Set features_from to what "
                "infer_options finds in them."
            )
        result = read_records(self.inner, Path(file), records, "skip")
        bad = sorted({*range(len(records))} - {*result.kept})
        errors, good = dict(zip(bad, result.skipped, strict=True)), []
        counts = {k: _counts(result.dag, k, spaces).tolist() for k, spaces in self.spaces.items()}
        for graph, position in enumerate(result.kept):
            numbers = {level: count[graph] for level, count in counts.items()}
            error = result_or_error(self._check, records[position].features, numbers)
            if error is None:
                good.append(graph)
            else:
                errors[position] = error
        dag = result.dag if len(good) == len(result.kept) else select(result.dag, good)
        rows = [records[result.kept[graph]].features for graph in good]
        return ManyGraphs(self._joined(dag, rows), errors)

    def _check(self, rows: Mapping[str, FeatureRow], numbers: Mapping[str, int]) -> None:
        """Raises RecordError if features are for more or fewer nodes or edges than there are."""
        for level, (where, values) in rows.items():
            for name, value in values.items():
                if len(value) != numbers[level]:
                    noun = self.spaces[level][0][0].rpartition(":")[2]
                    raise RecordError(
                        f"the feature '{name}'{where} is for {count_of(len(value), noun)}, but the "
                        f"record has {count_of(numbers[level], noun)}"
                    )

    def _joined(self, dag: TypedDAG, rows: Sequence[Mapping[str, FeatureRow]]) -> TypedDAG:
        """The graphs with the features of each."""
        columns = {
            space: {name: column for name, column in group.items() if not name.endswith(_ENDS)}
            for space, group in dag.columns.items()
        }
        for level, source in self.features.items():
            first = pointers(_counts(dag, level, self.spaces[level]))[:-1]
            places = {key: _places(dag, level, *key, first) for key in self.spaces[level]}
            for name, shape in source.shapes.items():
                values = [np.empty((0, *(shape or ())), np.float32)]
                values += [row[level][1][name] for row in rows]
                joined = torch.from_numpy(np.concatenate(values))
                for (space, prefix), place in places.items():
                    column = self._name_in(space, prefix + name)
                    columns[space][column] = joined.index_select(0, place)
        return replace(dag, schema=self.schema, columns=columns)


def _spaces(schema: Schema, level: str) -> list[tuple[str, str]]:
    """The spaces whose rows get the features of a level, and the prefix of their columns there."""
    if level == "graph":
        return [("graph", "")]
    found = [
        (space, column.name.removesuffix(NUMBERS[level]))
        for space, columns in schema.spaces().items()
        for column in columns
        if column.name.endswith(NUMBERS[level])
    ]
    if not found and level == "edge":
        raise ConfigError(
            "data.features_from has features of the level edge, which are for bonds alone. Leave "
            "them out, or give them to the nodes."
        )
    return found or [(f"type:{schema.types[0].name}", "")]


def _counts(dag: TypedDAG, level: str, spaces: Sequence[tuple[str, str]]) -> Tensor:
    """[num_graphs] for how many nodes or edges each graph needs features."""
    counts = dag.row_ptr(spaces[0][0]).diff()
    return counts // 2 if level == "edge" else counts  # an edge has a row in both directions


def _places(dag: TypedDAG, level: str, space: str, prefix: str, first: Tensor) -> Tensor:
    """[num_rows] the place of each row's features among those of the level in all graphs.

    Args:
        dag: the graphs, with numbers of nodes and edges where rows have another order.
        level: "graph", "node" or "edge".
        space: the space of the rows.
        prefix: of the names of its columns.
        first: [num_graphs] the first place of each graph.
    """
    numbers = dag.columns[space].get(f"{prefix}{NUMBERS.get(level)}")
    if numbers is None:
        return torch.arange(dag.num_rows(space))
    return numbers + repeat(first, dag.row_ptr(space).diff())
