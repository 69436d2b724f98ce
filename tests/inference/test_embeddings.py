"""predict --embeddings: one row per record, and what the head makes of it is the prediction."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from training.tiny_runs import run

import graphfold
from graphfold.datasets.adapter import read_records
from graphfold.errors import DataError
from graphfold.inference.predictor import Predictor


@pytest.fixture
def new(tmp_path: Path) -> Path:
    path = tmp_path / "embedded.csv"
    path.write_text("name,smiles,embedding_0\nbad,C1CC,x\nheptane,CCCCCCC,\nether,CCOCC,\n")
    return path


def table_of(run_path: Path, path: Path, output: Path, *words: str) -> list[dict[str, str]]:
    assert run("predict", run_path, path, "--embeddings", "--output", output, *words) == 0
    with output.open(newline="") as file:
        return list(csv.DictReader(file))


def vectors(rows: list[dict[str, str]], width: int) -> torch.Tensor:
    names = [name for name in rows[0] if name.startswith("embedding_")][-width:]
    return torch.tensor([[float(row[name]) for name in names] for row in rows])


def head_of(predictor: Predictor, rows: torch.Tensor) -> list[Any]:
    head = predictor.trained.model.head
    with torch.no_grad():
        found: list[Any] = head.decode(head(rows)).tolist()
    return found


def test_the_head_makes_the_prediction_of_an_embedding(numbers, new, tmp_path, capsys):
    rows = table_of(numbers, new, tmp_path / "e.csv")
    assert "2 embedded, 1 could not be read" in capsys.readouterr().err
    assert [row["name"] for row in rows] == ["bad", "heptane", "ether"]
    assert rows[0]["embedding_0"] == "x"  # the input's own column of that name stays
    assert "RDKit cannot read SMILES 'C1CC'" in rows[0]["reason"]
    assert rows[0]["embedding_0_2"] == rows[0]["embedding_7"] == rows[1]["reason"] == ""
    predictor = graphfold.load(numbers)
    wanted = predictor.predict(["CCCCCCC", "CCOCC"])
    names = predictor.trained.head.targets
    for row, answer in zip(head_of(predictor, vectors(rows[1:], 8)), wanted, strict=True):
        assert row == pytest.approx([answer["prediction"][name] for name in names], rel=1e-5)


def test_every_format_and_python_have_the_same_numbers(numbers, new, tmp_path, capsys):
    rows = table_of(numbers, new, tmp_path / "e.csv", "--batch-size", "1")
    wanted = vectors(rows[1:], 8)
    for suffix in ("npy", "parquet"):
        words = (numbers, new, "--embeddings", "--output", tmp_path / f"e.{suffix}")
        assert run("predict", *words) == 0
    array = np.load(tmp_path / "e.npy")
    assert (array.shape, array.dtype) == ((3, 8), np.float32)
    assert np.isnan(array[0]).all()
    torch.testing.assert_close(torch.tensor(array[1:]), wanted, rtol=1e-5, atol=1e-6)
    table: dict[str, list[Any]] = pq.read_table(tmp_path / "e.parquet").to_pydict()
    assert list(table) == list(rows[0])
    assert table["embedding_7"][0] is None
    assert table["embedding_7"][1:] == pytest.approx(array[1:, 7].tolist(), rel=1e-6)
    assert table["reason"] == [row["reason"] for row in rows]
    capsys.readouterr()
    assert run("predict", numbers, new, "--embeddings", "--batch-size", "1") == 0
    assert capsys.readouterr().out == (tmp_path / "e.csv").read_text()
    model = graphfold.load(numbers)
    embedded = model.embed(["C1CC", "CCCCCCC", "CCOCC"])
    torch.testing.assert_close(embedded[1:], wanted, rtol=1e-5, atol=1e-6)
    assert embedded[0].isnan().all()
    assert (model.embed(["C1CC"]).shape, model.embed([]).shape) == ((1, 0), (0, 0))
    with pytest.raises(DataError, match=r"embed takes a list, .* Write embed\(\['CCO'\]\)"):
        model.embed("CCO")


def test_a_tree_is_embedded_as_its_root(trees, home, tmp_path):
    path = home / "corpora" / "sst" / "test.txt"
    rows = table_of(trees, path, tmp_path / "t.csv")
    assert [row["line"] for row in rows] == [str(n) for n in range(1, 13)]
    predictor = graphfold.load(trees)
    answers = predictor.predict(path.read_text().splitlines())
    for row, answer in zip(head_of(predictor, vectors(rows, 8)), answers, strict=True):
        assert row == pytest.approx(list(answer["probabilities"].values()), rel=1e-4)


def test_words_are_embedded_as_their_mean(tagger, home, tmp_path):
    path = home / "corpora" / "ud_english_ewt" / "en_ewt-ud-dev.conllu"
    rows = table_of(tagger, path, tmp_path / "w.csv")
    predictor = graphfold.load(tagger)
    model = predictor.trained.model
    records = list(predictor.adapter.records(path))
    batch = predictor.plan(read_records(predictor.adapter, path, records[:1], "raise").dag)
    with torch.no_grad():
        wanted = model.rows(model.states(batch), batch).mean(0)
    torch.testing.assert_close(vectors(rows[:1], len(wanted))[0], wanted, rtol=1e-5, atol=1e-6)
