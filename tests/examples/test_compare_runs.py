"""The comparison of runs: what SciPy is given, from the folders that training leaves."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from example_files import example
from training.tiny_runs import QUICK, read_json, run, write_molecules

stats = pytest.importorskip("scipy.stats", reason="SciPy is not installed")


def sweep(folder: Path, values: dict[str, list[float]]) -> Path:
    """Runs with a value each, on the splits of these names."""
    for number, (split, x) in enumerate((s, x) for s, own in values.items() for x in own):
        path = folder / str(number)
        path.mkdir(parents=True)
        (path / "split.csv").write_text(split)
        (path / "metrics.json").write_text(json.dumps({"test/rmse": x}))
    return folder


def test_runs_on_the_same_splits_are_paired(tmp_path):
    a = sweep(tmp_path / "a", {"x": [1.0], "y": [2.0], "z": [4.0]})
    b = sweep(tmp_path / "b", {"z": [4.5], "x": [1.2], "y": [2.1]})
    p = stats.ttest_rel([1.2, 2.1, 4.5], [1.0, 2.0, 4.0]).pvalue
    *_, line = example("compare_runs").main([str(a), str(b)])
    assert line == f"{b} - {a}: +0.2667, p = {p:.2g}"
    other = sweep(tmp_path / "c", {"x": [1.0], "y": [2.0], "w": [4.0]})
    with pytest.raises(SystemExit, match="no runs on the same splits"):
        example("compare_runs").main([str(a), str(other)])


def test_seeds_are_independent_samples_and_single_runs_are_drawn(tmp_path):
    table = write_molecules(tmp_path / "m.csv", 60)
    words = [*QUICK, "data=smiles", f"data.path={table}", "data.target_columns=[c]", "logger=none"]
    words += [f"data.cache_dir={tmp_path}/cache", "seed=1,2", "data.seed=0"]
    folders = [tmp_path / str(depth) for depth in (1, 2)]
    for depth, folder in enumerate(folders, 1):
        more = [f"model.depth={depth}", f"hydra.sweep.dir={folder}"]
        assert run("train", "-m", *words, *more) == 0
    values = [[read_json(f / n / "metrics.json")["test/rmse"] for n in "01"] for f in folders]
    *_, line = example("compare_runs").main([str(folder) for folder in folders])
    assert line.endswith(f"p = {stats.tukey_hsd(*values).pvalue[0, 1]:.2g}")
    (line,) = example("compare_runs").main([str(folder / "0") for folder in folders])
    tables = [(folder / "0" / "predictions.csv").read_text().splitlines() for folder in folders]
    rows = [list(csv.DictReader(table)) for table in tables]
    errors = [
        [(float(r["c_measured"]) - float(r["c_pred"])) ** 2 for r in own if r["part"] == "test"]
        for own in rows
    ]
    gap = sum(b - a for a, b in zip(*errors, strict=True)) / len(errors[0])
    assert f"mean error {gap:+.4g}, 95 % interval " in line
