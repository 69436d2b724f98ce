"""Which model is better? Repeated runs tested by SciPy, paired by their splits.

    graphfold train -m data.split=kfold 'data.fold=range(0,5)' model=gcn hydra.sweep.dir=runs/gcn
    graphfold train -m data.split=kfold 'data.fold=range(0,5)' model=gin hydra.sweep.dir=runs/gin
    python examples/compare_runs.py runs/gcn runs/gin --metric test/rmse

Each folder holds the runs of one model, as a sweep leaves them, or is a single run. Runs on the
same splits are paired (t-tests, p times the number of pairs); runs of one split, which differ in
their seeds, are independent samples (Tukey's HSD). Of single runs the errors of the test records
are drawn with replacement, which says nothing of other seeds and splits. Folds share training
records, so a p just below 0.05 is no proof: Ash et al. (2025),
https://doi.org/10.1021/acs.jcim.5c01609.
"""

from __future__ import annotations

import argparse
import csv
import json
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

import numpy as np
from scipy import stats


def read_runs(folder: Path, metric: str) -> dict[str, list[float]]:
    """The split of the runs in a folder (the text of split.csv) -> the metric of each."""
    found: dict[str, list[float]] = {}
    for path in sorted(folder.glob("*/metrics.json"), key=lambda path: (len(str(path)), path)):
        values = json.loads(path.read_text(encoding="utf-8"))
        split = path.with_name("split.csv").read_text(encoding="utf-8")
        found.setdefault(split, []).append(values[metric])
    if not found:
        raise SystemExit(f"{folder} holds no finished run. Name the folder of a sweep, or a run.")
    return found


def compare_sweeps(folders: Sequence[Path], metric: str) -> list[str]:
    """A line for each model, then one for every two."""
    runs = [read_runs(folder, metric) for folder in folders]
    if any(
        {split: len(values) for split, values in model.items()}
        != {split: len(values) for split, values in runs[0].items()}
        for model in runs
    ):
        raise SystemExit("The models have no runs on the same splits. Give all the same data.seed.")
    values = np.array([[x for split in runs[0] for x in model[split]] for model in runs])
    rows = zip(folders, values, strict=True)
    lines = [f"{f}: {metric} {x.mean():.4g} ± {x.std(ddof=1):.2g}, {len(x)} runs" for f, x in rows]
    pairs = list(combinations(range(len(folders)), 2))
    tukey = stats.tukey_hsd(*values) if len(runs[0]) == 1 else None
    for a, b in pairs:
        paired = stats.ttest_rel(values[b], values[a])
        p = paired.pvalue * len(pairs) if tukey is None else tukey.pvalue[a, b]
        difference = (values[b] - values[a]).mean()
        lines.append(f"{folders[b]} - {folders[a]}: {difference:+.4g}, p = {min(p, 1.0):.2g}")
    return lines


def read_errors(folder: Path) -> np.ndarray:
    """[num_test_records] squared errors of numbers, or 1 for a wrong class.

    Of several targets the first one, where it is measured.
    """
    with open(folder / "predictions.csv", encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["part"] == "test"]
    target = next(name for name in rows[0] if name.endswith("_measured")).removesuffix("_measured")
    known = [(row[f"{target}_measured"], row[f"{target}_pred"]) for row in rows]
    known = [pair for pair in known if pair[0]]
    if any(name.startswith(f"{target}_prob_") for name in rows[0]):
        return np.array([float(measured != told) for measured, told in known])
    return np.array([(float(measured) - float(told)) ** 2 for measured, told in known])


def compare_records(folders: Sequence[Path]) -> list[str]:
    """A line for every two runs."""
    errors = [read_errors(folder) for folder in folders]
    lines = []
    for a, b in combinations(range(len(folders)), 2):
        difference = errors[b] - errors[a]
        drawn = stats.bootstrap((difference,), np.mean, method="percentile", random_state=0)
        low, high = drawn.confidence_interval
        told = f"mean error {difference.mean():+.4g}, 95 % interval {low:+.4g} to {high:+.4g}"
        lines.append(f"{folders[b]} - {folders[a]}: {told}")
    return lines


def main(arguments: list[str] | None = None) -> list[str]:
    """Prints the comparison of some models."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="+", type=Path, help="sweeps, or single runs")
    parser.add_argument("--metric", default="test/rmse", help="a key of metrics.json, of sweeps")
    args = parser.parse_args(arguments)
    single = all((folder / "metrics.json").is_file() for folder in args.folders)
    compared = (
        compare_records(args.folders) if single else compare_sweeps(args.folders, args.metric)
    )
    print("\n".join(compared))
    return compared


if __name__ == "__main__":
    main()
