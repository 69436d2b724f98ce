"""Reads files of query plans, with their costs."""

import json
from pathlib import Path

import pytest
import torch
from datasets.readers.plan_documents import (
    DUCKDB_EXPLAIN,
    DUCKDB_NEWER_PROFILE,
    DUCKDB_PROFILE,
    POSTGRESQL,
    SQLITE,
)

from graphfold.dag import TypedDAG
from graphfold.datasets.adapter import read_records
from graphfold.datasets.readers.plans import PlansAdapter
from graphfold.errors import DataError, RecordError


def read(path: Path, adapter: PlansAdapter, on_error: str = "raise") -> TypedDAG:
    return read_records(adapter, path, adapter.records(path), on_error).dag


def test_plans_over_many_lines_and_on_one_line_read_the_same(tmp_path: Path) -> None:
    whole, lines = tmp_path / "whole.json", tmp_path / "lines.jsonl"
    whole.write_text("\n".join(json.dumps(POSTGRESQL, indent=2) for _ in range(2)))
    lines.write_text("\n".join(json.dumps(POSTGRESQL) for _ in range(2)))
    adapter = PlansAdapter("Execution Time", "ms")
    dags = [read(path, adapter) for path in (whole, lines)]
    for dag in dags:
        assert dag.num_graphs == 2
        assert dag.columns["graph"]["Execution Time"].tolist() == [1.75, 1.75]
    assert torch.equal(dags[0].input_index, dags[1].input_index)


def test_the_root_is_the_output_and_measurements_are_no_features(tmp_path: Path) -> None:
    path = tmp_path / "plans.json"
    path.write_text(json.dumps(POSTGRESQL))
    dag = read(path, PlansAdapter("Execution Time"))
    names = [dag.schema.types[t].name for t in dag.op_type.tolist()]
    assert names == ["leaf", "leaf", "unary", "binary"]
    assert dag.output_index.tolist() == [3]
    values = {name: column.tolist() for name, column in dag.features("binary").items()}
    assert values["rows"] == pytest.approx([3.0])
    assert "77" not in json.dumps(values)
    assert "1.5" not in json.dumps(values)


def test_a_folder_of_plans_and_targets_by_path(tmp_path: Path) -> None:
    for number in range(3):
        text = json.dumps({"plan": DUCKDB_EXPLAIN, "took": {"wall time": number + 1}})
        (tmp_path / f"{number}.json").write_text(text)
    dag = read(tmp_path, PlansAdapter("$.took['wall time']"))
    assert dag.columns["graph"]["wall time"].tolist() == [1, 2, 3]
    (tmp_path / "profile").mkdir()
    path = tmp_path / "profile" / "one.json"
    path.write_text(json.dumps(DUCKDB_PROFILE))
    assert read(path, PlansAdapter("latency")).columns["graph"]["latency"].item() > 0
    path.write_text(json.dumps(DUCKDB_NEWER_PROFILE))
    dag = read(path, PlansAdapter("$.query.total_time"))
    assert dag.columns["graph"]["total_time"].tolist() == [0.25]


def test_operators_of_many_inputs_are_chains(tmp_path: Path) -> None:
    scan = {"Node Type": "Seq Scan"}
    path = tmp_path / "plan.json"
    path.write_text(json.dumps({"Plan": {"Node Type": "Append", "Plans": [scan] * 4}, "cost": 3}))
    dag = read(path, PlansAdapter())
    assert dag.num_nodes_by_type == [4, 0, 3]


def test_records_without_a_cost_are_counted_and_predicted(tmp_path: Path) -> None:
    path = tmp_path / "plans.jsonl"
    costs = [SQLITE, {**SQLITE, "cost": None}, {**SQLITE, "cost": 0}, {**SQLITE, "cost": "9"}]
    path.write_text("\n".join(map(json.dumps, costs)))
    adapter = PlansAdapter()
    result = read_records(adapter, path, adapter.records(path), "skip")
    assert result.kept == (0,)
    reasons = [error.fault for error in result.skipped]
    faults = ("no 'cost'", "above zero", "no number")
    assert [fault in reason for fault, reason in zip(faults, reasons, strict=True)] == [True] * 3
    with pytest.raises(RecordError, match=r"plans.jsonl:3.*above zero"):
        read(path, adapter)
    assert read(path, adapter.without_targets()).num_graphs == 4


def test_files_that_are_no_plans(tmp_path: Path) -> None:
    path = tmp_path / "plans.json"
    path.write_text("[\n {,}\n]")
    with pytest.raises(DataError, match=r"plans.json:2: is no JSON"):
        list(PlansAdapter().records(path))
    path.write_text(" \n")
    with pytest.raises(DataError, match="holds no plans"):
        list(PlansAdapter().records(path))
    path.write_text('{"plan": [[1, 0, 0, "SCAN a"]], "cost": 3}\n{"a": NaN}\n')
    with pytest.raises(RecordError, match=r"plans.json:2.*NaN is no JSON number"):
        read(path, PlansAdapter())


def test_a_plan_may_be_the_object_itself() -> None:
    adapter = PlansAdapter().without_targets()
    statement = POSTGRESQL[0] if isinstance(POSTGRESQL, list) else POSTGRESQL
    items = [json.dumps(statement), statement, [statement]]
    dags = [read_records(adapter, Path(), [adapter.record_of(item)]).dag for item in items]
    assert dags[0].num_nodes > 1
    assert [dag.columns["graph"]["text"].tolist() for dag in dags].count(
        dags[0].columns["graph"]["text"].tolist()
    ) == 3
    assert all(torch.equal(dag.op_type, dags[0].op_type) for dag in dags)
    with pytest.raises(RecordError, match="is no plan"):
        read_records(adapter, Path(), [adapter.record_of([statement, statement])])


def test_a_target_that_is_not_there_names_the_numbers_that_are(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps({"rows": 5, **DUCKDB_NEWER_PROFILE}))
    adapter = PlansAdapter("latency")
    (left_out,) = read_records(adapter, path, adapter.records(path)).skipped
    assert left_out.fault == "there is no 'latency' in the record"
    assert "number of it: $.query.cpu_time, $.query.total_time, $.rows." in left_out.remedy
