"""JSON records: any nested values, of a schema that is inferred from a sample."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import yaml

from graphfold.dag import Column, GraphBuilder, Schema, TypedDAG
from graphfold.datasets.adapter import Adapter, Record
from graphfold.datasets.files.table_columns import (
    Positive,
    class_name,
    positive_last,
    refuse_unknown_targets,
)
from graphfold.datasets.files.text_files import at_least_one
from graphfold.datasets.readers.json_documents import (
    ABSENT,
    JsonPath,
    finite_number,
    parse_json,
    scan_documents,
)
from graphfold.datasets.readers.json_inference import (
    Fields,
    Position,
    from_dict,
    infer_positions,
    to_dict,
)
from graphfold.datasets.readers.json_nodes import RecordWriter, node_types
from graphfold.errors import ConfigError, LeftOut, RecordError, count_of, did_you_mean

#: The column that counts keys and values without a place in the schema.
UNSEEN = "unseen"


class JsonAdapter(Adapter):
    """Reads JSON records, one on a line or whole documents; see `scan_documents`.

    What stands at each place of a record is inferred from the first records, can be edited, and is
    kept with the run. Each place is a node type of its own (see `node_types`), so that a model has
    weights for each, as in Pevný and Somol (2016), https://arxiv.org/abs/1609.07257. What the
    schema has no place for, such as a key that the sample lacks or text in place of a number, is
    read as absent and counted in the graph feature `unseen`. Null is absent, too.

    Args:
        target: where the target is, see `JsonPath`; it is no feature. None for no target.
        task: "regression": the target is a number; "classification": it is one of some values.
            None takes classification unless all targets of the sample are numbers.
        class_names: the classes of the target, in order; by default those in the files.
        positive: of two classes the one that areas, F1 and recall are about; None for the second.
        unit: the unit of a number.
        ignore: paths that are no features, such as an identifier.
        record_schema: what stands at each place: the mapping that `check-adapter` prints, or the
            name of a YAML or JSON file with it. None infers it.
        sample: how many records it is inferred from.
        most_values: the most values of a record, inner ones and keys counted: each may be a node.

    Raises:
        ConfigError: if a path or the schema cannot be read, or an option has no use.
    """

    expands_folders = True

    def __init__(
        self,
        target: str | None = None,
        task: Literal["regression", "classification"] | None = None,
        class_names: Sequence[str] | None = None,
        unit: str | None = None,
        ignore: Sequence[str] = (),
        record_schema: Mapping[str, Any] | str | None = None,
        sample: int = 1_000,
        positive: Positive = None,
        most_values: int = 200_000,
    ) -> None:
        if sample < 1:
            raise ConfigError(f"sample is {sample}. Give at least 1.")
        self.target = None if target is None else JsonPath(target)
        self.task, self.sample, self.most_values = task, sample, most_values
        self.ignored = [JsonPath(path) for path in ignore]
        if self.target is not None:
            self.ignored.append(self.target)
        self.is_open = record_schema is None
        self.root = Fields({}) if record_schema is None else _positions(record_schema)
        self.positive = positive
        self.classes = self._named(class_names or ())
        self.schema = Schema(
            types=node_types(self.root),
            graph_features=(Column(UNSEEN, "int64"),),
            graph_targets=self._targets(unit),
        )

    def _named(self, names: Sequence[str]) -> list[str]:
        """The classes in their order, if they are known."""
        if self.target is None:
            if names or self.positive is not None:
                raise ConfigError(
                    "data.class_names and data.positive are about the classes of a target, but "
                    "there is none. Set data.target."
                )
            return []
        refuse_unknown_targets("positive", self.positive, [self.target.name])
        if self.task == "regression" and (names or self.positive is not None):
            raise ConfigError(
                "data.class_names and data.positive are for classes, but data.task is regression. "
                "Leave them out, or set data.task=classification."
            )
        return [*positive_last(names, self.positive, self.target.name)] if names else []

    def _targets(self, unit: str | None) -> tuple[Column, ...]:
        if self.target is None:
            return ()
        if self.task == "regression" or (self.task is None and not self.classes):
            return (Column(self.target.name, unit=unit, task=self.task),)
        names = tuple(self.classes)
        return (Column(self.target.name, "int64", names=names, task="classification"),)

    def records(self, path: Path) -> Iterator[Record]:
        """One record per JSON value, `content` being the value."""
        yield from at_least_one(self._cut(path), path, "records")

    def _cut(self, path: Path) -> Iterator[Record]:
        for file in self.sources(path):
            yield from (self._record(*document) for document in scan_documents(file))

    def record_of(self, item: Any) -> Record:
        """A string holds JSON; anything else is taken as the value itself."""
        if not isinstance(item, str):
            return self._record(1, item)
        value, fault = parse_json(item)
        return super().record_of(item) if fault else self._record(1, value)

    def _record(self, line: int, value: Any, fault: RecordError | None = None) -> Record:
        """The record of a value; without it, where there are too many values in it."""
        if fault is None and _has_more_values(value, self.most_values):
            fault = RecordError(
                f"the record has more than {self.most_values:,} values",
                "Set data.most_values to read larger ones, or data.on_error=skip.",
            )
            value = None
        return Record(line, value, fault)

    def item_columns(self, names: Sequence[str]) -> None:
        """All: each row is a record."""

    def infer_options(self, paths: Sequence[Path]) -> Mapping[str, Any]:
        """The schema from the first records of the first file, the classes from all files."""
        found: dict[str, Any] = {"record_schema": to_dict(self.root)}
        if self.is_open:
            sample = (r.content for r in self.records(paths[0]) if r.fault is None)
            kept = (self._features(value) for value in islice(sample, self.sample))
            found["record_schema"] = to_dict(infer_positions(kept))
        if self.target is None or self.task == "regression":
            return found
        if self.classes:
            return {**found, "task": "classification"}
        values = [v for path in paths for v in self._target_values(path) if not _is_absent(v)]
        is_number = all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)
        task = self.task or ("regression" if is_number else "classification")
        if task == "classification":
            names = sorted(set(map(class_name, values)))
            if len(names) < 2:
                raise ConfigError(
                    f"the target '{self.target.text}' has {len(names)} different values in the "
                    "files. Give two or more classes, or set data.task=regression."
                )
            found["class_names"] = [*positive_last(names, self.positive, self.target.name)]
        elif self.positive is not None:
            raise ConfigError(
                f"data.positive is for classes, but all values of '{self.target.text}' are "
                "numbers. Leave it out, or set data.task=classification."
            )
        return {**found, "task": task}

    def _target_values(self, path: Path) -> Iterator[Any]:
        assert self.target is not None
        for record in self.records(path):
            value = self.target.find(record.content)
            if not isinstance(value, list | dict):
                yield value

    def parse(self, record: Record, graph: GraphBuilder) -> None:
        """Writes one record; see `Adapter.parse`."""
        columns: dict[str, Any] = {}
        if self.target is not None:
            columns[self.target.name] = self._target_of(record.content, self.target)
        writer = RecordWriter(graph)
        root = writer.write(self._features(record.content), self.root)
        if root is None:
            raise RecordError(
                f"the record is {type(record.content).__name__}, which the schema has no place for"
            )
        graph.output(root)
        graph.finish(line=record.line, columns={**columns, UNSEEN: writer.unseen})

    def without_targets(self) -> JsonAdapter:
        """See `Adapter.without_targets`."""
        adapter = copy.copy(self)
        adapter.target = None
        return adapter

    def description(self) -> str:
        """The schema of the records, as YAML."""
        text = yaml.safe_dump(to_dict(self.root), allow_unicode=True, sort_keys=False)
        return "# data.record_schema=FILE takes this, edited or not\n" + text.rstrip()

    def notes(self, dag: TypedDAG) -> list[str]:
        """The number of records that have what the schema lacks."""
        unseen = dag.columns["graph"][UNSEEN]
        count, total = int((unseen > 0).sum()), int(unseen.sum())
        if not total:
            return []
        values, records = count_of(total, "value"), count_of(count, "record")
        return [f"without a place in the schema, and left out: {values} in {records}"]

    def _features(self, value: Any) -> Any:
        """The record without its target and what is ignored."""
        for path in self.ignored:
            if path.find(value) is not ABSENT:
                value = _without(value, path.steps)
        return value

    def _target_of(self, value: Any, target: JsonPath) -> float | int:
        found = target.find(value)
        if _is_absent(found):
            raise LeftOut(f"there is no '{target.text}' in the record")
        if self.classes:
            name = class_name(found)
            if isinstance(found, list | dict) or name not in self.classes:
                hint = did_you_mean(name, self.classes)
                raise RecordError(
                    f"'{target.text}' is {found!r}, which is none of the classes.{hint} They are: "
                    + ", ".join(self.classes)
                )
            return self.classes.index(name)
        number = finite_number(found)
        if number is None:
            raise RecordError(f"'{target.text}' is {found!r}, which is no finite number")
        return number


def _is_absent(value: Any) -> bool:
    return value is None or value is ABSENT


def _has_more_values(value: Any, most: int) -> bool:
    """True if there are more than so many values in a value, itself and keys counted."""
    waiting = [value]
    count = 1
    while waiting and count <= most:
        item = waiting.pop()
        if isinstance(item, Mapping):
            count += 2 * len(item)
            waiting += item.values()
        elif isinstance(item, Sequence) and not isinstance(item, str):
            count += len(item)
            waiting += item
    return count > most


def _without(value: Any, steps: Sequence[str | int]) -> Any:
    """A copy of a value without the place at the end of some steps."""
    first, *rest = steps
    items: Iterable[tuple[Any, Any]]
    if isinstance(value, Mapping):
        return {
            k: _without(v, rest) if k == first else v
            for k, v in value.items()
            if k != first or rest
        }
    items = enumerate(value)
    return [_without(v, rest) if n == first else v for n, v in items if n != first or rest]


def _positions(schema: Mapping[str, Any] | str) -> Position:
    """The positions of a schema, or of the schema in a file."""
    try:
        return from_dict(_load(schema) if isinstance(schema, str) else schema)
    except RecursionError as error:  # an alias of YAML may even hold itself
        raise ConfigError(
            "data.record_schema is nested too deeply. Give a flatter one, or null to infer it."
        ) from error


def _load(name: str) -> Any:
    """The schema in a file."""
    try:
        return yaml.safe_load(Path(name).expanduser().read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(
            f"data.record_schema: cannot read the file {name} ({error}). Give what "
            "`graphfold check-adapter json --data FILE` prints."
        ) from error
