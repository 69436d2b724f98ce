"""The examples of engines: each, where its engine is there, gives the rows of the command."""

from __future__ import annotations

import csv
import os
import shutil
import subprocess
import sys
from importlib.metadata import distributions

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from example_files import FOLDER
from training.tiny_runs import MOLECULES, run, train, write_molecules

#: Example -> its library, and what else that needs.
ENGINES = {"ray": ("ray", None), "spark": ("pyspark", "java"), "dask": ("dask", None)}


@pytest.mark.parametrize("name", ENGINES)
def test_an_engine_gives_the_rows_of_the_command(name, tmp_path):
    library, needed = ENGINES[name]
    if library not in {found.name for found in distributions()}:
        pytest.skip(f"{library} is not installed")
    if needed is not None and shutil.which(needed) is None:
        pytest.skip(f"{library} needs {needed}, which is not installed")
    table = write_molecules(tmp_path / "m.csv")
    words = ["data=smiles", f"data.path={table}", "data.target_columns=[c]", "model.hidden_size=8"]
    model = train(tmp_path / "run", *words, "model.run=eager", "trainer.max_epochs=1")
    for part in range(2):
        smiles = ["C1CC", *(("C" * part + smiles) for smiles in MOLECULES)]
        rows = pa.table({"id": range(part * 99, part * 99 + len(smiles)), "smiles": smiles})
        (tmp_path / "new").mkdir(exist_ok=True)
        pq.write_table(rows, tmp_path / "new" / f"{part}.parquet")
    assert run("predict", model, tmp_path / "new", "--output", tmp_path / "commanded") == 0
    wanted = []
    for path in sorted((tmp_path / "commanded").glob("*.csv")):
        with path.open() as file:
            wanted += list(csv.DictReader(file))
    script = FOLDER / f"predict_on_{name}.py"
    own = {"PYSPARK_PYTHON": sys.executable, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, script, model, tmp_path / "new", tmp_path / "out"]
    done = subprocess.run(
        command, env={**os.environ, **own}, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = sorted(pq.read_table(tmp_path / "out").to_pylist(), key=lambda row: row["id"])
    for row, want in zip(found, wanted, strict=True):
        assert (str(row["id"]), row["reason"]) == (want["id"], want["reason"])
        if not row["reason"]:
            assert row["c_pred"] == pytest.approx(float(want["c_pred"]), rel=1e-5)
