"""The script that compares graphfold with chemprop, with a stand-in for chemprop."""

from __future__ import annotations

import csv
import sys

import pytest

from benchmarks.accuracy import chemprop as comparison

#: Predicts 1 more than the target of each test molecule, as chemprop writes it.
CHEMPROP = f"""#!{sys.executable}
import csv, pathlib, sys
words = sys.argv[1:]
table, output = words[words.index("-i") + 1], pathlib.Path(words[words.index("-o") + 1])
assert words[words.index("--epochs") + 1] == "1"
rows = [row for row in csv.DictReader(open(table)) if row["split"] == "test"]
(output / "model_0").mkdir(parents=True)
with open(output / "model_0" / "test_predictions.csv", "w") as file:
    print("smiles,target", file=file)
    for row in rows:
        print(row["smiles"], float(row["target"]) + 1, sep=",", file=file)
"""


def test_both_have_the_same_split(tmp_path, monkeypatch, capsys):
    (tmp_path / "esol").mkdir()
    target = "measured log solubility in mols per litre"
    molecules = ["C" * n for n in range(1, 21)]
    lines = [f"{n},{smiles}" for n, smiles in enumerate(molecules)]
    (tmp_path / "esol" / "delaney-processed.csv").write_text(
        "\n".join([f"{target},smiles", *lines])
    )
    monkeypatch.setenv("GRAPHFOLD_DATA", str(tmp_path))
    chemprop = tmp_path / "chemprop"
    chemprop.write_text(CHEMPROP)
    chemprop.chmod(0o755)
    words = ["esol", "--seeds", "2", "--epochs", "1", "--chemprop", str(chemprop)]
    words += ["--runs", str(tmp_path / "runs"), "model.hidden_size=4"]
    comparison.main(words)
    folder = tmp_path / "runs" / "esol" / "seed_2"
    table = list(csv.DictReader((folder / "chemprop" / "split.csv").read_text().splitlines()))
    assert [row["smiles"] for row in table] == molecules
    parts = [row["split"] for row in table]
    assert {part: parts.count(part) for part in parts} == {"train": 16, "val": 2, "test": 2}
    own = comparison.read_result(folder / "graphfold" / "result.json")
    first = capsys.readouterr().out.splitlines()[-1]
    assert first.split(" | ")[:4] == ["| esol", "1", f"{own.rmse:.3f}", "1.000"]
    chemprop.unlink()  # what is there is not run again
    comparison.main(words)
    assert capsys.readouterr().out.splitlines()[-1] == first


def test_a_program_that_fails_is_named(tmp_path):
    with pytest.raises(SystemExit, match=r"-c fail failed; see .*output\.txt"):
        comparison.timed([sys.executable, "-c", "fail"], tmp_path)
