"""What commands load: a wrong one says so before the large libraries come."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from training.tiny_runs import train, write_molecules

#: What training and its report take, and reading a file of molecules, scoring or drawing.
LARGE = ("lightning", "tensorboard", "matplotlib", "torchmetrics", "scipy", "torch._dynamo")

COMMAND = """
import sys
from graphfold.cli import main
code = main(sys.argv[1:])
print("LOADED", code, *(name for name in {names!r} if name in sys.modules))
"""


def loaded(names: tuple[str, ...], *words: str | Path) -> tuple[int, list[str]]:
    """The exit code of a command in a process of its own, and which of some modules it loaded."""
    code = COMMAND.format(names=names)
    command = [sys.executable, "-c", code, *map(str, words)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    exit_code, *found = text.splitlines()[-1].removeprefix("LOADED ").split()
    return int(exit_code), found


@pytest.mark.parametrize(
    "words",
    [
        "train model=dmpn",
        "train optimiser=adam",
        "train data=smiles",
        "train data.batch_size=0",
        "train callbacks.early_stopping=default",
        "train resume=/nowhere",
        "train resume=/nowhere seed=2",
        "train init_from=/nowhere",
    ],
)
def test_a_wrong_override_is_told_before_torch_is_loaded(words: str) -> None:
    assert loaded(("torch", "rdkit", *LARGE), *words.split()) == (2, [])


FIRST_LINE = """
import io, sys
from graphfold.cli import main

class Noting(io.StringIO):
    def write(self, text):
        if not self.getvalue():
            sys.stderr.write(f"torch: {'torch' in sys.modules}\\n")
        return super().write(text)

sys.stdout = Noting()
main(sys.argv[1:])
sys.stderr.write(sys.stdout.getvalue())
"""


def test_a_training_says_what_it_is_made_of_before_torch_is_loaded() -> None:
    words = ["train", "experiment=esol_gcn", "model=gine", "data.root=/nowhere"]
    command = [sys.executable, "-c", FIRST_LINE, *words]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stderr.splitlines()
    assert lines[0] == "torch: False"
    assert lines[-1] == "experiment=esol_gcn data=esol model=gine"
    assert "/nowhere" in lines[1]


def test_wrong_options_and_absent_files_and_columns_need_no_lightning(tmp_path: Path) -> None:
    table = write_molecules(tmp_path / "m.csv")
    words = ["train", "data=smiles", f"data.path={table}"]
    assert loaded(LARGE, *words, "data.target_columns=[none]") == (2, [])
    assert loaded(LARGE, *words, "data.target_columns=[c]", "+data.x=1") == (2, [])
    wrong = ["data.target_columns=[c]", "optimizer.lr=fast"]
    assert loaded(LARGE[:4], *words, *wrong) == (2, [])
    assert loaded(LARGE, "train", "data=esol", "data.root=/nowhere") == (2, [])


def test_predicting_a_few_records_loads_neither_lightning_nor_torchs_compiler(
    tmp_path: Path,
) -> None:
    table = write_molecules(tmp_path / "m.csv")
    small = ["model.hidden_size=8", "trainer.max_epochs=1"]
    words = ["data=smiles", f"data.path={table}", "data.target_columns=[c]", *small]
    folder = train(tmp_path / "run", *words)
    assert loaded((*LARGE, "rich", "sympy"), "predict", folder, table) == (0, [])
    scored = tuple(name for name in LARGE if name in ("lightning", "tensorboard"))
    assert loaded(scored, "evaluate", folder) == (0, [])


def test_batching_is_imported_with_torch_alone() -> None:
    names = (*LARGE[:4], "rdkit", "hydra", "omegaconf", "pyarrow", "networkx", "rich")
    code = f"import sys, graphfold.batching; print([n for n in {names!r} if n in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
