"""Every benchmark through the command line, on tiny corpora: its rows, not their speed."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from thinned import thinned
from training.tiny_runs import MOLECULES, run, write_corpora

from graphfold.batching import POLICIES
from graphfold.batching.native.library import why_missing
from graphfold.bench import measure
from graphfold.bench.baselines.molecule_models import has_chemprop, has_geometric
from graphfold.bench.benchmarks import molecules, predict_table, train, treefc, trees
from graphfold.bench.benchmarks.schedule import FAMILIES
from graphfold.bench.measure import Settings
from graphfold.bench.run import BENCHMARKS, PAGE
from graphfold.errors import ConfigError

Rows = list[dict[str, Any]]
Bench = Callable[..., Rows]

KEYS = {
    "benchmark", "variant", "shape", "batch_size", "hidden_size", "phase", "threads",
    "examples_per_second", "ratio", "spread", "computes", "cpu", "device", "isa", "torch",
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
        (train, "EPOCHS", 2),
    ):
        monkeypatch.setattr(module, name, value)

    def call(name: str, *words: str, data: bool = True) -> Rows:
        settings = [f"data.root={root}", f"data.cache_dir={root / 'cache'}"] if data else []
        path = tmp_path / "rows.json"
        assert run("bench", name, *words, "--json", path, *settings) == 0
        rows: Rows = json.loads(path.read_text())
        assert all(row.keys() >= KEYS for row in rows)
        assert all(row["examples_per_second"] > 0 for row in rows)
        assert all(row["operations"] > 0 for row in rows if "operations" in row)
        assert all(row["ratio"] == 1 for row in rows if row["variant"] == "graphfold")
        return rows

    return call


HAS_NATIVE = why_missing(torch.float32) is None

#: The variants that are graphfold.
OWN = ["graphfold", "untraced", *(["torch"] if HAS_NATIVE else [])]


def variants(rows: Rows, **where: Any) -> list[str]:
    return [r["variant"] for r in rows if all(r[key] == value for key, value in where.items())]


def test_treefc(bench: Bench) -> None:
    rows = bench("treefc", "--batch-size", "1,9", "--hidden-size", "4", data=False)
    baselines = ["level_loop", "one_by_one", "product_floor"]
    for phase in ("train", "inference"):
        where = {"phase": phase, "batch_size": 9, "hidden_size": 4}
        assert variants(rows, shape="random", **where) == [*OWN, "cat_levels", *baselines]
        by_hand = [*OWN, "cat_levels", "hand_batched", *baselines]
        assert variants(rows, shape="identical", **where) == by_hand
    assert {row["computes"] for row in rows} == {"every node"}


def test_blocks(bench: Bench) -> None:
    rows = bench("blocks", "--batch-size", "8", "--hidden-size", "4")
    for phase in ("train", "inference"):
        assert variants(rows, phase=phase, batch_size=8) == ["graphfold", "cells"]
    assert variants(rows, phase="schedule") == ["graphfold"]


def test_sst(bench: Bench) -> None:
    rows = bench("sst", "--batch-size", "8", "--hidden-size", "4")
    floors = ["product_floor", "product_floor_every_node"]
    names = [*OWN, "every_node", "cat_levels", "one_by_one", *floors]
    for phase in ("train", "inference"):
        assert variants(rows, phase=phase, batch_size=8) == names
    shared = {row["variant"] for row in rows if row["computes"] == "equal nodes once"}
    assert shared == {*OWN, "product_floor"}


def test_trees(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    few = {"rntn": trees.SST, "relation_tree_lstm": trees.UD}
    assert few.items() <= trees.MODELS.items()
    monkeypatch.setattr(trees, "MODELS", few)
    rows = bench("trees", "--batch-size", "5", "--hidden-size", "4")
    assert {row["shape"] for row in rows} == set(few)
    assert {row["phase"] for row in rows} == {"train", "inference"}
    assert {row["variant"] for row in rows} >= {"graphfold", "cat_levels"}
    assert all(row["examples_per_second"] > 0 for row in rows)


def test_sequence(bench: Bench) -> None:
    rows = bench("sequence", "--batch-size", "5", "--hidden-size", "6")
    names = [*OWN, "cat_levels", "packed_lstm", "one_by_one", "product_floor"]
    assert variants(rows, phase="train") == variants(rows, phase="inference") == names


@pytest.mark.slow
def test_molecules(bench: Bench) -> None:
    rows = bench("molecules", "--batch-size", "4", "--hidden-size", "8")
    pyg = ["pyg"] if has_geometric() else []
    for shape in molecules.SHAPES:
        chemprop = ["chemprop"] if shape == "dmpnn" and has_chemprop() else []
        floor = ["product_floor"] if shape in molecules.OF_NODES else []
        theirs = [] if shape in ("weave", "fragments") else pyg
        names = [*OWN, "every_node", *theirs, *chemprop, *floor]
        for phase in ("train", "inference"):
            assert variants(rows, shape=shape, phase=phase) == names
    shared = {row["variant"] for row in rows if row["computes"] == "equal nodes once"}
    assert shared == {*OWN, "product_floor"}


@pytest.mark.parametrize(
    ("name", "shapes"),
    thinned(
        [("treefc", "random"), ("trees", "tree_rnn"), ("molecules", "gat,gcn")],
        [("treefc", "random")],
    ),
)
def test_chosen_shapes(name: str, shapes: str, bench: Bench) -> None:
    sizes = ["--batch-size", "4", "--hidden-size", "4"]
    rows = bench(name, "--shape", shapes, *sizes, data=name != "treefc")
    assert {row["shape"] for row in rows} == set(shapes.split(","))


def test_shapes_are_in_the_order_of_the_benchmark() -> None:
    settings = Settings(shapes=("gcn", "dmpnn"))
    assert settings.chosen(molecules.SHAPES) == ["dmpnn", "gcn"]
    assert Settings().chosen(molecules.SHAPES) == [*molecules.SHAPES]


def test_what_was_measured_is_written_if_the_rest_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rows(settings: Settings) -> Iterator[measure.Row]:
        yield replace(settings.row("treefc", 1, 4), variant="graphfold", examples_per_second=1.0)
        raise ConfigError("the rest failed.")

    monkeypatch.setattr(treefc, "rows", rows)
    path = tmp_path / "rows.json"
    assert run("bench", "treefc", "--json", path) == 2
    assert [row["variant"] for row in json.loads(path.read_text())] == ["graphfold"]


def test_schedule(bench: Bench) -> None:
    rows = bench("schedule", "--batch-size", "4")
    policies = ["graphfold", *(policy for policy in POLICIES if policy != "depth")]
    assert {row["phase"] for row in rows} == {"schedule"}
    for workload in ("sst", "treefc", *FAMILIES):
        assert variants(rows, workload=workload) == [*policies, "equal_once"]
    assert variants(rows, workload="molecules") == ["graphfold", "equal_once"]
    assert all(row["launches"] >= row["lower_bound"] > 0 for row in rows)


@pytest.mark.slow
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
    assert variants(rows) == [*OWN, "with_loader", "graphfold_train"]


def test_predict(bench: Bench) -> None:
    rows = bench("predict", "--hidden-size", "4")
    assert variants(rows, phase="inference", batch_size=1) == [*OWN, "from_graph", "planned"]


def test_predict_table(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predict_table, "NUM_RECORDS", 40)
    rows = bench("predict_table", "--batch-size", "16", "--hidden-size", "8")
    expected = ["graphfold", "one_process", *(["chemprop"] if has_chemprop() else [])]
    assert variants(rows, phase="inference", batch_size=16) == expected


def test_reading(bench: Bench) -> None:
    rows = bench("reading", "--batch-size", "4")
    for bonds in ("no", "yes"):
        found = variants(rows, phase="read", batch_size=4, directed_bonds=bonds)
        last = ["chemprop"] if has_chemprop() else []
        assert found == ["graphfold", "one_by_one", "rdkit_parser", *last]


def test_help_names_every_benchmark(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("bench", "--help") == 0
    text = capsys.readouterr().out
    assert all(f"\n  {name} " in text for name in (*BENCHMARKS, PAGE))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("sts", r"no benchmark 'sts'\. Did you mean 'sst'\? Use treefc, "),
        ("treefc data.root=x", r"'treefc' takes no overrides, not 'data\.root=x'"),
        ("treefc --json /nowhere/x.json", r"the folder /nowhere does not exist"),
        ("sst data.root=/nowhere", r"/nowhere/sst/train\.txt: no such file\. Get it from"),
        ("sequence data.root=/nowhere", r"/nowhere/sst/train\.txt: no such file"),
        ("predict --batch-size 3", r"one record at a time\. Leave out --batch-size"),
        ("molecules --shape gcn,gune", r"no 'gune'\. Did you mean 'gine'\? Use dmpnn, gine, gcn"),
        ("sst --shape gcn", r"benchmark 'sst' has no shapes\. Leave out --shape"),
        ("train --device cuda", r"'train' measures a CPU\. Leave out --device"),
        ("sst --device gpu", r"no device 'gpu'"),
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


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
def test_a_missing_gpu_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("bench", "sst", "--device", "cuda") == 2
    assert "there is no CUDA device" in capsys.readouterr().err
    script = Path(__file__).parents[2] / "scripts" / "bench_gpu.py"
    found = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert found.returncode == 2
    (line,) = found.stderr.splitlines()
    assert line == "bench_gpu: this machine has no CUDA device. Run it on one that has."


def test_another_model_is_no_benchmark_sst(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = [f"data.root={root}", f"data.cache_dir={root / 'cache'}", "model=tree_rnn"]
    assert run("bench", "sst", *settings) == 2
    assert "one cell for words and one for phrases" in capsys.readouterr().err


def test_a_config_of_ones_own_is_measured(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "optimizer").mkdir()
    own = "_target_: torch.optim.SGD\n_partial_: true\nlr: 0.1\n"
    (tmp_path / "optimizer" / "mine.yaml").write_text(own)
    sizes = ["--batch-size", "4", "--hidden-size", "4"]
    assert bench("train", *sizes, "--config-dir", str(tmp_path), "optimizer=mine", "logger=none")
