"""split.csv and predictions.csv: the split, and the metrics of the run computed from them."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from training.tiny_runs import read_json, run, train, write_corpora, write_molecules

from graphfold.datasets.splits.split import Split
from graphfold.inference import part_files
from graphfold.training.run.checkpoint import Checkpoint

SMALL = ["model.hidden_size=8", "model.run=eager", "trainer.max_epochs=1", "data.batch_size=8"]
PARTS = ("train", "val", "test")


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("part_files")


@pytest.fixture(scope="module")
def numbers(home: Path) -> Path:
    """A run with two targets, one sometimes missing; three rows of its table cannot be read."""
    table = write_molecules(home / "m.csv", num_rows=40, bad_rows=3)
    return train(
        home / "numbers", "data=smiles", "model=gcn", f"data.path={table}",
        "data.target_columns=['a b',c]", "data.on_error=skip", "data.fractions=[0.4,0.4,0.2]",
        "ensemble=2", *SMALL,
    )  # fmt: skip


@pytest.fixture(scope="module")
def trees(home: Path) -> Path:
    root = write_corpora(home / "data")
    return train(
        home / "trees", "experiment=sst_tree_lstm", f"data.root={root}", "trainer.max_epochs=1",
        "model.hidden_size=8", "model.encoder.size=8",
    )  # fmt: skip


def test_every_usable_record_is_in_the_split_once(numbers):
    rows = read(numbers / "split.csv")
    assert [(row["file"], int(row["line"]), int(row["record"])) for row in rows] == [
        ("m.csv", line, line - 5) for line in range(5, 42)
    ]
    split = Split.from_dict(Checkpoint.load(numbers / "checkpoints" / "best.ckpt").split)
    for part in PARTS:
        assert [n for n, row in enumerate(rows) if row["part"] == part] == split.part(part).tolist()


def test_every_record_of_val_and_test_has_what_predict_says_of_it(home, numbers):
    out = home / "predicted.csv"
    assert run("predict", numbers, home / "m.csv", "--output", out) == 0
    by_line = dict(enumerate(read(out), start=2))
    table = dict(enumerate(read(home / "m.csv"), start=2))
    rows = read(numbers / "predictions.csv")
    held_out = [row for row in read(numbers / "split.csv") if row["part"] != "train"]
    places = [(row["part"], row["line"]) for row in held_out]
    assert sorted((row["part"], row["line"]) for row in rows) == sorted(places)
    assert list(rows[0])[:6] == ["part", "file", "line", "record", "smiles", "a b_measured"]
    for row in rows:
        line = int(row["line"])
        assert row["smiles"] == table[line]["smiles"]
        for name in ("a b", "c"):
            measured, cell = row[f"{name}_measured"], table[line][name]
            assert measured == (str(float(cell)) if cell else "")
            for part in ("pred", "std", "lower", "upper"):
                got, want = row[f"{name}_{part}"], by_line[line][f"{name}_{part}"]
                assert float(got) == pytest.approx(float(want), rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("name", ["numbers", "trees"])
def test_records_are_written_a_few_at_a_time(name, request, monkeypatch):
    folder: Path = request.getfixturevalue(name)
    files = [folder / "split.csv", folder / "predictions.csv"]
    before = [file.read_bytes() for file in files]
    for file in files:
        file.unlink()
    monkeypatch.setattr(part_files, "_CHUNK", 3)
    assert run("train", f"resume={folder}") == 0
    assert [file.read_bytes() for file in files] == before


def test_the_metrics_of_numbers_are_those_of_the_file(numbers):
    sklearn = pytest.importorskip("sklearn.metrics")
    stats = pytest.importorskip("scipy.stats")
    metrics = read_json(numbers / "metrics.json")
    rows = read(numbers / "predictions.csv")
    for part in ("val", "test"):
        for name in ("a b", "c"):
            known = [r for r in rows if r["part"] == part and r[f"{name}_measured"]]
            columns = ("measured", "pred", "std", "lower", "upper")
            y, p, std, low, high = (
                np.array([float(row[f"{name}_{column}"]) for row in known]) for column in columns
            )
            order = std.argsort(kind="stable")
            bins = min(10, len(y))
            pairs = zip(
                np.array_split(std[order], bins), np.array_split((p - y)[order], bins), strict=True
            )
            claims = [(np.sqrt((s**2).mean()), np.sqrt((e**2).mean())) for s, e in pairs]
            want = {
                "rmse": sklearn.mean_squared_error(y, p) ** 0.5,
                "mae": sklearn.mean_absolute_error(y, p),
                "mse": sklearn.mean_squared_error(y, p),
                "r2": sklearn.r2_score(y, p),
                "pearson": stats.pearsonr(y, p).statistic,
                "spearman": stats.spearmanr(y, p).statistic,
                "interval_width": (high - low).mean(),
                "ence": np.mean([abs(claim - real) / claim for claim, real in claims]),
            }
            for key, value in want.items():
                assert metrics[f"{part}/{key}/{name}"] == pytest.approx(value, rel=1e-4, abs=1e-5)
            # One record of val is the end of its interval, which has seven digits here.
            ends = [((low - e <= y) & (y <= high + e)).mean() for e in (-1e-5, 1e-5)]
            assert ends[0] <= metrics[f"{part}/interval_coverage/{name}"] <= ends[1]


def test_labelled_nodes_have_a_line_each(trees):
    rows = read(trees / "predictions.csv")
    metrics = read_json(trees / "metrics.json")
    files = {"val": "dev.txt", "test": "test.txt"}
    for part in ("val", "test"):
        own = [row for row in rows if row["part"] == part]
        assert len(own) == 12 * 9  # of a binary tree over five words
        assert {row["file"] for row in own} == {files[part]}
        right = np.array([row["label_measured"] == row["label_pred"] for row in own])
        is_root = np.array([row["root"] == "1" for row in own])
        assert is_root.sum() == 12
        assert metrics[f"{part}/node_accuracy"] == pytest.approx(right.mean())
        assert metrics[f"{part}/root_accuracy"] == pytest.approx(right[is_root].mean())
        words = [row["text"] for row in own if row["line"] == own[0]["line"]]
        assert len(max(words, key=len).split()) == 5
    assert [row["part"] for row in read(trees / "split.csv")] == [
        p for p in PARTS for _ in range(12)
    ]


def test_the_file_is_whole_or_not_there(numbers, tmp_path, monkeypatch):
    """A head that fails in the midst leaves what was there, and nothing beside it."""

    def broken(*_: object) -> object:
        raise RuntimeError("in the midst")

    before = (numbers / "predictions.csv").read_bytes()
    monkeypatch.setattr("graphfold.inference.part_files.read_columns", broken)
    assert run("train", f"resume={numbers}") == 1
    assert (numbers / "predictions.csv").read_bytes() == before
    assert not list(numbers.glob(".*.tmp"))
