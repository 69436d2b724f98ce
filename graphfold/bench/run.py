"""`graphfold bench`: sets up the machine, measures, prints a table, writes JSON."""

from __future__ import annotations

import importlib
import json
import platform
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from graphfold.bench.measure import Row, Settings
from graphfold.bench.results import print_rows, render
from graphfold.errors import ConfigError, did_you_mean
from graphfold.files import check_output, write_text
from graphfold.training.process.process import prepare_process


def use_machine(threads: int, device: str = "cpu") -> dict[str, Any]:
    """Sets the threads of the whole process.

    Args:
        threads: of torch.
        device: what is measured.

    Returns:
        Further keys of every row.
    """
    prepare_process(threads)
    return {
        "cpu": _cpu(),
        "device": torch.cuda.get_device_name() if device == "cuda" else device,
        "isa": instruction_set(),
        "torch": torch.__version__,
    }


def instruction_set() -> str:
    """The instruction set that torch's kernels use: "avx2", "avx512", or another of its names."""
    return str(torch.backends.cpu.get_cpu_capability()).lower()


def _cpu() -> str:
    """The name of the processor."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


#: Name -> the module that measures it, with a function `rows`.
BENCHMARKS = {
    name: f"graphfold.bench.benchmarks.{name}"
    for name in (
        "treefc",
        "sst",
        "trees",
        "sequence",
        "molecules",
        "blocks",
        "schedule",
        "memory",
        "train",
        "predict",
        "predict_table",
        "reading",
    )
}

#: The graphs of these are generated, so there is no config to override.
WITHOUT_CONFIG = ("treefc",)

#: These measure several models, or graphs of several shapes.
WITH_SHAPES = ("treefc", "trees", "molecules")

#: These measure a GPU as well.
ON_GPU = ("treefc", "sst", "trees", "sequence", "molecules")

#: Renders files of rows in place of measuring.
PAGE = "page"

#: Keys of the config that are options of the command, so that the rows say what was measured.
OPTIONS = {
    "threads": "--threads",
    "data.batch_size": "--batch-size",
    "model.hidden_size": "--hidden-size",
}


def run_bench(name: str, settings: Settings, json_path: Path | None = None) -> int:
    """Runs one benchmark with its baselines; returns the exit code.

    Args:
        name: the benchmark, or "page", whose overrides are the JSON files that it is made of.
        settings: what to measure.
        json_path: where the rows are written.

    Raises:
        ConfigError: if there is no such benchmark, or it does not take the settings.
    """
    if name == PAGE:
        print(render([Path(word) for word in settings.overrides], BENCHMARKS), end="")
        return 0
    check_settings(name, settings)
    check_output(json_path)
    facts = use_machine(settings.threads, settings.device)
    rows: list[Row] = []
    for row in measure_rows(name, settings):
        rows.append(row)
        if json_path is not None:  # what there is, should the rest be stopped
            write_rows(json_path, rows, facts)
    print_rows(name, rows, facts)
    return 0


def check_settings(name: str, settings: Settings) -> None:
    """Raises ConfigError if there is no such benchmark, or it does not take the settings."""
    if name not in BENCHMARKS:
        names = [*BENCHMARKS, PAGE]
        hint = did_you_mean(name, names)
        raise ConfigError(f"there is no benchmark '{name}'.{hint} Use {', '.join(names)}.")
    if name in WITHOUT_CONFIG and settings.overrides:
        raise ConfigError(f"benchmark '{name}' takes no overrides, not '{settings.overrides[0]}'.")
    if name not in WITH_SHAPES and settings.shapes:
        raise ConfigError(f"benchmark '{name}' has no shapes. Leave out --shape.")
    for override in settings.overrides:
        key = override.partition("=")[0].lstrip("+")
        if key in OPTIONS:
            raise ConfigError(f"override '{override}': bench has {OPTIONS[key]} for it. Use that.")
    if settings.device == "cpu":
        return
    if name not in ON_GPU:
        raise ConfigError(f"benchmark '{name}' measures a CPU. Leave out --device.")
    if not torch.cuda.is_available():
        raise ConfigError("--device is 'cuda', but there is no CUDA device. Leave it out.")


def measure_rows(name: str, settings: Settings) -> Iterator[Row]:
    """Measures all rows; on a terminal, tells each as it comes, because all may take minutes."""
    rows: Iterable[Row] = importlib.import_module(BENCHMARKS[name]).rows(settings)
    for row in rows:
        if sys.stderr.isatty():
            setting = f"{row.shape} {row.hidden_size} x {row.batch_size}".strip()
            speed = f"{row.examples_per_second:,.0f} examples/s"
            print(row.benchmark, setting, row.phase, row.variant, speed, file=sys.stderr)
        yield row


def write_rows(path: Path, rows: Sequence[Row], facts: Mapping[str, Any]) -> None:
    """Writes rows as JSON, each with the facts of the machine."""
    content = [{**row.to_dict(), **facts} for row in rows]
    write_text(path, json.dumps(content, indent=1, allow_nan=False) + "\n")
