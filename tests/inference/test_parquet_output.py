"""predict --format parquet: the rows of the CSV file, with types, whole or not at all."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from training.tiny_runs import run, train, write_molecules

from graphfold import TablePredictor
from graphfold.inference.predictor import Predictor

SMALL = ["model.hidden_size=8", "model.fuse=false", "trainer.max_epochs=1", "data.batch_size=8"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("parquet")


@pytest.fixture(scope="module")
def molecules(folder: Path) -> Path:
    table = write_molecules(folder / "m.csv")
    words = ["data=smiles", f"data.path={table}", "data.target_columns=['a b',c]"]
    return train(folder / "run", *words, *SMALL)


@pytest.fixture(scope="module")
def table(folder: Path) -> Path:
    """More rows than are put into columns at once, bad ones among them, and bytes of Latin 1."""
    path = write_molecules(folder / "new.csv", 2_500, bad_rows=3)
    path.write_bytes(path.read_bytes() + b"caf\xe9,CC,1,1,1\n")
    return path


def as_text(rows: list[dict[str, Any]]) -> list[dict[str, str]]:
    return [{k: "" if v is None else str(v) for k, v in row.items()} for row in rows]


def test_the_rows_are_those_of_the_csv_file(molecules: Path, table: Path, tmp_path: Path) -> None:
    assert run("predict", molecules, table, "--output", tmp_path / "p.parquet") == 0
    assert run("predict", molecules, table, "--output", tmp_path / "p.csv") == 0
    found = pq.read_table(tmp_path / "p.parquet")
    with (tmp_path / "p.csv").open(encoding="utf-8", errors="replace") as file:
        expected = list(csv.DictReader(file))
    assert as_text(found.to_pylist()) == expected
    assert sum(bool(row["reason"]) for row in expected) == 4
    assert [found.schema.field(name).type for name in ("id", "smiles")] == [pa.string()] * 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["p.csv", "p.parquet"]


def test_columns_of_parquet_keep_their_types(molecules: Path, table: Path, tmp_path: Path) -> None:
    rows = pyarrow.csv.read_csv(table.with_name("m.csv"))
    rows = rows.append_column("weights", pa.array([[0.5, None]] * rows.num_rows))
    for part in range(2):
        (tmp_path / "in" / f"k={part}").mkdir(parents=True)
        pq.write_table(rows.slice(15 * part, 15), tmp_path / "in" / f"k={part}" / "x.parquet")
    words = ("predict", molecules, tmp_path / "in", "--output", tmp_path / "out")
    assert run(*words, "--format", "parquet") == 0
    found = pq.ParquetFile(tmp_path / "out" / "k=1" / "x.parquet").read()
    declared = TablePredictor(molecules).schema(rows.schema)
    assert found.schema.remove_metadata() == declared.remove_metadata()
    assert found.select(rows.column_names).equals(rows.slice(15, 15))
    whole = pq.read_table(tmp_path / "out")  # the folder is a data set
    assert whole.num_rows == 30
    assert {*whole["k"].to_pylist()} == {0, 1}


def test_broken_off_it_leaves_nothing(
    molecules: Path, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, allowed = Predictor.plan, iter(range(2))

    def plan_or_stop(self: Predictor, *args: Any) -> Any:
        if next(allowed, None) is None:
            raise KeyboardInterrupt
        return plan(self, *args)

    monkeypatch.setattr(Predictor, "plan", plan_or_stop)
    assert run("predict", molecules, table, "--output", tmp_path / "p.parquet") == 1
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("place", ["head", "middle", "cut"])
@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_a_damaged_input_is_named(
    form: str, place: str, molecules: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "new.parquet"
    pq.write_table(pa.table({"smiles": ["CCO" + "O" * (n % 50) for n in range(5_000)]}), path)
    content = bytearray(path.read_bytes())
    damaged = {"head": b"x" * len(content), "cut": content[:-100]}.get(place)
    if damaged is None:
        damaged = content[:20] + bytes(1_000) + content[1_020:]
    path.write_bytes(damaged)
    assert run("predict", molecules, path, "--output", tmp_path / f"p.{form}") == 2
    error = capsys.readouterr().err
    assert "new.parquet: cannot be read as Parquet" in error
    assert not (tmp_path / f"p.{form}").exists()


def test_what_is_no_table_in_a_file_is_refused(
    molecules: Path, table: Path, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trees = folder / "trees.txt"
    trees.write_text("(2 (1 a) (3 film))\n" * 30)
    model = train(
        folder / "trees", "data=brackets", f"data.path={trees}", "+data.num_classes=5", *SMALL
    )
    capsys.readouterr()
    output = ("--output", tmp_path / "p.parquet")
    for words, message in (
        ((molecules, table, "--format", "parquet"), "is for files. Name one with --output"),
        ((molecules, table, "--explain", *output), "no place for contributions"),
        ((molecules, table, table, *output), "has the ending of a file"),
        ((model, trees, *output), "Parquet holds tables, but the run reads none"),
    ):
        assert run("predict", *words) == 2
        assert message in capsys.readouterr().err
    assert not [*tmp_path.iterdir()]
