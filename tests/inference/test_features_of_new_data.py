"""Runs with features from elsewhere: other data bring their own, in any order of their atoms."""

from __future__ import annotations

import csv
import json
import random
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from inference.conftest import SMALL, Trained
from rdkit import Chem
from training.tiny_runs import MOLECULES, run

import graphfold
from graphfold import TablePredictor
from graphfold.errors import ConfigError, DataError
from graphfold.inference.evaluation import evaluate

TEXTS = [text for text in MOLECULES for _ in range(3)]
LEVELS = ("node", "edge")


def charges(text: str, seed: int) -> list[float]:
    rng = random.Random(seed)
    return [rng.gauss(0, 1) for _ in Chem.MolFromSmiles(text).GetAtoms()]


def write(folder: Path, texts: Sequence[str], values: Sequence[Sequence[float]]) -> Path:
    """A table with a charge for each atom, their sum as the target, and files of the charges."""
    folder.mkdir(exist_ok=True)
    with (folder / "m.csv").open("w", newline="") as file:
        rows = [
            (n, text, sum(row), n, json.dumps(row))
            for n, (text, row) in enumerate(zip(texts, values, strict=True))
        ]
        csv.writer(file).writerows([("id", "smiles", "y", "T", "q"), *rows])
    np.savez(folder / "node.npz", *map(np.array, values))
    bonds = [Chem.MolFromSmiles(text).GetBonds() for text in texts]
    ends = [[(b.GetBeginAtomIdx(), b.GetEndAtomIdx()) for b in of_one] for of_one in bonds]
    products = [[v[a] * v[b] for a, b in e] for e, v in zip(ends, values, strict=True)]
    np.savez(folder / "edge.npz", *map(np.array, products))
    return folder


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    values = [charges(text, number) for number, text in enumerate(TEXTS)]
    return write(tmp_path_factory.mktemp("data") / "first", TEXTS, values)


def files(folder: Path) -> dict[str, str]:
    return {level: str(folder / f"{level}.npz") for level in LEVELS}


def train(trained: Trained, name: str, folder: Path, features: str) -> Path:
    words = ("data=smiles", f"data.path={folder}/m.csv", "data.target_columns=[y]")
    return trained(name, *words, f"data.features_from={features}", *SMALL, "data.num_workers=0")


@pytest.fixture(scope="module")
def ordered(data: Path, trained: Trained) -> Path:
    """A run with features in the order of atoms and bonds."""
    features = f"{{node: {data}/node.npz, edge: {data}/edge.npz}}"
    return train(trained, "features in order", data, features)


@pytest.fixture(scope="module")
def beside(data: Path, trained: Trained) -> Path:
    """A run with columns of the table as features of molecules and atoms."""
    return train(trained, "features beside", data, "{graph: [T], node: [q]}")


def predict(run_folder: Path, folder: Path, *words: str) -> list[float]:
    output = folder / "out.csv"
    assert run("predict", run_folder, folder / "m.csv", "--output", output, *words) == 0
    with output.open() as file:
        return [float(row["y_pred"]) for row in csv.DictReader(file)]


def set_features(folder: Path) -> list[str]:
    return ["--set", f"features_from={{node: {folder}/node.npz, edge: {folder}/edge.npz}}"]


@pytest.mark.parametrize("seed", range(2))
def test_the_order_of_atoms_and_records_changes_no_prediction(ordered, data, tmp_path, seed):
    values = [charges(text, number) for number, text in enumerate(TEXTS)]
    expected = predict(ordered, write(tmp_path / "same", TEXTS, values), *set_features(data))
    rng = random.Random(seed)
    records = rng.sample(range(len(TEXTS)), len(TEXTS))
    texts, shuffled = [], []
    for number in records:
        molecule = Chem.MolFromSmiles(TEXTS[number])
        order = rng.sample(range(molecule.GetNumAtoms()), molecule.GetNumAtoms())
        other = Chem.RenumberAtoms(molecule, order)
        texts.append(Chem.MolToSmiles(other, canonical=False))
        written = json.loads(other.GetProp("_smilesAtomOutputOrder").replace(",]", "]"))
        shuffled.append([values[number][order[atom]] for atom in written])
    folder = write(tmp_path / "other", texts, shuffled)
    found = predict(ordered, folder, *set_features(folder))
    assert found == pytest.approx([expected[number] for number in records], rel=1e-4, abs=1e-5)
    assert np.std(expected) > 1e-3


def test_features_change_the_prediction(ordered, tmp_path):
    folders = [
        write(tmp_path / str(k), TEXTS, [charges(text, k) for text in TEXTS]) for k in range(2)
    ]
    first, second = (predict(ordered, folder, *set_features(folder)) for folder in folders)
    lone = [text == "C" for text in TEXTS]
    changed = [abs(a - b) > 1e-6 for a, b in zip(first, second, strict=True)]
    assert all(changed[k] or lone[k] for k in range(len(TEXTS)))


@pytest.mark.filterwarnings("ignore::graphfold.training.scoring.UndefinedMetricWarning")
def test_the_data_of_the_run_are_scored_with_its_own_files(ordered, data, tmp_path):
    own = evaluate(ordered)
    assert own == json.loads((ordered / "metrics.json").read_text())
    moved = {level: str(tmp_path / f"{level}_moved.npz") for level in LEVELS}
    for level, file in moved.items():
        shutil.copy(data / f"{level}.npz", file)
    assert evaluate(ordered, settings={"features_from": moved}) == own
    np.savez(moved["node"], *(np.zeros(len(charges(text, 0))) for text in TEXTS))
    with pytest.raises(DataError, match="the file changed since the run split it. Put the file"):
        evaluate(ordered, settings={"features_from": moved})
    scored = evaluate(ordered, data / "m.csv", settings={"features_from": files(data)})
    assert scored["test/coverage"] == 1


def test_a_file_in_the_order_of_other_records_is_asked_for_again(ordered, data, capsys):
    assert run("predict", ordered, data / "m.csv") == 2
    message = capsys.readouterr().err
    assert "the model reads features of the level node from a file in the order of" in message
    assert "(node.npz), and other data need their own, {node: FILE}. Add --set features_" in message
    with pytest.raises(ConfigError, match="of the level edge .* other data need their own"):
        evaluate(ordered, data / "m.csv", settings={"features_from": {"node": "n.npz"}})
    with pytest.raises(ConfigError, match="level graph, for which the model reads none. Leave the"):
        graphfold.load(ordered, features_from={**files(data), "graph": "g.npz"})
    predictor = graphfold.load(ordered, features_from=files(data))
    with pytest.raises(ConfigError, match="items in Python are in none. Predict a file; or train"):
        predictor.predict(["CCO"])


def test_a_checkpoint_holds_names_of_files_and_no_folders(ordered, data, tmp_path):
    moved = tmp_path / "best.ckpt"
    shutil.copy(ordered / "checkpoints" / "best.ckpt", moved)
    assert str(data).encode() not in moved.read_bytes()
    assert b"node.npz" in moved.read_bytes()
    values = [charges(text, number) for number, text in enumerate(TEXTS)]
    folder = write(tmp_path / "same", TEXTS, values)
    found = predict(moved, folder, *set_features(folder))
    assert found == predict(ordered, folder, *set_features(folder))


def test_another_width_than_in_training_is_refused(ordered, data, tmp_path):
    values = [charges(text, number) for number, text in enumerate(TEXTS)]
    folder = write(tmp_path / "wide", TEXTS, values)
    np.savez(folder / "node.npz", *(np.zeros((len(row), 2)) for row in values))
    assert run("predict", ordered, folder / "m.csv", *set_features(folder)) == 2


def test_columns_of_a_table_are_read_by_every_door(beside, data, capsys):
    expected = predict(beside, data)
    frame = pd.read_csv(data / "m.csv")
    rows = frame[["smiles", "T"]].assign(q=frame.q.map(json.loads))
    answers = graphfold.load(beside).predict(rows.to_dict("records"))
    assert [answer["prediction"] for answer in answers] == pytest.approx(expected, rel=1e-5)
    predictor = TablePredictor(beside)
    tables: list[Any] = [rows, pa.Table.from_pandas(rows), rows.assign(q=frame.q)]
    for table in tables:
        found = predictor(table)
        column = found["y_pred"]
        values = column.to_pylist() if isinstance(found, pa.Table) else column.tolist()
        assert values == pytest.approx(expected, rel=1e-5)
    with pytest.raises(DataError, match="no column 'q' among .* Add the column"):
        predictor(rows[["smiles", "T"]])
    assert "reason" in graphfold.load(beside).predict(["CCO"])[0]


def test_a_key_finds_features_from_python(data, trained, tmp_path):
    """The features of a keyed file are those of the run, unless another one is named."""
    frame = pd.read_csv(data / "m.csv")
    keyed = tmp_path / "keyed.parquet"
    frame.assign(q=frame.q.map(json.loads))[["id", "q"]].to_parquet(keyed)
    features = f"{{node: {{file: {keyed}, key: id}}}}"
    folder = train(trained, f"features by key {tmp_path.name}", data, features)
    expected = predict(folder, data)
    rows = frame[["smiles", "id"]]
    assert TablePredictor(folder)(rows)["y_pred"].tolist() == pytest.approx(expected, rel=1e-5)
    unknown = graphfold.load(folder).predict([{"smiles": "CC", "id": 99}])[0]
    assert unknown["reason"] == "the id of the record has no features (keyed.parquet, '99')"
    frame.assign(q=frame.q.map(lambda q: [0.0] * len(json.loads(q))))[["id", "q"]].to_parquet(
        tmp_path / "zero.parquet"
    )
    zeros = TablePredictor(folder, features_from={"node": str(tmp_path / "zero.parquet")})(rows)
    assert zeros["y_pred"].tolist() != pytest.approx(expected, rel=1e-3)
