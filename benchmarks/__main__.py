"""Measure speed against baselines that run in the same process.

NAME is a benchmark, and each answers a question:
  treefc      how close is the engine to code written by hand for one cell?
  sst         how fast does a Tree-LSTM train, and how much does sharing equal nodes gain?
  trees       how fast does each tree model train?
  sequence    how much does a chain cost, compared with torch's LSTM?
  molecules   how fast are graph networks, beside PyTorch Geometric and chemprop?
  host        how much time does a step cost beside its products: calls, plans, copies?
  train       how long is an epoch, and how much does graphfold train add to the steps?
  predict     how long does one prediction take?
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.machine import NATIVE, VARIABLES, keep_to
from graphfold.errors import ConfigError, GraphfoldError, did_you_mean
from graphfold.files import check_output, write_text

if TYPE_CHECKING:
    from benchmarks.measure import Row, Settings

BENCHMARKS = ("treefc", "sst", "trees", "sequence", "molecules", "host", "train", "predict")

#: The graphs of these are generated, so there is no config to override.
WITHOUT_CONFIG = ("treefc",)

#: These measure several models, or graphs of several shapes.
WITH_SHAPES = ("treefc", "trees", "molecules", "host")

#: These measure a GPU as well.
ON_GPU = ("treefc", "sst", "trees", "sequence", "molecules")

#: Keys of the config that are options here, so that the rows say what was measured.
OPTIONS = {
    "threads": "--threads",
    "data.batch_size": "--batch-size",
    "model.hidden_size": "--hidden-size",
}


def main(words: Sequence[str] | None = None) -> int:
    """Prints the table of speeds, and writes its rows with --json; returns the exit code."""
    args = _parser().parse_intermixed_args(words)
    try:
        keep_to(args.isa)
        from benchmarks.measure import Settings

        settings = Settings(
            batch_sizes=args.batch_size or (),
            hidden_sizes=args.hidden_size or (),
            shapes=args.shape or (),
            threads=args.threads,
            device=args.device,
            overrides=args.overrides,
            config_dir=args.config_dir,
        )
        run(args.name, settings, args.json)
    except GraphfoldError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", metavar="NAME", help="the benchmark")
    parser.add_argument("overrides", nargs="*", help="of the config, as for graphfold train")
    parser.add_argument(
        "--threads", type=int, metavar="N", default=1, help="threads of torch (default: 1)"
    )
    parser.add_argument("--batch-size", type=_numbers, metavar="N,..", help="batch sizes")
    parser.add_argument("--hidden-size", type=_numbers, metavar="N,..", help="widths")
    parser.add_argument(
        "--shape", type=_words, metavar="NAME,..", help="only these models, or shapes of graphs"
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--isa", choices=(NATIVE, *VARIABLES), default=NATIVE)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows here")
    parser.add_argument("--config-dir", type=Path, metavar="FOLDER", help="further config files")
    return parser


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def _words(text: str) -> list[str]:
    return text.split(",")


def run(name: str, settings: Settings, json_path: Path | None = None) -> None:
    """Runs one benchmark with its baselines.

    Args:
        name: the benchmark.
        settings: what to measure.
        json_path: where the rows are written.

    Raises:
        ConfigError: if there is no such benchmark, or it does not take the settings.
    """
    check_settings(name, settings)
    check_output(json_path)
    from benchmarks.machine import machine_facts
    from benchmarks.results import print_rows
    from graphfold.training.process.process import prepare_process

    prepare_process(settings.threads)
    facts = machine_facts(settings.device)
    rows: list[Row] = []
    for row in measure_rows(name, settings):
        rows.append(row)
        if json_path is not None:  # the rows so far stay if the rest is interrupted
            write_rows(json_path, rows, facts)
    print_rows(name, rows, facts)


def check_settings(name: str, settings: Settings) -> None:
    """Raises ConfigError if there is no such benchmark, or it does not take the settings."""
    if name not in BENCHMARKS:
        hint = did_you_mean(name, BENCHMARKS)
        raise ConfigError(f"there is no benchmark '{name}'.{hint} Use {', '.join(BENCHMARKS)}.")
    if name in WITHOUT_CONFIG and settings.overrides:
        raise ConfigError(f"benchmark '{name}' takes no overrides, not '{settings.overrides[0]}'.")
    if name not in WITH_SHAPES and settings.shapes:
        raise ConfigError(f"benchmark '{name}' has no shapes. Leave out --shape.")
    for override in settings.overrides:
        key = override.partition("=")[0].lstrip("+")
        if key in OPTIONS:
            raise ConfigError(f"override '{override}': {OPTIONS[key]} sets it. Use that.")
    if settings.device == "cpu":
        return
    import torch

    if name not in ON_GPU:
        raise ConfigError(f"benchmark '{name}' measures a CPU. Leave out --device.")
    if not torch.cuda.is_available():
        raise ConfigError("--device is 'cuda', but there is no CUDA device. Leave it out.")


def measure_rows(name: str, settings: Settings) -> Iterator[Row]:
    """Measures all rows; a terminal shows each as it comes, because all may take minutes."""
    for row in importlib.import_module(f"benchmarks.{name}").rows(settings):
        if sys.stderr.isatty():
            setting = f"{row.shape} {row.hidden_size} x {row.batch_size}".strip()
            speed = f"{row.examples_per_second:,.0f} examples/s"
            print(row.benchmark, setting, row.phase, row.variant, speed, file=sys.stderr)
        yield row


def write_rows(path: Path, rows: Sequence[Row], facts: Mapping[str, Any]) -> None:
    """Writes rows as JSON, each with the facts of the machine."""
    content = [{**row.to_dict(), **facts} for row in rows]
    write_text(path, json.dumps(content, indent=1, allow_nan=False) + "\n")


if __name__ == "__main__":
    sys.exit(main())
