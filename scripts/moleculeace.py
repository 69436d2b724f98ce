"""Trains an experiment on every set of MoleculeACE; tables its errors beside published ones.

    python scripts/moleculeace.py moleculeace_forest FOLDER --seeds 1 2 3 --runs runs/moleculeace

FOLDER holds the sets as CSV files and `published.csv` (a column `set`, then one for each program).
Further words are overrides: `trainer.max_epochs=20`. A run that is there already is not trained
again, so a broken table goes on where it stopped.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, stdev

from graphfold.cli import main as graphfold


def main(words: Sequence[str] | None = None) -> int:
    """Trains and prints the table; exit code 1 if a run failed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("experiment")
    parser.add_argument("folder", type=Path, help="of the CSV files")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--sets", nargs="+", help="names of some sets; all by default")
    parser.add_argument("--runs", type=Path, default=Path("runs/moleculeace"))
    parser.add_argument("--output", type=Path, help="the table as CSV")
    args, overrides = parser.parse_known_args(words)
    files = sorted(path for path in args.folder.glob("*.csv") if path.stem != "published")
    if args.sets:
        files = [path for path in files if path.stem in args.sets]
    found = {
        path.stem: [
            _test_rmse(args.experiment, path, seed, args.runs, overrides) for seed in args.seeds
        ]
        for path in files
    }
    rows = list(_rows(found, _published(args.folder / "published.csv")))
    print(_table(rows))
    if args.output is not None:
        with args.output.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows(rows)
    return int(any(None in errors for errors in found.values()))


def _test_rmse(
    experiment: str, path: Path, seed: int, runs: Path, overrides: Sequence[str]
) -> float | None:
    """The test error of one run, which is trained unless it is there; None if it failed."""
    run = runs / experiment / path.stem / f"seed_{seed}"
    metrics = run / "metrics.json"
    if not metrics.is_file():
        words = [f"experiment={experiment}", f"data.path={path}", f"seed={seed}", *overrides]
        if graphfold(["train", *words, f"hydra.run.dir={run}"]):
            return None
    return float(json.loads(metrics.read_text(encoding="utf-8"))["test/rmse"])


def _published(path: Path) -> dict[str, dict[str, float]]:
    """Set -> program -> test error; empty without such a file."""
    if not path.is_file():
        return {}
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return {row.pop("set"): {name: float(value) for name, value in row.items()} for row in rows}


def _rows(
    found: dict[str, list[float | None]], published: dict[str, dict[str, float]]
) -> list[list[str]]:
    """The header, a row for each set, and the means over the sets."""
    programs = list(next(iter(published.values()), {}))
    rows = [["set", "graphfold", "deviation", *programs]]
    values: list[list[float | None]] = []
    for name, errors in found.items():
        whole = [error for error in errors if error is not None]
        own = mean(whole) if len(whole) == len(errors) else None
        spread = stdev(whole) if len(whole) > 1 else None
        theirs = [published.get(name, {}).get(program) for program in programs]
        values.append([own, spread, *theirs])
        rows.append([name, *map(_text, values[-1])])
    columns = list(zip(*values, strict=True))
    rows.append(["mean", *(_text(None if None in c else mean(c)) for c in columns)])  # type: ignore[type-var]
    return rows


def _text(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _table(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) for row in rows]
    return "\n".join(line.rstrip() for line in lines)


if __name__ == "__main__":
    sys.exit(main())
