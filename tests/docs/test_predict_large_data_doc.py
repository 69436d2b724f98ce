"""docs/predict_large_data.md: its examples run as they stand, and give the rows of the command."""

from __future__ import annotations

import csv
import os
import re
import shlex
import shutil
import subprocess
import sys
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from training.tiny_runs import MOLECULES, run, train

from graphfold.inference import apply
from graphfold.inference.predictor import BATCH_SIZE

PAGE = (Path(__file__).parents[2] / "docs" / "predict_large_data.md").read_text(encoding="utf-8")

BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)

#: Library -> what else it needs.
ENGINES = {"ray": None, "pyspark": "java", "dask": None, "datasets": None, "polars": None}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run, and the folder `new`, whose files have a batch each, with bad records."""
    folder = tmp_path_factory.mktemp("large")
    rows = [f"{smiles},{number % 7}.5" for number, smiles in enumerate(MOLECULES * 6)]
    (folder / "solubility.csv").write_text("\n".join(["smiles,logS", *rows]) + "\n")
    words = ["data=smiles", "model=dmpnn", f"data.path={folder}/solubility.csv"]
    small = ["model.hidden_size=8", "trainer.max_epochs=1", "data.fractions=[0.4,0.4,0.2]"]
    train(folder / "runs" / "solubility", *words, *small, "data.target_columns=[logS]")
    (folder / "new").mkdir()
    for part in range(2):
        smiles = [
            "C1CC" if number % 99 == 7 else "C" * (number % 5) + MOLECULES[number * 7 % 10]
            for number in range(BATCH_SIZE)
        ]
        table = pa.table({"id": range(part * 9999, part * 9999 + BATCH_SIZE), "smiles": smiles})
        pq.write_table(table, folder / "new" / f"{part}.parquet")
    return folder


@pytest.fixture(scope="module")
def commanded(folder: Path) -> list[dict[str, str]]:
    """The rows of the command, computed as for large files, in the order of `id`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(apply, "SMALL_FILE", 0)
        output = folder / "commanded"
        assert run("predict", folder / "runs/solubility", folder / "new", "--output", output) == 0
    rows: list[dict[str, str]] = []
    for path in sorted(output.glob("*.csv")):
        with path.open() as file:
            rows += csv.DictReader(file)
    return sorted(rows, key=lambda row: int(row["id"]))


def predicted_by(engine: str, folder: Path) -> list[dict[str, Any]]:
    (path,) = folder.glob(f"predicted_by_{engine}*")
    rows = pq.read_table(path).to_pylist()
    for row in rows:
        row.pop("__null_dask_index__", None)
    return sorted(rows, key=lambda row: row["id"])


@pytest.mark.parametrize("library", ENGINES)
def test_an_engine_gives_the_rows_of_the_command(
    library: str, folder: Path, commanded: list[dict[str, str]]
) -> None:
    needed = ENGINES[library]
    installed = {found.name for found in distributions()}  # `datasets` is a folder of tests, too
    if library not in installed:
        pytest.skip(f"{library} is not installed")
    if needed is not None and shutil.which(needed) is None:
        pytest.skip(f"{library} needs {needed}, which is not installed")
    (block,) = [b for b in BLOCKS if re.search(rf"^(import|from) {library}\b", b, re.MULTILINE)]
    assert len([line for line in block.splitlines() if line]) <= 10
    script = folder / f"on_{library}.py"
    script.write_text(block)
    places = {"HF_HOME": f"{folder}/hf", "PYSPARK_PYTHON": sys.executable, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, script], cwd=folder, env={**os.environ, **places}, check=False,
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    rows = predicted_by(library.removeprefix("py"), folder)
    assert [*rows[0]] == [*commanded[0]]
    told = [{k: "" if v is None else str(v) for k, v in row.items()} for row in rows]
    assert told == commanded
    assert sum(bool(row["reason"]) for row in rows) == 22


def test_the_commands_run(
    folder: Path, commanded: list[dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    Path("plates").mkdir()
    Path("plates/2024-1.csv").write_text("smiles\nCCO\n")
    sh = re.findall(r"^```sh\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    lines = [line for own in sh for line in own.splitlines() if line.startswith("graphfold")]
    assert len(lines) == 4
    for line in lines:
        if "--engine" in line:  # see tests/inference/test_on_ray.py
            continue
        words = shlex.split(line.replace("$SLURM_ARRAY_TASK_ID", "2"))
        assert run(*words[1:]) == 0
    assert {path.name for path in Path("predicted").glob("*.csv")} == {"0.csv", "1.csv"}
    assert [path.name for path in Path("vectors").glob("*.npy")] == ["2024-1.npy"]


def test_every_example_of_the_page_is_run() -> None:
    assert len(BLOCKS) == len(ENGINES)
