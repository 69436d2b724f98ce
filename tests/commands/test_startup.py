"""What commands load: a wrong one says so before the large libraries come."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from training.tiny_runs import train, write_molecules

#: What training and its report take, and reading a file of molecules, scoring or drawing.
LARGE = ("lightning", "tensorboard", "matplotlib", "torchmetrics", "scipy", "torch._dynamo")

COMMANDS = """
import json, sys
from graphfold.cli import main
for words in json.loads(sys.argv[1]):
    code = main(words)
    print("LOADED", json.dumps([code, [name for name in {names!r} if name in sys.modules]]))
"""


def loaded(names: tuple[str, ...], *commands: list[Any]) -> list[list[Any]]:
    """The exit codes of commands in one process, and which of some modules were loaded after each.

    Args:
        names: the modules.
        *commands: the words of each; the first one that loads a module is seen in its place.
    """
    words = json.dumps([[str(word) for word in command] for command in commands])
    command = [sys.executable, "-c", COMMANDS.format(names=names), words]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    lines = (line for line in text.splitlines() if line.startswith("LOADED "))
    return [json.loads(line.removeprefix("LOADED ")) for line in lines]


#: Commands that are wrong in themselves.
WRONG = (
    "train model=dmpn",
    "train optimiser=adam",
    "train data=smiles",
    "train data.batch_size=0",
    "train callbacks.early_stopping=default",
    "train resume=/nowhere",
    "train resume=/nowhere seed=2",
    "train init_from=/nowhere",
)


def test_a_wrong_override_is_told_before_torch_is_loaded() -> None:
    found = loaded(("torch", "rdkit", *LARGE), *(words.split() for words in WRONG))
    for words, result in zip(WRONG, found, strict=True):
        assert result == [2, []], words


#: Ends with the first text that is printed.
FIRST_LINE = """
import io, os, sys
from graphfold.cli import main

class Ending(io.StringIO):
    def write(self, text):
        sys.stderr.write(f"{text}\\ntorch: {'torch' in sys.modules}\\n")
        os._exit(0)

sys.stdout = Ending()
main(sys.argv[1:])
"""


def test_a_training_says_what_it_is_made_of_before_torch_is_loaded() -> None:
    words = ["train", "experiment=esol_gcn", "model=gine", "data.root=/nowhere"]
    command = [sys.executable, "-c", FIRST_LINE, *words]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stderr.splitlines()
    assert lines == ["experiment=esol_gcn data=esol model=gine", "torch: False"]


def test_wrong_options_and_absent_files_and_columns_need_no_lightning(tmp_path: Path) -> None:
    table = write_molecules(tmp_path / "m.csv")
    words = ["train", "data=smiles", f"data.path={table}"]
    commands = [
        [*words, "data.target_columns=[none]"],
        [*words, "data.target_columns=[c]", "+data.x=1"],
        ["train", "data=esol", "data.root=/nowhere"],
        [*words, "data.target_columns=[c]", "optimizer.lr=fast"],
    ]
    *found, (code, names) = loaded(LARGE, *commands)
    assert found == [[2, []]] * 3
    assert code == 2
    assert not {*names} & {*LARGE[:4]}


def test_predicting_a_few_records_loads_neither_hydra_nor_torchs_compiler(
    tmp_path: Path,
) -> None:
    table = write_molecules(tmp_path / "m.csv")
    small = ["model.hidden_size=8", "model.run=eager", "trainer.max_epochs=1"]
    words = ["data=smiles", f"data.path={table}", "data.target_columns=[c]", *small]
    folder = train(tmp_path / "run", *words)
    commands = ["predict", folder, table], ["evaluate", folder]
    first, (code, names) = loaded((*LARGE, "rich", "sympy", "hydra"), *commands)
    assert first == [0, []]
    assert code == 0
    assert not {*names} & {"lightning", "tensorboard"}


def test_batching_is_imported_with_torch_alone() -> None:
    names = (*LARGE[:4], "rdkit", "hydra", "omegaconf", "pyarrow", "networkx", "rich")
    code = f"import sys, graphfold.batching; print([n for n in {names!r} if n in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_the_collector_leaves_alone_what_stays() -> None:
    """Neither what was loaded is gone over again, nor anything when the process ends."""
    code = """
import atexit, gc
from graphfold.cli import main
atexit.register(lambda: print(len(gc.get_objects()) < 1000))
main(["list"])
frozen = gc.get_freeze_count()
print(frozen > 100_000, gc.isenabled())
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.splitlines()[-2:] == ["True True", "True"]
