"""Descriptors as targets: RDKit's own numbers, and encoders that begin with what they taught."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from rdkit import Chem
from rdkit.Chem import Descriptors
from training.tiny_runs import MOLECULES, run, train, write_molecules

import graphfold
from graphfold.datasets.adapter import read_records
from graphfold.datasets.molecules.descriptors import NAMES, describe_molecule
from graphfold.datasets.readers.descriptors import DescriptorsAdapter
from graphfold.errors import ConfigError
from graphfold.training.run.checkpoint import Checkpoint


def test_targets_are_those_of_rdkit(tmp_path: Path) -> None:
    path = tmp_path / "m.csv"
    path.write_text("smiles,y\n" + "".join(f"{smiles},x\n" for smiles in [*MOLECULES, "C1CC"]))
    adapter = DescriptorsAdapter(directed_bonds=True)
    result = read_records(adapter, path, adapter.records(path), on_error="skip")
    assert [error.line for error in result.skipped] == [len(MOLECULES) + 2]
    functions = dict(Descriptors.descList)
    assert set(NAMES) == functions.keys() - {"Ipc"}
    for name in NAMES:
        wanted = [functions[name](Chem.MolFromSmiles(smiles)) for smiles in MOLECULES]
        found = result.dag.graph_column(name)
        torch.testing.assert_close(found, torch.tensor(wanted, dtype=torch.float32))


def test_targets_are_those_of_the_molecule_that_is_read(tmp_path: Path) -> None:
    path = tmp_path / "m.csv"
    path.write_text("smiles\nCCO.Cl\n")
    adapter = DescriptorsAdapter(salts="strip")
    dag = read_records(adapter, path, adapter.records(path)).dag
    assert dag.num_nodes == 3
    wanted = Descriptors.MolWt(Chem.MolFromSmiles("CCO"))  # type: ignore[attr-defined]
    assert dag.graph_column("MolWt").item() == pytest.approx(wanted)


def test_undefined_and_huge_descriptors_are_missing() -> None:
    values = describe_molecule(Chem.MolFromSmiles("*"))
    assert None in values.values()
    assert values["MolWt"] == 0.0
    long = describe_molecule(Chem.MolFromSmiles("C" * 300))
    assert all(value is None or abs(value) < 1e18 for value in long.values())


def test_target_columns_are_refused() -> None:
    with pytest.raises(ConfigError, match="the targets of the adapter descriptors are computed"):
        DescriptorsAdapter(target_columns="y")


def test_a_run_begins_with_a_pre_trained_encoder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = write_molecules(tmp_path / "m.csv")
    small = ["model.hidden_size=8", "trainer.max_epochs=1", f"data.path={table}"]
    first = train(tmp_path / "first", "experiment=pretrain_descriptors", *small)
    targets = ["data=smiles", "model=dmpnn", "data.target_columns=[c]"]
    frozen = ["freeze=[encoder,network]", f"init_from={first}"]
    second = train(tmp_path / "second", *targets, *small, *frozen)
    assert "init_from: 5 of 9 weights taken" in capsys.readouterr().out
    before, after = (
        Checkpoint.load(folder / "checkpoints" / "best.ckpt").state_dict
        for folder in (first, second)
    )
    for name, value in after.items():
        if name.startswith(("encoder.", "network.")):
            assert torch.equal(value, before[name]), name
    (answer,) = graphfold.load(first).predict(["CCO"])
    assert list(answer["prediction"]) == list(NAMES)
    assert run("fingerprint", first, table, "--output", tmp_path / "e.npy") == 0
