"""Every benchmark through the command line, on tiny corpora: its rows, not their speed."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from training.tiny_runs import MOLECULES, run, write_corpora

from graphfold.batching.native.library import why_missing
from graphfold.bench import measure, sst, train
from graphfold.bench.mixed_graphs import FAMILIES
from graphfold.bench.run import BENCHMARKS, PAGE

Rows = list[dict[str, Any]]
Bench = Callable[..., Rows]

KEYS = {
    "benchmark", "variant", "shape", "batch_size", "hidden_size", "phase", "threads",
    "examples_per_second", "ratio", "spread", "cpu", "isa", "torch", "products",
}  # fmt: skip


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_corpora(tmp_path_factory.mktemp("data"))
    rng = random.Random(0)
    lines = [f"{smiles},{rng.gauss(0, 1):.2f}" for smiles in MOLECULES * 3]
    (folder / "lipophilicity").mkdir(exist_ok=True)
    path = folder / "lipophilicity" / "Lipophilicity.csv"
    path.write_text("\n".join(["smiles,exp", *lines]) + "\n")
    return folder


@pytest.fixture
def bench(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """Runs `graphfold bench NAME` in few and short turns; returns its rows."""
    for module, name, value in (
        (measure, "SECONDS", 0.0),
        (measure, "SECONDS_PER_TURN", 0.0),
        (measure, "TURNS", 2),
        (sst, "EPOCHS", 2),
        (train, "EPOCHS", 2),
    ):
        monkeypatch.setattr(module, name, value)

    def call(name: str, *words: str, data: bool = True) -> Rows:
        settings = [f"data.root={root}", f"data.cache_dir={root / 'cache'}"] if data else []
        path = tmp_path / "rows.json"
        assert run("bench", name, *words, "--products", "default", "--json", path, *settings) == 0
        rows: Rows = json.loads(path.read_text())
        assert all(row.keys() >= KEYS for row in rows)
        assert all(row["examples_per_second"] > 0 for row in rows)
        assert all(row["ratio"] == 1 for row in rows if row["variant"] == "graphfold")
        return rows

    return call


HAS_NATIVE = why_missing(torch.float32) is None

#: The variants that are graphfold.
OWN = ["graphfold", "untraced"] if HAS_NATIVE else ["graphfold"]


def variants(rows: Rows, **where: Any) -> list[str]:
    return [r["variant"] for r in rows if all(r[key] == value for key, value in where.items())]


def test_treefc(bench: Bench) -> None:
    rows = bench("treefc", "--batch-size", "1,9", "--hidden-size", "4", data=False)
    common = ["level_loop", "cat_levels", "one_by_one", "product_floor"]
    for phase in ("train", "inference"):
        where = {"phase": phase, "batch_size": 9, "hidden_size": 4}
        assert variants(rows, shape="random", **where) == [*OWN, *common]
        assert variants(rows, shape="identical", **where) == [*OWN, "hand_batched", *common]
    assert variants(rows, phase="schedule", shape="random", batch_size=1) == ["graphfold"]


def test_blocks(bench: Bench) -> None:
    rows = bench("blocks", "--batch-size", "3,8", "--hidden-size", "4")
    for phase in ("train", "inference"):
        for batch_size in (3, 8):
            found = variants(rows, benchmark="blocks", phase=phase, batch_size=batch_size)
            assert found == ["graphfold", "cells"]
    assert variants(rows, benchmark="blocks_lowering", phase="schedule") == ["graphfold"]


def test_sst(bench: Bench) -> None:
    rows = bench("sst", "--batch-size", "3,8", "--hidden-size", "4")
    floors = ["product_floor", "product_floor_every_node"]
    names = [*OWN, "every_node", "cat_levels", "one_by_one", *floors]
    for phase in ("train", "inference"):
        assert variants(rows, benchmark="sst", phase=phase, batch_size=8) == names
    assert variants(rows, benchmark="sst_epoch") == OWN
    for epoch in [row for row in rows if row["benchmark"] == "sst_epoch"]:
        assert epoch["batch_size"] == 8
        assert epoch["examples_per_second"] == pytest.approx(12 / epoch["seconds_per_epoch"])


def test_sequence(bench: Bench) -> None:
    rows = bench("sequence", "--batch-size", "5", "--hidden-size", "6")
    names = [*OWN, "packed_lstm", "cat_levels", "one_by_one", "product_floor"]
    assert variants(rows, phase="train") == variants(rows, phase="inference") == names


def test_molecules(bench: Bench) -> None:
    rows = bench("molecules", "--batch-size", "4", "--hidden-size", "8")
    assert {row["shape"] for row in rows} == {"dmpnn", "gine", "gcn"}
    names = {row["variant"] for row in rows}
    assert names >= {*OWN, "every_node", "product_floor"}


def test_schedule(bench: Bench) -> None:
    rows = bench("schedule", "--batch-size", "4", "--hidden-size", "4")
    policies = ["graphfold", "height", "agenda", "critical_path"]
    assert {row["phase"] for row in rows} == {"schedule"}
    for workload in ("sst", "treefc"):
        assert variants(rows, workload=workload)[:4] == policies
    assert variants(rows, workload="molecules") == ["graphfold", "shared", "shared_alone"]
    assert all(("share_of_step" in row) == (row["workload"] == "sst") for row in rows)
    for name in FAMILIES:
        assert variants(rows, workload=name)[:4] == policies
    for row in rows:
        assert row["launches"] >= row["lower_bound"] > 0
        assert row["launches_over_bound"] == pytest.approx(row["launches"] / row["lower_bound"])
        assert row["rows_per_launch"] >= 1


def test_memory(bench: Bench) -> None:
    rows = bench("memory", "--batch-size", "3,9", "--hidden-size", "8")
    molecules = ["graphfold", "every_node"]
    assert variants(rows, workload="sst", batch_size=9) == [*molecules, "cat_levels"]
    assert variants(rows, workload="molecules", batch_size=9) == molecules
    for row in rows:
        assert row["phase"] == "train"
        assert row["peak_bytes_per_node"] > row["bytes_per_node"] > 0


def test_train(bench: Bench) -> None:
    rows = bench("train", "--batch-size", "4", "--hidden-size", "4", "logger=none")
    assert variants(rows) == ["graphfold", "with_loader", "graphfold_train"]
    assert all(row["seconds_per_epoch"] > 0 for row in rows)


def test_predict(bench: Bench) -> None:
    rows = bench("predict", "--hidden-size", "4")
    assert variants(rows, phase="inference", batch_size=1) == [*OWN, "logits", "planned"]
    for row in rows:
        assert row["examples_per_second"] == pytest.approx(1000 / row["milliseconds"])


def test_help_names_every_benchmark(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("bench", "--help") == 0
    text = capsys.readouterr().out
    assert all(f"\n  {name} " in text for name in (*BENCHMARKS, PAGE))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("sts", r"no benchmark 'sts'\. Did you mean 'sst'\? Use treefc, "),
        ("treefc data.root=x", r"'treefc' takes no overrides, not 'data\.root=x'"),
        ("treefc --products mlk", r"--products is 'mlk'"),
        ("treefc --json /nowhere/x.json", r"the folder /nowhere does not exist"),
        ("sst data.root=/nowhere", r"/nowhere/sst/train\.txt: no such file\. Get it from"),
        ("sequence data.root=/nowhere", r"/nowhere/sst/train\.txt: no such file"),
        ("predict --batch-size 3", r"one record at a time\. Leave out --batch-size"),
        ("sst --isa avx3", r"no isa 'avx3'\. Did you mean 'avx2'\?"),
        ("sst data.batch_size=3", r"'data\.batch_size=3': bench has --batch-size for it"),
        ("train model.hidden_size=3", r"bench has --hidden-size for it"),
        ("train threads=2", r"bench has --threads for it"),
        ("train data.batch_sise=2", r"Did you mean 'data\.batch_size'\?"),
        ("sst data.rooot=x", r"no key 'data\.rooot'.*Did you mean 'data\.root'\?"),
    ],
)
def test_wrong_use(words: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("bench", *words.split()) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert re.search(message, error), error


def test_another_model_is_no_benchmark_sst(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = [f"data.root={root}", f"data.cache_dir={root / 'cache'}", "model=tree_rnn"]
    assert run("bench", "sst", *settings) == 2
    assert "one cell for words and one for phrases" in capsys.readouterr().err
