"""Embeddings of files: one row per record, and what the head makes of it is the prediction."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from training.tiny_runs import run, train, write_corpora, write_molecules

import graphfold
from graphfold.datasets.adapter import read_records
from graphfold.errors import DataError
from graphfold.inference.predictor import Predictor

SMALL = ["model.hidden_size=8", "model.fuse=false", "trainer.max_epochs=1", "data.batch_size=8"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("embeddings")


@pytest.fixture(scope="module")
def molecules(folder: Path) -> Path:
    table = write_molecules(folder / "m.csv")
    columns = "data.target_columns=['a b',c]"
    words = ["data=smiles", "model=dmpnn", f"data.path={table}", columns]
    return train(folder / "molecules", *words, *SMALL)


@pytest.fixture(scope="module")
def new(folder: Path) -> Path:
    path = folder / "new.csv"
    path.write_text("name,smiles,embedding_0\nbad,C1CC,x\nheptane,CCCCCCC,\nether,CCOCC,\n")
    return path


def table_of(run_path: Path, path: Path, output: Path, *words: str) -> list[dict[str, str]]:
    assert run("fingerprint", run_path, path, "--output", output, *words) == 0
    with output.open(newline="") as file:
        return list(csv.DictReader(file))


def vectors(rows: list[dict[str, str]], width: int) -> torch.Tensor:
    names = [name for name in rows[0] if name.startswith("embedding_")][-width:]
    return torch.tensor([[float(row[name]) for name in names] for row in rows])


def head_of(predictor: Predictor, rows: torch.Tensor) -> torch.Tensor:
    head = predictor.trained.model.head
    with torch.no_grad():
        return head.decode(head(rows))


def test_the_head_makes_the_prediction_of_an_embedding(
    molecules: Path, new: Path, folder: Path
) -> None:
    rows = table_of(molecules, new, folder / "e.csv")
    assert [row["name"] for row in rows] == ["bad", "heptane", "ether"]
    assert rows[0]["embedding_0"] == "x"  # the input's own column of that name stays
    assert "RDKit cannot read SMILES 'C1CC'" in rows[0]["reason"]
    assert rows[0]["embedding_0_2"] == rows[0]["embedding_7"] == rows[1]["reason"] == ""
    predictor = graphfold.load(molecules)
    wanted = predictor.predict(["CCCCCCC", "CCOCC"])
    found = head_of(predictor, vectors(rows[1:], 8))
    names = predictor.trained.model.head.targets
    for row, answer in zip(found.tolist(), wanted, strict=True):
        assert row == pytest.approx([answer["prediction"][name] for name in names], rel=1e-5)


def test_python_has_the_numbers_of_the_command(molecules: Path, new: Path, folder: Path) -> None:
    model = graphfold.load(molecules)
    embedded = model.embed(["C1CC", "CCCCCCC", "CCOCC"])
    rows = table_of(molecules, new, folder / "e.csv")
    torch.testing.assert_close(embedded[1:], vectors(rows[1:], 8), rtol=1e-6, atol=1e-6)
    assert embedded[0].isnan().all()
    assert embedded.shape == (3, 8)
    assert model.embed(["C1CC"]).shape == (1, 0)
    assert model.embed([]).shape == (0, 0)
    with pytest.raises(DataError, match=r"embed takes a list, .* Write embed\(\['CCO'\]\)"):
        model.embed("CCO")


def test_the_module_computes_the_embeddings(molecules: Path) -> None:
    model = graphfold.load(molecules)
    records = [model.adapter.record_of(smiles) for smiles in ("CCO", "c1ccccc1")]
    batch = model.plan(read_records(model.adapter, Path(), records).dag)
    assert not model.module.training
    with torch.no_grad():
        rows = model.module.rows(model.module.states(batch), batch)
    torch.testing.assert_close(rows, model.embed(["CCO", "c1ccccc1"]))


def test_arrays_and_tables_hold_the_same_numbers(molecules: Path, new: Path, folder: Path) -> None:
    rows = table_of(molecules, new, folder / "e.csv", "--batch-size", "1")
    for suffix in ("npy", "npz", "parquet"):
        output = folder / f"e.{suffix}"
        assert run("fingerprint", molecules, new, "--output", output) == 0
    array = np.load(folder / "e.npy")
    assert array.shape == (3, 8)
    assert array.dtype == np.float32
    assert np.isnan(array[0]).all()
    torch.testing.assert_close(torch.tensor(array[1:]), vectors(rows[1:], 8), rtol=1e-5, atol=1e-6)
    several = np.load(folder / "e.npz")
    np.testing.assert_array_equal(several["embedding"], array)
    assert several["bad_row"].tolist() == [0]
    assert several["bad_line"].tolist() == [2]
    assert several["bad_reason"].tolist() == [rows[0]["reason"]]
    table: dict[str, list[Any]] = pq.read_table(folder / "e.parquet").to_pydict()
    assert list(table) == list(rows[0])
    assert table["embedding_7"][0] is None
    assert table["embedding_7"][1:] == array[1:, 7].tolist()
    assert table["reason"] == [row["reason"] for row in rows]


def test_without_an_output_the_table_is_printed(
    molecules: Path, new: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table_of(molecules, new, folder / "written.csv")
    capsys.readouterr()
    assert run("fingerprint", molecules, new) == 0
    assert capsys.readouterr().out == (folder / "written.csv").read_text()


def test_reasons_that_an_array_has_no_room_for_are_told(
    molecules: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = folder / "bad.csv"
    path.write_text("smiles\n" + "C1CC\n" * 12 + "C\n")
    assert run("fingerprint", molecules, path, "--output", folder / "b.npy") == 0
    said = capsys.readouterr().err
    assert "line 2: RDKit cannot read SMILES 'C1CC'" in said
    assert "and 2 more bad records" in said
    assert "1 embedded, 12 could not be read" in said
    assert np.isfinite(np.load(folder / "b.npy")).any(1).tolist() == [False] * 12 + [True]


def test_a_tree_is_embedded_as_its_root(folder: Path) -> None:
    root = write_corpora(folder / "corpora")
    run_path = train(folder / "trees", "experiment=sst_tree_lstm", f"data.root={root}", *SMALL)
    path = root / "sst" / "test.txt"
    rows = table_of(run_path, path, folder / "t.csv")
    assert [row["line"] for row in rows] == [str(n) for n in range(1, 13)]
    predictor = graphfold.load(run_path)
    found = head_of(predictor, vectors(rows, 8)).tolist()
    answers = predictor.predict(path.read_text().splitlines())
    for row, answer in zip(found, answers, strict=True):
        assert row == pytest.approx(list(answer["probabilities"].values()), rel=1e-4)


def test_words_are_embedded_as_their_mean(folder: Path) -> None:
    root = write_corpora(folder / "corpora")
    run_path = train(folder / "words", "experiment=ud_upos", f"data.root={root}", *SMALL[1:])
    path = root / "ud_english_ewt" / "en_ewt-ud-dev.conllu"
    rows = table_of(run_path, path, folder / "w.csv")
    predictor = graphfold.load(run_path)
    model = predictor.trained.model
    records = list(predictor.adapter.records(path))
    batch = predictor.plan(read_records(predictor.adapter, path, records[:1], "raise").dag)
    with torch.no_grad():
        wanted = model.rows(model.states(batch), batch).mean(0)
    torch.testing.assert_close(vectors(rows[:1], len(wanted))[0], wanted, rtol=1e-5, atol=1e-6)


def test_wrong_outputs_and_unreadable_inputs_are_refused(
    molecules: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = folder / "all_bad.csv"
    path.write_text("smiles\nC1CC\n")
    assert run("fingerprint", molecules, path, "--output", folder / "x.txt") == 2
    assert "embeddings are not written as '.txt'" in capsys.readouterr().err
    assert run("fingerprint", molecules, path, "--output", folder / "x.csv") == 2
    assert "not one record could be read" in capsys.readouterr().err
