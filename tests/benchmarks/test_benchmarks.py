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
from training.tiny_runs import MOLECULES, write_corpora

from benchmarks import measure, molecules, train, trees
from benchmarks.__main__ import main
from benchmarks.baselines.molecule_models import has_chemprop, has_geometric
from graphfold.batching.native.library import why_missing

Rows = list[dict[str, Any]]
Bench = Callable[..., Rows]


def run(*words: str) -> int:
    """The exit code of `python -m benchmarks`."""
    return main(words)


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
    """Runs `python -m benchmarks NAME` in few and short turns; returns its rows."""
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
        assert run(name, *map(str, words), "--json", str(path), *settings) == 0
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


def test_treefc(bench):
    rows = bench("treefc", "--batch-size", "1,9", "--hidden-size", "4", data=False)
    baselines = ["level_loop", "one_by_one", "product_floor"]
    for phase in ("train", "inference"):
        where = {"phase": phase, "batch_size": 9, "hidden_size": 4}
        assert variants(rows, shape="random", **where) == [*OWN, "cat_levels", *baselines]
        by_hand = [*OWN, "cat_levels", "hand_batched", *baselines]
        assert variants(rows, shape="identical", **where) == by_hand
    assert {row["computes"] for row in rows} == {"every node"}


def test_sst(bench):
    rows = bench("sst", "--batch-size", "8", "--hidden-size", "4")
    floors = ["product_floor", "product_floor_every_node"]
    names = [*OWN, "every_node", "cat_levels", "one_by_one", *floors]
    for phase in ("train", "inference"):
        assert variants(rows, phase=phase, batch_size=8) == names
    shared = {row["variant"] for row in rows if row["computes"] == "equal nodes once"}
    assert shared == {*OWN, "product_floor"}


@pytest.mark.slow
def test_trees(bench, monkeypatch):
    few = {"rntn": trees.SST, "relation_tree_lstm": trees.UD}
    assert few.items() <= trees.MODELS.items()
    monkeypatch.setattr(trees, "MODELS", few)
    rows = bench("trees", "--batch-size", "5", "--hidden-size", "4")
    assert {row["shape"] for row in rows} == set(few)
    assert {row["phase"] for row in rows} == {"train", "inference"}
    assert {row["variant"] for row in rows} >= {"graphfold", "cat_levels"}
    assert all(row["examples_per_second"] > 0 for row in rows)


@pytest.mark.slow
def test_sequence(bench):
    rows = bench("sequence", "--batch-size", "5", "--hidden-size", "6")
    names = [*OWN, "cat_levels", "packed_lstm", "one_by_one", "product_floor"]
    assert variants(rows, phase="train") == variants(rows, phase="inference") == names


@pytest.mark.slow
def test_molecules(bench):
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


def test_host(bench):
    rows = bench("host", "--batch-size", "5", "--hidden-size", "4")
    for shape, by_hand in (("dmpnn", ["by_hand"]), ("sst", [])):
        steps = [*OWN, "first_use", "every_node", *by_hand]
        steps.remove("untraced")
        assert variants(rows, shape=shape, phase="train") == steps
        planning = ["graphfold", "every_node", "equal_in_batch", "copy"]
        assert variants(rows, shape=shape, phase="schedule") == planning
    pyg = ["pyg"] if has_geometric() else []
    assert variants(rows, shape="dmpnn_model") == ["graphfold", "every_node", *pyg]
    for row in rows:
        seconds = row["batch_size"] / row["examples_per_second"]
        assert row["milliseconds"] == pytest.approx(1000 * seconds)
    nodes = {row["computes"] for row in rows if row["variant"] in ("every_node", "by_hand", "pyg")}
    assert nodes == {"every node"}


def test_train(bench):
    rows = bench("train", "--batch-size", "4", "--hidden-size", "4", "logger=none")
    assert variants(rows) == [*OWN, "with_loader", "graphfold_train"]


def test_predict(bench):
    rows = bench("predict", "--hidden-size", "4")
    assert variants(rows, phase="inference", batch_size=1) == [*OWN, "from_graph", "planned"]


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
        ("sst data.batch_size=3", r"'data\.batch_size=3': --batch-size sets it"),
        ("train model.hidden_size=3", r"--hidden-size sets it"),
        ("train threads=2", r"--threads sets it"),
        ("train data.batch_sise=2", r"Did you mean 'data\.batch_size'\?"),
        ("sst data.rooot=x", r"no key 'data\.rooot'.*Did you mean 'data\.root'\?"),
    ],
)
def test_wrong_use(words, message, capsys):
    assert run(*words.split()) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert re.search(message, error), error


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
def test_a_missing_gpu_is_said(capsys):
    assert run("sst", "--device", "cuda") == 2
    assert "there is no CUDA device" in capsys.readouterr().err
