"""How accurate and how fast is graphfold beside chemprop, on the same random splits?

Whole commands are run, each with the defaults of its program but for equal epochs: reading the
table, training, and scoring the test part with the best weights by the validation part.

    python -m benchmarks.accuracy.chemprop esol freesolv --chemprop ENVIRONMENT/bin/chemprop

Further words are overrides of graphfold's runs: `data.batch_size=64`. A run that is there already
is not made again, so a broken table goes on where it stopped. Seconds are processor time, which
other programs on the machine hardly change. For results that mean something, one thread each:
OMP_NUM_THREADS=1.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean, stdev

from graphfold.datasets.corpora.corpus import PARTS
from graphfold.datasets.data_module import DataModule
from graphfold.files import write_json
from graphfold.training.config.compose import compose

TARGET = "target"


@dataclass(frozen=True)
class Result:
    """What came of one command."""

    rmse: float  # of the test part, in the target's unit
    cpu_seconds: float  # of all processes of the command
    wall_seconds: float


def main(words: Sequence[str] | None = None) -> None:
    """Runs both programs and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("corpora", nargs="+", help="configs of the group data: esol, ...")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5], help="of splits")
    parser.add_argument("--epochs", type=int, default=50)
    parser.add_argument("--experiment", help="in place of the D-MPNN with graphfold's defaults")
    parser.add_argument("--chemprop", default="chemprop", help="the program")
    parser.add_argument("--runs", type=Path, default=Path("runs/compare_chemprop"))
    args, overrides = parser.parse_known_args(words)
    print(HEADER)
    for corpus in args.corpora:
        own, theirs = [], []
        for seed in args.seeds:
            chosen = [f"data={corpus}", "model=dmpnn", f"trainer.max_epochs={args.epochs}"]
            if args.experiment is not None:
                chosen = [f"experiment={args.experiment}"]
            chosen += [*overrides, f"seed={seed}"]
            folder = args.runs / corpus / f"seed_{seed}"
            own.append(run_graphfold(chosen, folder / (args.experiment or "graphfold")))
            theirs.append(run_chemprop(args.chemprop, chosen, args.epochs, folder / "chemprop"))
        print(table_row(corpus, own, theirs), flush=True)


def run_graphfold(words: Sequence[str], folder: Path) -> Result:
    """Trains with overrides, unless it is done; nothing that another run has read is reused."""
    result = folder / "result.json"
    if not result.is_file():
        command = [sys.executable, "-m", "graphfold", "train", *words]
        places = [f"hydra.run.dir={folder}", f"data.cache_dir={folder / 'cache'}"]
        cpu, wall = timed([*command, *places], folder)
        metrics = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
        write_json(result, asdict(Result(metrics["test/rmse"], cpu, wall)))
    return read_result(result)


def run_chemprop(program: str, words: Sequence[str], epochs: int, folder: Path) -> Result:
    """Trains chemprop on the split that graphfold makes with these overrides, unless it is done."""
    result = folder / "result.json"
    if not result.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        table = folder / "split.csv"
        write_split(words, table)
        command = [program, "train", "-i", str(table), "--smiles-columns", "smiles"]
        columns = ["--target-columns", TARGET, "--splits-column", "split"]
        cpu, wall = timed(
            [*command, *columns, "--epochs", str(epochs), "-o", str(folder / "run")], folder
        )
        write_json(result, asdict(Result(chemprop_error(folder, table), cpu, wall)))
    return read_result(result)


def write_split(words: Sequence[str], path: Path) -> None:
    """Writes SMILES, target and part of each record as a run with these overrides has them."""
    data = DataModule(**compose(list(words)).config.data)
    data.prepare()
    [target] = data.raw.schema.graph_targets
    parts = [""] * data.raw.num_graphs
    for part in PARTS:
        for number in data.split.part(part).tolist():
            parts[number] = part
    values = data.raw.graph_column(target.name).tolist()
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["smiles", TARGET, "split"])
        writer.writerows(zip(data.raw.strings("graph", "smiles"), values, parts, strict=True))


def chemprop_error(folder: Path, table: Path) -> float:
    """The root mean squared error of the predictions that chemprop wrote of the test part."""
    with table.open(encoding="utf-8", newline="") as file:
        wanted = [float(row[TARGET]) for row in csv.DictReader(file) if row["split"] == "test"]
    [predictions] = (folder / "run").rglob("test_predictions.csv")
    with predictions.open(encoding="utf-8", newline="") as file:
        found = [float(row[TARGET]) for row in csv.DictReader(file)]
    pairs = zip(found, wanted, strict=True)
    return math.sqrt(mean((value - right) ** 2 for value, right in pairs))


def timed(command: Sequence[str], folder: Path) -> tuple[float, float]:
    """Seconds of processor and of the clock that a command takes; its output goes to a file."""
    folder.mkdir(parents=True, exist_ok=True)
    start = time.perf_counter()
    with (folder / "output.txt").open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)  # it was not told
    if status:
        sys.exit(f"{' '.join(command)} failed; see {folder / 'output.txt'}")
    return usage.ru_utime + usage.ru_stime, time.perf_counter() - start


def read_result(path: Path) -> Result:
    """What a run wrote down."""
    return Result(**json.loads(path.read_text(encoding="utf-8")))


HEADER = """\
| corpus | splits | graphfold, RMSE | chemprop, RMSE | ratio | seconds | chemprop, s | ratio |
|---|---|---|---|---|---|---|---|"""


def table_row(corpus: str, own: Sequence[Result], theirs: Sequence[Result]) -> str:
    """Means over splits, the deviation between them, and the ratios of the means."""
    cells = [corpus, str(len(own))]
    cells += [spread([r.rmse for r in results]) for results in (own, theirs)]
    cells.append(f"{mean(r.rmse for r in own) / mean(r.rmse for r in theirs):.3f}")
    seconds = [mean(r.cpu_seconds for r in results) for results in (own, theirs)]
    cells += [f"{value:.0f}" for value in seconds]
    cells.append(f"{seconds[0] / seconds[1]:.2f}")
    return f"| {' | '.join(cells)} |"


def spread(values: Sequence[float]) -> str:
    """The mean, and the deviation between several."""
    deviation = f" ± {stdev(values):.3f}" if len(values) > 1 else ""
    return f"{mean(values):.3f}{deviation}"


if __name__ == "__main__":
    main()
