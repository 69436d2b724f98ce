"""Features of the example: what extended Hückel theory must give, in the right places."""

from __future__ import annotations

import runpy
import sys

import pytest
from example_files import FOLDER, example

from graphfold.datasets.data_module import DataModule

SMILES = ["CC(=O)O", "OCC", "C", "c1ccccc1", "not a SMILES"]


def test_charges_and_populations_belong_to_their_atoms_and_bonds():
    found = example("qm_features").features("CC(=O)O")
    methyl, carbonyl, oxygen, hydroxyl = found["charge"]
    assert carbonyl > 0.5 > methyl
    assert max(oxygen, hydroxyl) < -0.5
    single, double, other = found["population"]
    assert double > single > other > 0  # C=O, C-C, C-O
    assert found["gap"] > 0


def test_a_network_reads_the_file(tmp_path, monkeypatch, capsys):
    table, output = tmp_path / "t.csv", tmp_path / "qm.parquet"
    table.write_text("smiles,y\n" + "".join(f"{smiles},1\n" for smiles in SMILES))
    monkeypatch.setattr(sys, "argv", ["qm_features.py", str(table), str(output)])
    runpy.run_path(str(FOLDER / "qm_features.py"), run_name="__main__")
    assert capsys.readouterr().err == "4 of 5 molecules have features\n"
    columns = {"graph": "gap", "node": "charge", "edge": "population"}
    features = {
        level: {"file": str(output), "key": "smiles", "columns": [name]}
        for level, name in columns.items()
    }
    data = DataModule(
        adapter="smiles", path=table, target_columns=["y"], on_error="skip", num_workers=0,
        features_from=features, cache_dir=tmp_path / "cache",
    )  # fmt: skip
    data.prepare()
    dag = data.raw
    assert dag.num_graphs == 4
    charge, element = dag.features("atom")["charge_feature"], dag.features("atom")["element"]
    assert charge[element == 8].max() < -0.5
    assert dag.graph_column("gap")[3] == pytest.approx(
        example("qm_features").features(SMILES[3])["gap"]
    )
    bonds = dag.columns["relation:bond"]
    of_acid = slice(0, int(dag.row_ptr("relation:bond")[1]))
    assert bonds["order"][of_acid][bonds["population"][of_acid].argmax()] == 1  # the double bond
