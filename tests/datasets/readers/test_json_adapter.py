"""Reads JSON records of any schema."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from graphfold.dag import TypedDAG
from graphfold.datasets.adapter import ReadResult, read_records
from graphfold.datasets.readers.json_records import JsonAdapter
from graphfold.errors import ConfigError

RECORDS: list[dict[str, Any]] = [
    {"id": i, "ключ": {"tags": ["x"] * (i % 4), "n.1": i / 7}, "label": "ab"[i % 2]}
    for i in range(12)
]


def write(path: Path, records: list[Any]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def adapter_of(path: Path, **options: Any) -> JsonAdapter:
    found = JsonAdapter(**options).infer_options([path])
    return JsonAdapter(**{**options, **found})


def read(adapter: JsonAdapter, path: Path, on_error: str = "raise") -> ReadResult:
    return read_records(adapter, path, adapter.records(path), on_error)


def types(dag: TypedDAG) -> dict[str, int]:
    names = [item.name for item in dag.schema.types]
    return dict(zip(names, dag.num_nodes_by_type, strict=True))


def test_records_become_trees_of_their_places(tmp_path: Path) -> None:
    path = write(tmp_path / "r.jsonl", RECORDS)
    adapter = adapter_of(path, target="$.label", ignore=["$.id"])
    dag = read(adapter, path).dag
    tags = sum(i % 4 for i in range(12))
    assert types(dag) == {
        "$": 12,
        "$/ключ": 12,
        "$/ключ/n․1": 12,  # a key with a full stop
        "$/ключ/tags": 12,
        "$/ключ/tags[*]": tags,
    }
    assert adapter.schema.graph_targets[0].names == ("a", "b")
    assert dag.columns["graph"]["label"].tolist() == [0, 1] * 6
    assert adapter.notes(dag) == []


def test_unseen_keys_and_kinds_are_counted_and_never_fatal(tmp_path: Path) -> None:
    path = write(tmp_path / "r.jsonl", RECORDS)
    adapter = adapter_of(path, target="$.label")
    strange = [
        {"id": "text", "new": [1, 2], "ключ": {"tags": ["y", 3, None]}, "label": "a"},
        {"ключ": None, "label": "b"},
        {"label": "a"},
    ]
    dag = read(adapter, write(tmp_path / "s.jsonl", strange)).dag
    assert dag.columns["graph"]["unseen"].tolist() == [4, 0, 0]  # id, new, "y" and 3
    assert adapter.notes(dag) == [
        "without a place in the schema, and left out: 4 values in 1 record"
    ]


def test_targets_of_every_kind(tmp_path: Path) -> None:
    values = [True, False, None, True]
    path = write(tmp_path / "b.jsonl", [{"x": 1, "y": v} for v in values])
    adapter = adapter_of(path, target="$.y")
    result = read(adapter, path)
    assert adapter.schema.graph_targets[0].names == ("false", "true")
    assert result.dag.columns["graph"]["y"].tolist() == [1, 0, 1]
    assert [error.fault for error in result.skipped] == ["there is no '$.y' in the record"]
    path = write(tmp_path / "n.jsonl", [{"x": [{"y": v}]} for v in (1, 2.5, 3)])
    adapter = adapter_of(path, target="$.x[0].y", unit="s")
    assert read(adapter, path).dag.columns["graph"]["y"].tolist() == [1, 2.5, 3]
    adapter = adapter_of(path, target="$.x[0].y", task="classification")
    assert read(adapter, path).dag.columns["graph"]["y"].tolist() == [0, 1, 2]
    bad = write(tmp_path / "c.jsonl", [{"x": [{"y": 4}]}, {"x": [{"y": {}}]}, {"x": [{"y": 1}]}])
    result = read(adapter, bad, "skip")
    assert result.kept == (2,)
    assert all("none of the classes" in error.fault for error in result.skipped)
    with pytest.raises(ConfigError, match="1 different values"):
        adapter_of(write(tmp_path / "o.jsonl", [{"y": "a"}]), target="y")


def test_classes_are_told_apart_by_name(tmp_path: Path) -> None:
    values = [1, True, "1", 1.0, "true", 2.5]
    path = write(tmp_path / "b.jsonl", [{"x": 1, "y": v} for v in values])
    adapter = adapter_of(path, target="$.y")
    assert adapter.schema.graph_targets[0].names == ("1", "2.5", "true")
    assert read(adapter, path).dag.columns["graph"]["y"].tolist() == [0, 2, 0, 0, 2, 1]


@pytest.mark.parametrize("value", [10**400, -1e39, True, "1"])
def test_a_target_is_a_finite_number(value: Any, tmp_path: Path) -> None:
    path = write(tmp_path / "r.jsonl", [{"x": 1, "y": 1}, {"x": 1, "y": value}])
    result = read(adapter_of(path, target="$.y", task="regression"), path, "skip")
    assert result.kept == (0,)
    assert "no finite number" in result.skipped[0].fault


def test_an_edited_schema_is_taken_as_it_is(tmp_path: Path) -> None:
    path = write(tmp_path / "r.jsonl", RECORDS)
    schema = tmp_path / "schema.yaml"
    schema.write_text(adapter_of(path, ignore=["$.label"]).description())
    whole = adapter_of(path, record_schema=str(schema))
    assert set(types(read(whole, path).dag)) > {"$/id"}
    schema.write_text("kind: object\nfields: {id: {kind: number}}")
    small = adapter_of(path, record_schema=str(schema))
    assert types(read(small, path).dag) == {"$": 12, "$/id": 12}
    schema.write_text("&own {kind: list, items: *own}")
    with pytest.raises(ConfigError, match="nested too deeply"):
        adapter_of(path, record_schema=str(schema))
    schema.write_text("kind: [")
    with pytest.raises(ConfigError, match=r"cannot read the file.*schema\.yaml"):
        JsonAdapter(record_schema=str(schema))


def test_long_lists_deep_values_and_bad_lines(tmp_path: Path) -> None:
    deep: Any = 1
    for _ in range(300):
        deep = [deep]
    records = [{"a": list(range(100_000))}, {"a": [], "deep": deep}, {}]
    path = write(tmp_path / "r.jsonl", records)
    adapter = adapter_of(path)
    with path.open("a") as file:
        file.write('{"a": [1}\n[]\n' + "[" * 5_000 + "]" * 5_000 + "\n")
    result = read(adapter, path, "skip")
    assert result.kept == (0, 1, 2)
    assert types(result.dag)["$/a[*]"] == 100_000
    assert result.dag.features("$/a")["length"].max() == pytest.approx(math.log1p(100_000))
    faults = [error.fault for error in result.skipped]
    assert "no JSON value" in faults[0]
    assert "no place for" in faults[1]
    assert "nested too deeply" in faults[2]


def test_records_are_given_as_text_or_as_values(tmp_path: Path) -> None:
    path = write(tmp_path / "r.jsonl", RECORDS)
    adapter = adapter_of(path, target="$.label").without_targets()
    for item in ('{"id": 3}', {"id": 3}):
        assert read_records(adapter, path, [adapter.record_of(item)]).dag.num_nodes == 2


def test_true_and_false_stand_beside_strings_and_all_other_kinds(tmp_path: Path) -> None:
    values = [True, "a", "a", "b", "b", 1, [1], {"k": 1}, None]
    rows = [{"x": value, "label": i % 2} for i, value in enumerate(values)]
    path = write(tmp_path / "r.jsonl", rows)
    adapter = adapter_of(path, target="$.label", task="classification")
    dag = read(adapter, path).dag
    counts = {name: count for name, count in types(dag).items() if name.startswith("$/x:")}
    assert counts == {
        "$/x:bool": 1,
        "$/x:category": 4,
        "$/x:list": 1,
        "$/x:list[*]": 1,
        "$/x:number": 1,
        "$/x:object": 1,
        "$/x:object/k": 1,
    }
    assert dag.columns["graph"]["unseen"].tolist() == [0] * 9


def test_a_record_of_too_many_values_is_refused(tmp_path: Path) -> None:
    """Inner values and keys count; the limit is said, and can be changed."""
    small, large = {"a": [1, 2]}, {"a": [1, 2, 3]}  # 5 and 6 values
    path = write(tmp_path / "r.jsonl", [small, large])
    adapter = JsonAdapter(most_values=5)
    (error,) = read(adapter, path, "skip").skipped
    assert error.reason == (
        "the record has more than 5 values. Set data.most_values to read larger ones, or "
        "data.on_error=skip."
    )
    assert error.line == 2
    assert adapter.record_of(large).fault is not None
    wider = JsonAdapter(most_values=6)
    assert wider.record_of(large).fault is None
    assert JsonAdapter().record_of({f"k{k}": k for k in range(100_000)}).fault is not None
    assert JsonAdapter().record_of({f"k{k}": k for k in range(99_000)}).fault is None
