"""`graphfold predict --explain`: columns, sums, words, ensembles, and what cannot be explained."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path

import pytest
from inference.conftest import SMALL, Trained
from training.tiny_runs import run, train, write_molecules

import graphfold
from graphfold.datasets.adapter import read_records
from graphfold.inference.explain import TOLERANCE, Contributions, Explainer, first_atoms


@pytest.fixture(scope="session")
def values(home: Path, trained: Trained) -> Path:
    """A run of messages along bonds with two targets, and the pictures of its report."""
    words = ("data=smiles", "model=dmpnn", f"data.path={home}/m.csv")
    return trained("values", *words, "data.target_columns=['a b',c]", *SMALL, draws=True)


def explain(run_path: Path, path: Path, output: Path, *words: str) -> list[dict[str, str]]:
    assert run("predict", run_path, path, "--output", output, "--explain", *words) == 0
    with output.open(newline="") as file:
        return list(csv.DictReader(file))


def test_molecules_get_columns(values, tmp_path):
    path = tmp_path / "new.csv"
    path.write_text("name,smiles\nbad,C1CC\nethanol,CCO\nring,c1ccccc1\n")
    rows = explain(values, path, tmp_path / "out.csv")
    wanted = [f"{t}_{part}" for t in ("a b", "c") for part in ("base", "atom_contributions")]
    predicted = [f"{target}_{what}" for target in ("a b", "c") for what in ("pred", "limit")]
    assert list(rows[0]) == ["name", "smiles", *predicted, *wanted, "reason"]
    assert [rows[0][name] for name in wanted] == [""] * 4
    counts = [len(json.loads(row["c_atom_contributions"])) for row in rows[1:]]
    assert counts == [3, 6]
    assert run("predict", values, path, "--output", tmp_path / "plain.csv") == 0
    with (tmp_path / "plain.csv").open(newline="") as file:
        plain = list(csv.DictReader(file))
    for row, other in zip(rows, plain, strict=True):
        assert row["reason"] == other["reason"]
        if not row["reason"]:
            assert float(row["c_pred"]) == pytest.approx(float(other["c_pred"]), rel=1e-4)


def total(row: dict[str, str], target: str) -> float:
    """The base and all contributions to a target, as they stand in a table."""
    found = float(row[f"{target}_base"])
    for name, cell in row.items():
        if name.startswith(target) and name.endswith("_contributions"):
            found += sum(json.loads(cell))
    return found


def test_base_and_contributions_add_up_to_the_prediction(values, tmp_path):
    path = write_molecules(tmp_path / "sum.csv", num_rows=6)
    rows = explain(values, path, tmp_path / "sums.csv")
    assert len({row["c_pred"] for row in rows}) > 3
    for row in rows:
        for target in ("a b", "c"):
            wanted = pytest.approx(float(row[f"{target}_pred"]), rel=1e-5, abs=1e-5)
            assert total(row, target) == wanted
            assert float(row[f"{target}_base"]) != wanted


def test_words_get_contributions(trees, home, tmp_path):
    output = tmp_path / "trees.jsonl"
    path = home / "corpora" / "sst" / "test.txt"
    assert run("predict", trees, path, "--output", output, "--explain") == 0
    for told in map(json.loads, output.read_text().splitlines()):
        number = told["base"] + sum(unit["contribution"] for unit in told["contributions"])
        likeliest = max(told["probabilities"].values())
        assert 1 / (1 + math.exp(-number)) == pytest.approx(likeliest, abs=1e-5)
        words = [node["text"] for node in told["nodes"] if node["type"] == "word"]
        assert [unit["text"] for unit in told["contributions"]] == words
        assert list(told)[-3:] == ["base", "contributions", "reason"]


def test_an_ensemble_with_intervals_is_explained_as_the_mean_of_its_members(tmp_path):
    table, new = (
        write_molecules(tmp_path / "e.csv"),
        write_molecules(tmp_path / "f.csv", num_rows=4),
    )
    words = ["data=smiles", "model=gcn", f"data.path={table}", "data.target_columns=[c]"]
    ensemble = train(tmp_path / "two", *words, *SMALL, "ensemble=2", "calibration.level=0.5")
    members = [ensemble / "members" / name / "checkpoints" / "best.ckpt" for name in "12"]
    told, *each = (
        [
            json.loads(row["c_atom_contributions"])
            for row in explain(path, new, tmp_path / f"e{i}.csv")
        ]
        for i, path in enumerate([ensemble, *members])
    )
    assert "c_lower" in (tmp_path / "e0.csv").read_text().splitlines()[0]
    for together, first, second in zip(told, *each, strict=True):
        mean = [(a + b) / 2 for a, b in zip(first, second, strict=True)]
        # The error of few steps is divided among the atoms of each molecule.
        assert together == pytest.approx(mean, abs=TOLERANCE * sum(map(abs, mean)))
        assert together != pytest.approx(first, abs=TOLERANCE * sum(map(abs, mean)))
    for row in csv.DictReader((tmp_path / "e0.csv").read_text().splitlines()):
        assert total(row, "c") == pytest.approx(float(row["c_pred"]), rel=1e-5, abs=1e-5)


def test_what_cannot_be_explained_is_refused(tagger, home, tmp_path, capsys):
    root, path = home / "corpora", tmp_path / "one.csv"
    path.write_text("smiles\nCCO\n")
    words = (f"data.root={root}", *SMALL[1:])
    blocks = train(tmp_path / "blocks", "experiment=esol_blocks", *words)
    assert run("predict", blocks, path, "--explain") == 2
    assert "this BlockModel cannot be explained" in capsys.readouterr().err
    sentences = root / "ud_english_ewt" / "en_ewt-ud-dev.conllu"
    assert run("predict", tagger, sentences, "--explain") == 2
    assert "the model predicts several nodes of each graph" in capsys.readouterr().err


def test_the_report_colours_the_worst_molecules(values):
    report = (values / "report.html").read_text()
    assert "Blue atoms raise a b" in report


def test_contributions_that_do_not_add_up_are_told(values, tmp_path, monkeypatch, capsys):
    path = write_molecules(tmp_path / "rough.csv", num_rows=4)
    for name, value in {"STEPS": (1,), "TOLERANCE": 1e-9}.items():
        monkeypatch.setattr(f"graphfold.inference.explain.{name}", value)
    explain(values, path, tmp_path / "rough_out.csv")
    assert "do not add up within 0% after 1 steps" in capsys.readouterr().err


@pytest.mark.filterwarnings("ignore:DMPNNAtomCell is not compiled")  # a batch without any bond
def test_a_molecule_is_explained_alike_in_any_batch_and_by_every_engine(values):
    texts = ["CCO", "Cn1cnc2c1c(=O)n(C)c(=O)n2C", "C", "[Na+].[Cl-]", "C/C=C/C#N", "CCCCC"]
    predictor = graphfold.load(values)
    predictor.trained.model.double()

    def explained(texts: list[str]) -> list[Contributions]:
        records = map(predictor.adapter.record_of, texts)
        dag = read_records(predictor.adapter, Path(), records, "raise").dag
        return list(Explainer(predictor.trained, ["c"]).explain(dag))

    together = explained(texts)
    assert [one.to_dict() for (one,) in (explained([text]) for text in texts)] == [
        found.to_dict() for found in together
    ]
    predictor.trained.model.network.run = "reference"  # type: ignore[union-attr]
    for found, wanted in zip(explained(texts), together, strict=True):
        assert found.values["c"]["atom"] == pytest.approx(wanted.values["c"]["atom"])
    atoms = together[-1].values["c"]["atom"]
    assert atoms == pytest.approx(atoms[::-1])  # atoms alike contribute alike


def test_each_direction_of_a_bond_counts_for_the_atom_where_it_begins(values):
    adapter = graphfold.load(values).adapter
    records = map(adapter.record_of, ["CCO", "OC=O"])
    dag = read_records(adapter, Path(), records, "raise").dag
    atoms = dag.nodes_of_type("atom").tolist()
    numbers = [atoms.index(node) for node in first_atoms(dag).tolist()]
    assert numbers == [0, 1, 1, 2, 3, 4, 4, 5]
