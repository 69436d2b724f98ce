import csv
import os
import shutil

import pytest

from graphfold.datasets.corpora.chembl import chembl_folder, write_chembl
from graphfold.errors import DataError

FILES = ("CHEMBL2321810.smi", "CHEMBL2321810_act.csv")


@pytest.fixture
def source(tmp_path):
    """A copy of rdkit's files, to damage."""
    folder = tmp_path / "source"
    folder.mkdir()
    for name in FILES:
        shutil.copy(chembl_folder() / name, folder)
    return folder


def test_the_table_joins_molecules_and_activities(tmp_path):
    path = write_chembl(tmp_path / "new" / "chembl")
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    smi, act = [(chembl_folder() / name).read_text().splitlines() for name in FILES]
    molecules = [line.split() for line in smi]
    activities = dict(line.split(",") for line in act)
    assert len(rows) == len(molecules) == 1017
    for row, (smiles, compound) in zip(rows, molecules, strict=True):
        expected = {"smiles": smiles, "pIC50": activities[compound], "compound": compound}
        assert row == expected
    assert os.listdir(path.parent) == ["chembl.csv"]


def test_a_table_that_is_there_is_not_written_again(tmp_path):
    path = write_chembl(tmp_path)
    before = path.stat()
    after = write_chembl(tmp_path).stat()
    assert (after.st_mtime_ns, after.st_ino) == (before.st_mtime_ns, before.st_ino)
    path.write_text("smiles,pIC50,compound\n")
    assert write_chembl(tmp_path).stat().st_size == before.st_size


@pytest.mark.parametrize("name", FILES)
def test_a_wheel_without_the_files(tmp_path, source, name):
    (source / name).unlink()
    with pytest.raises(DataError, match=rf"{name}: no such file, though .* Install rdkit with"):
        write_chembl(tmp_path / "out", source)
    assert not (tmp_path / "out").exists()


def test_a_compound_without_activity(tmp_path, source):
    path = source / FILES[1]
    path.write_text(path.read_text().replace("1520010,", "7,"))
    with pytest.raises(
        DataError, match=r"smi:3: compound 1520010 has no activity in CHEMBL2321810_"
    ):
        write_chembl(tmp_path, source)
