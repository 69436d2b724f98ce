"""Splits and readers of other packages, and files of one's own, from training to prediction."""

from __future__ import annotations

import csv
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from thinned import thinned
from training.one_step import new_loop
from training.tiny_runs import (
    MOLECULES,
    bracket_tree,
    listops,
    read_json,
    run,
    train,
    write_corpora,
)

from graphfold import TablePredictor
from graphfold.batching import Pass, Schedule, batch
from graphfold.dag import TypedDAG

SMALL = ["model.hidden_size=8", "model.run=eager", "trainer.max_epochs=1", "data.batch_size=8"]

SPLIT = '''
import torch
from graphfold.datasets.splits.split import Split

def by_size(records, settings):
    """Small graphs to train on, large ones to test with."""
    order = records.dag.node_ptr.diff().argsort(stable=True)
    first, second = int(0.6 * len(order)), int(0.8 * len(order))
    return Split.of_parts([order[:first], order[first:second], order[second:]], "by_size")

def forgetful(records, settings):
    numbers = torch.arange(len(records))
    return Split.of_parts([numbers[:5], numbers[5:9], numbers[8:]], "forgetful")

def none(records, settings):
    return None
'''

READER = '''
from graphfold.datasets.files.tables import Row, Table

def open_fixed(path):
    """Cells of twelve characters; the first line names the columns."""
    lines = path.read_text().splitlines()
    cut = [tuple(line[k:k + 12].strip() for k in range(0, 24, 12)) for line in lines]
    rows = lambda: (Row(number, cells) for number, cells in enumerate(cut[1:], 2))
    return Table(path, cut[0], rows, header_line=1)
'''


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package of someone else, installed."""
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "own_splits.py").write_text(SPLIT)
    (folder / "own_reader.py").write_text(READER)
    about = folder / "own-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: own\nVersion: 1.0\n")
    points = "[graphfold.readers]\n.fixed = own_reader:open_fixed\n"
    (about / "entry_points.txt").write_text(points)
    monkeypatch.syspath_prepend(str(folder))
    return folder


def table(path: Path, cells: list[str]) -> Path:
    rows = [f"{smiles},{cell}" for smiles, cell in zip(MOLECULES * 3, cells, strict=True)]
    path.write_text("\n".join(["smiles,y", *rows]) + "\n")
    return path


def test_a_split_of_another_package(package: Path, tmp_path: Path) -> None:
    folder = train(tmp_path / "run", *listops("data.split=own_splits.by_size"))
    assert run("evaluate", folder, "--json", tmp_path / "e.json") == 0
    assert read_json(tmp_path / "e.json") == read_json(folder / "metrics.json")
    (package / "own_splits.py").unlink()  # the parts are stored with the run
    assert run("evaluate", folder, "--split", "test") == 0


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("own_splits.by_sise", "there is no such function. Correct the path."),
        ("nowhere.by_size", "there is no module 'nowhere'. Correct the path"),
        ("math.sqrt", "cannot be called with records and settings"),
        ("own_splits.none", "returns a NoneType. Return a Split."),
        ("own_splits.forgetful", "every record is to be in exactly one part."),
        ("radnom", "Did you mean 'random'?"),
    ],
)
def test_a_split_that_is_none(
    package: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, message: str
) -> None:
    words = listops(f"data.split={name}", f"data.cache_dir={tmp_path}")
    assert run("train", *words, f"hydra.run.dir={tmp_path / 'run'}") == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_reader_of_another_package(package: Path, tmp_path: Path) -> None:
    path = tmp_path / "m.fixed"
    rows = [f"{smiles:<12}{len(smiles)}" for smiles in MOLECULES * 3]
    path.write_text("\n".join([f"{'smiles':<12}y", *rows]) + "\n")
    data = ["data=smiles", f"data.path={path}", "data.target_columns=[y]"]
    folder = train(tmp_path / "run", *data, *SMALL)
    assert run("predict", folder, path, "--output", tmp_path / "p.csv") == 0
    with (tmp_path / "p.csv").open() as file:
        actual = list(csv.DictReader(file))
    assert [row["smiles"] for row in actual] == [*MOLECULES] * 3
    assert all(row["y_pred"] for row in actual)


def test_decimal_commas_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m.csv"
    path.write_text("smiles;y\nC;\n" + "".join(f"{s};-3,3\n" for s in MOLECULES))
    data = ["data=smiles", f"data.path={path}", "data.target_columns=[y]", "data.on_error=skip"]
    assert run("train", *data, f"data.cache_dir={tmp_path}/cache") == 2
    error = capsys.readouterr().err
    assert "11 records were left out. The first bad one is " in error
    assert "m.csv:3: target 'y' is '-3,3', which is not a finite number. Correct the file" in error
    assert "on_error" not in error


def test_records_that_are_left_out_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = table(tmp_path / "m.csv", ["x", "", *map(str, range(28))])
    data = ["data=smiles", f"data.path={path}", "data.target_columns=[y]", "data.on_error=skip"]
    train(tmp_path / "run", *data, *SMALL)
    log = capsys.readouterr().out
    assert "left out: 1 bad record\n" in log
    assert "m.csv:2: target 'y' is 'x', which is not a finite number\n" in log
    assert "left out: 1 record without a measured target\n" in log


def test_labels_that_are_text_and_trees_without_labels(tmp_path: Path) -> None:
    rng = random.Random(0)
    names = str.maketrans("01234", "ABCDE")
    path = tmp_path / "trees.txt"
    path.write_text("".join(bracket_tree(rng).translate(names) + "\n" for _ in range(30)))
    folder = train(tmp_path / "run", "data=brackets", f"data.path={path}", *SMALL)
    assert "val/node_accuracy" in read_json(folder / "metrics.json")
    new = tmp_path / "new.txt"
    new.write_text("((good) (film))\n(good film)\n(_ (_ good) (? film))\n(A (B good) (C film))\n")
    assert run("predict", folder, new, "--output", tmp_path / "p.jsonl") == 0
    actual = [json.loads(line) for line in (tmp_path / "p.jsonl").read_text().splitlines()]
    assert [record["reason"] for record in actual] == [""] * 4
    assert all(set(record["probabilities"]) == set("ABCDE") for record in actual)
    assert len({json.dumps(record["probabilities"]) for record in actual}) == 1
    assert [node["text"] for node in actual[0]["nodes"][:2]] == ["good", "film"]


@pytest.mark.parametrize(
    ("labels", "more", "monitor"),
    [
        ("ABCDE", [], "val/node_accuracy"),
        ("01234", ["data.num_classes=5"], "val/root_accuracy"),
        ("ABCDE", ["data.classes={low: [A,B], high: [D,E]}"], "val/node_accuracy"),
    ],
)
def test_the_best_epoch_of_trees_is_one_of_all_nodes_but_for_grades(
    labels: str, more: list[str], monitor: str, tmp_path: Path
) -> None:
    """The roots of a treebank have one label, which a model knows before it knows any other."""
    rng = random.Random(0)
    names = str.maketrans("01234", labels)
    trees = [f"{bracket_tree(rng).translate(names)}\n" for _ in range(30)]
    if labels == "ABCDE" and not more:
        trees = [f"(ROOT{tree[2:]}" for tree in trees]
    (tmp_path / "trees.txt").write_text("".join(trees))
    words = ["data=brackets", f"data.path={tmp_path}/trees.txt", *SMALL, *more]
    loop, _ = new_loop(*words, f"data.cache_dir={tmp_path}/cache", "data.num_workers=0")
    assert loop.monitor == monitor


def test_the_policy_reaches_every_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policies = []
    original = batch.build_schedule

    def noted(dag: TypedDAG, passes: Sequence[Pass], policy: str, *more: Any) -> Schedule:
        policies.append(policy)
        return original(dag, passes, policy, *more)

    monkeypatch.setattr(batch, "build_schedule", noted)
    new = tmp_path / "new.tsv"
    new.write_text("5\t( ( ( [MAX 2 ) 5 ) ] )\n")
    folder = train(tmp_path / "run", *listops("data.policy=critical_path"))
    assert run("evaluate", folder) == 0
    assert run("predict", folder, new, "--output", tmp_path / "p.jsonl") == 0
    assert set(policies) == {"critical_path"}


def test_a_training_part_without_any_target_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = write_corpora(tmp_path)
    for file in (root / "sick").glob("SICK_*.txt"):
        file.unlink()
    words = ["experiment=sick_entailment", f"data.root={root}", "trainer.max_epochs=1"]
    assert run("train", *words, f"hydra.run.dir={tmp_path / 'run'}") == 2
    error = capsys.readouterr().err
    assert "none of the 8 training records has a value of entailment." in error
    assert not (tmp_path / "run").exists()


REACTIONS = (
    "[CH3:1][CH2:2][OH:3]>>[CH3:1][CH:2]=[O:3]",
    "[CH3:1][Br:2].[H:5][OH:3]>>[CH3:1][O:3][H:5].[Br-:2]",
    "[H:3][CH:1]([OH:2])[H:4]>[Pd]>[CH2:1]=[O:2].[H:3][H:4]",
    "[NH2:1][CH3:2].[CH:3](=[O:4])C>>[NH:1]([CH3:2])[CH:3]([OH:4])C",
)


@pytest.mark.parametrize("model", thinned(["dmpnn", "gcn"], ["dmpnn"]))
def test_reactions_from_training_to_prediction(model, tmp_path):
    path, new = tmp_path / "reactions.csv", tmp_path / "new.csv"
    rows = [f"{text},{number / 10}" for number, text in enumerate(REACTIONS * 6)]
    path.write_text("\n".join(["rxn,ea", *rows, "CCO>>CC=O,1"]) + "\n")
    new.write_text("\n".join(["rxn", *REACTIONS, "CCO"]) + "\n")
    folder = train(
        tmp_path / "run",
        "data=reactions",
        f"model={model}",
        f"data.path={path}",
        "data.smiles_column=rxn",
        "data.target_columns=[ea]",
        "data.on_error=skip",
        "model.hidden_size=8",
        "trainer.max_epochs=1",
    )
    assert run("verify", folder, "--examples", "4") == 0
    found = tmp_path / "evaluated.json"
    assert run("evaluate", folder, "--data", path, "--on-error", "skip", "--json", found) == 0
    assert read_json(found)["test/rmse"] >= 0
    predicted = tmp_path / "predicted.csv"
    assert run("predict", folder, new, "--output", predicted, "--explain") == 0
    with predicted.open() as file:
        answers = list(csv.DictReader(file))
    assert [bool(row["ea_pred"]) for row in answers] == [True] * 4 + [False]
    assert answers[-1]["reason"].startswith("'CCO' is no reaction")
    # The atoms of the reactants and agents, of which there are as many on the other side.
    contributions = [len(json.loads(row["ea_atom_contributions"])) for row in answers[:-1]]
    assert contributions == [3, 4, 5, 6]
    table = TablePredictor(folder)(pa.table({"rxn": [*REACTIONS]}))
    expected = [float(row["ea_pred"]) for row in answers[:-1]]
    assert table.column("ea_pred").to_pylist() == pytest.approx(expected, rel=1e-5)
    checked = tmp_path / "checked.json"
    options = ["reaction=reac_diff", "explicit_hydrogens=written", "smiles_column=rxn"]
    words = [word for option in options for word in ("--set", option)]
    assert (
        run(
            "check-adapter",
            "smiles",
            "--data",
            new,
            *words,
            "--on-error",
            "skip",
            "--json",
            checked,
        )
        == 0
    )
    assert (read_json(checked)["records"], read_json(checked)["skipped"]) == (4, 1)
