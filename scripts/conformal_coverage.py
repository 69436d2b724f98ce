"""How often do conformal intervals hold the measured value, over many random splits?

For each split an ensemble and a quantile model are trained, quickly: whether intervals keep their
promise does not depend on how good a model is; how wide they are does. The mean over splits should
be 0.9, within 0.02.

    python scripts/conformal_coverage.py --splits 20 --json coverage.json
"""

from __future__ import annotations

import argparse
import contextlib
import io
import statistics
import tempfile
from pathlib import Path

from graphfold.files import write_json
from graphfold.recipe import start_run
from graphfold.training.config.compose import compose
from graphfold.training.run.run_folder import RunFolder

#: Overrides of a quick model, and of the two ways to intervals.
QUICK = ["model=gcn", "model.hidden_size=16", "data.batch_size=128", "logger=none"]
WAYS = {"ensemble": ["ensemble=2"], "quantile": ["+model.head.loss=quantile"]}


def main() -> None:
    """Prints coverage and width of every split, and their means."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", default="lipophilicity", help="a config of the group data")
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures here")
    args = parser.parse_args()
    rows = []
    for seed in range(1, args.splits + 1):
        for way, overrides in WAYS.items():
            settings = [f"data={args.data}", *QUICK, f"trainer.max_epochs={args.epochs}"]
            metrics = run([*settings, *overrides, f"seed={seed}"])
            names = ("interval_coverage", "interval_width", "rmse")
            rows.append({"seed": seed, "way": way, **{n: metrics[f"test/{n}"] for n in names}})
            print(rows[-1], flush=True)
    for way in WAYS:
        shares = [row["interval_coverage"] for row in rows if row["way"] == way]
        print(f"{way}: mean coverage {statistics.mean(shares):.4f} of {len(shares)} splits")
    if args.json is not None:
        write_json(args.json, rows)


def run(overrides: list[str]) -> dict[str, float | None]:
    """Trains in a folder that is thrown away; returns what metrics.json held."""
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        return start_run(compose(overrides).config, RunFolder(Path(folder)))


if __name__ == "__main__":
    main()
