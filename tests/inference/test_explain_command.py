"""`graphfold predict --explain`: columns, sums, words, ensembles, and what cannot be explained."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path

import pytest
from training.tiny_runs import run, train, write_corpora, write_molecules

import graphfold
from graphfold.datasets.adapter import read_records
from graphfold.inference.explain import Contributions, Explainer

SMALL = ["model.hidden_size=8", "model.fuse=false", "trainer.max_epochs=1", "data.batch_size=8"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("explain_command")
    write_corpora(folder / "corpora")
    return folder


@pytest.fixture(scope="module")
def values(folder: Path) -> Path:
    table = write_molecules(folder / "m.csv")
    columns = "data.target_columns=['a b',c]"
    words = ["data=smiles", "model=dmpnn", f"data.path={table}", columns]
    return train(folder / "values", *words, *SMALL, draws=True)


def explain(run_path: Path, path: Path, output: Path, *words: str) -> list[dict[str, str]]:
    assert run("predict", run_path, path, "--output", output, "--explain", *words) == 0
    with output.open(newline="") as file:
        return list(csv.DictReader(file))


def test_molecules_get_columns(values: Path, folder: Path) -> None:
    path = folder / "new.csv"
    path.write_text("name,smiles\nbad,C1CC\nethanol,CCO\nring,c1ccccc1\n")
    rows = explain(values, path, folder / "out.csv")
    kinds = ["atom_contributions", "bond_contributions"]
    wanted = [f"{target}_{kind}" for target in ("a b", "c") for kind in ("base", *kinds)]
    predicted = [f"{target}_{what}" for target in ("a b", "c") for what in ("pred", "limit")]
    assert list(rows[0]) == ["name", "smiles", *predicted, *wanted, "reason"]
    assert [rows[0][name] for name in wanted] == [""] * 6
    atoms, bonds = (json.loads(rows[1][f"c_{kind}"]) for kind in kinds)
    assert len(atoms) == 3
    assert [bond[:2] for bond in bonds] == [[0, 1], [1, 2]]
    assert len(json.loads(rows[2]["c_bond_contributions"])) == 6


def test_predictions_are_the_same_with_and_without(values: Path, folder: Path) -> None:
    path = write_molecules(folder / "some.csv", num_rows=12, bad_rows=2)
    explained = explain(values, path, folder / "with.csv", "--batch-size", "5")
    assert run("predict", values, path, "--output", folder / "without.csv") == 0
    with (folder / "without.csv").open(newline="") as file:
        plain = list(csv.DictReader(file))
    for row, other in zip(explained, plain, strict=True):
        assert row["reason"] == other["reason"]
        if not row["reason"]:
            assert float(row["c_pred"]) == pytest.approx(float(other["c_pred"]), rel=1e-4)


def total(row: dict[str, str], target: str) -> float:
    """The base and all contributions to a target, as they stand in a table."""
    found = float(row[f"{target}_base"])
    for name, cell in row.items():
        if name.startswith(target) and name.endswith("_contributions"):
            found += sum(part[2] if isinstance(part, list) else part for part in json.loads(cell))
    return found


def test_base_and_contributions_add_up_to_the_prediction(values: Path, folder: Path) -> None:
    path = write_molecules(folder / "sum.csv", num_rows=12)
    rows = explain(values, path, folder / "sums.csv")
    assert len({row["c_pred"] for row in rows}) > 3
    for row in rows:
        for target in ("a b", "c"):
            wanted = pytest.approx(float(row[f"{target}_pred"]), rel=1e-5, abs=1e-5)
            assert total(row, target) == wanted
            assert float(row[f"{target}_base"]) != wanted
    words = ["data=smiles", f"data.path={folder}/sum.csv", "data.target_columns=[active]"]
    words += ["model=gcn", "data.task=classification", "calibration.method=none", *SMALL]
    yes_or_no = train(folder / "yes_or_no", *words)
    for row in explain(yes_or_no, path, folder / "sums2.csv"):
        probability = 1 / (1 + math.exp(-total(row, "active")))
        assert probability == pytest.approx(float(row["active_prob_1"]), abs=1e-5)


def test_words_get_contributions(folder: Path) -> None:
    root = folder / "corpora"
    run_path = train(folder / "trees", "experiment=sst_tree_lstm", f"data.root={root}", *SMALL)
    output = folder / "trees.jsonl"
    path = root / "sst" / "test.txt"
    assert run("predict", run_path, path, "--output", output, "--explain") == 0
    for told in map(json.loads, output.read_text().splitlines()):
        number = told["base"] + sum(unit["contribution"] for unit in told["contributions"])
        likeliest = max(told["probabilities"].values())
        assert 1 / (1 + math.exp(-number)) == pytest.approx(likeliest, abs=1e-5)
        words = [node["text"] for node in told["nodes"] if node["type"] == "word"]
        assert [unit["text"] for unit in told["contributions"]] == words
        assert list(told)[-3:] == ["base", "contributions", "reason"]


def test_an_ensemble_with_intervals_is_explained_as_the_mean_of_its_members(folder: Path) -> None:
    table, new = write_molecules(folder / "e.csv"), write_molecules(folder / "f.csv", num_rows=4)
    words = ["data=smiles", "model=gcn", f"data.path={table}", "data.target_columns=[c]"]
    ensemble = train(folder / "two", *words, *SMALL, "ensemble=2", "calibration.level=0.5")
    members = [ensemble / "members" / name / "checkpoints" / "best.ckpt" for name in "12"]
    told, *each = (
        [
            json.loads(row["c_atom_contributions"])
            for row in explain(path, new, folder / f"e{i}.csv")
        ]
        for i, path in enumerate([ensemble, *members])
    )
    assert "c_lower" in (folder / "e0.csv").read_text().splitlines()[0]
    for together, first, second in zip(told, *each, strict=True):
        mean = [(a + b) / 2 for a, b in zip(first, second, strict=True)]
        assert together == pytest.approx(mean, rel=1e-4, abs=1e-6)
    for row in csv.DictReader((folder / "e0.csv").read_text().splitlines()):
        assert total(row, "c") == pytest.approx(float(row["c_pred"]), rel=1e-5, abs=1e-5)


def test_what_cannot_be_explained_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root, path = folder / "corpora", folder / "one.csv"
    path.write_text("smiles\nCCO\n")
    blocks = train(folder / "blocks", "experiment=esol_blocks", f"data.root={root}", *SMALL[1:])
    assert run("predict", blocks, path, "--explain") == 2
    assert "this BlockModel cannot be explained" in capsys.readouterr().err
    words = train(folder / "words", "experiment=ud_upos", f"data.root={root}", *SMALL[1:])
    sentences = root / "ud_english_ewt" / "en_ewt-ud-dev.conllu"
    assert run("predict", words, sentences, "--explain") == 2
    assert "the model predicts several nodes of each graph" in capsys.readouterr().err


def test_the_report_colours_the_worst_molecules(values: Path) -> None:
    report = (values / "report.html").read_text()
    assert "Blue atoms and bonds raise a b" in report


def test_contributions_that_do_not_add_up_are_told(
    values: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_molecules(folder / "rough.csv", num_rows=4)
    for name, value in {"FEWEST_STEPS": 1, "MOST_STEPS": 1, "TOLERANCE": 1e-9}.items():
        monkeypatch.setattr(f"graphfold.inference.explain.{name}", value)
    explain(values, path, folder / "rough_out.csv")
    assert "do not add up within 0% after 1 steps" in capsys.readouterr().err


@pytest.mark.filterwarnings("ignore:DMPNNAtomCell is not compiled")  # a batch without any bond
def test_a_molecule_is_explained_alike_in_any_batch_and_by_every_engine(values: Path) -> None:
    texts = ["CCO", "Cn1cnc2c1c(=O)n(C)c(=O)n2C", "C", "[Na+].[Cl-]", "C/C=C/C#N", "CCCCC"]
    predictor = graphfold.load(values)
    predictor.trained.model.double()

    def explained(texts: list[str]) -> list[Contributions]:
        records = map(predictor.adapter.record_of, texts)
        dag = read_records(predictor.adapter, Path(), records, "raise").dag
        return Explainer(predictor.trained, ["c"]).explain(dag)

    together = explained(texts)
    assert [one.to_dict() for (one,) in (explained([text]) for text in texts)] == [
        found.to_dict() for found in together
    ]
    predictor.trained.model.network.engine = "reference"  # type: ignore[union-attr]
    for found, wanted in zip(explained(texts), together, strict=True):
        assert found.values["c"] == pytest.approx(wanted.values["c"])
    chain = together[-1]
    atoms = chain.listed("c", "atom")
    assert atoms == pytest.approx(atoms[::-1])  # atoms alike contribute alike
    assert [bond[:2] for bond in chain.listed("c", "bond")] == [[0, 1], [1, 2], [2, 3], [3, 4]]
