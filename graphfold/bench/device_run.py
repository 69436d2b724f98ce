"""Everything about one device in one call: is it right, how fast is it, what does it wait for."""

from __future__ import annotations

import json
import math
import platform
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from graphfold.bench.device_checks import Check, checks
from graphfold.bench.device_speed import SIZES, Sizes, waits_of_a_step, workloads
from graphfold.bench.machine import instruction_set
from graphfold.bench.measure import Row
from graphfold.bench.tables import print_rows, print_table
from graphfold.errors import GraphfoldError
from graphfold.files import check_output, write_text

#: Name of the products -> the precision by which PyTorch chooses them on a GPU.
PRODUCTS = {"float32": "highest", "tf32": "high"}

#: (benchmark, shape, phase) -> key of the row, what it is to stay below.
TARGETS = {
    ("sst_epoch", "", "train"): ("seconds_per_epoch", 0.5),
    ("treefc", "random", "train"): ("ms_per_tree", 0.15),
}


def run_device(
    device: torch.device | str,
    overrides: Sequence[str] = (),
    json_path: Path | None = None,
    sizes: Sizes = SIZES,
) -> int:
    """Checks and measures a device, and prints tables.

    Args:
        device: where.
        overrides: of the config of the experiments (`data.root=...`).
        json_path: where the rows are written, checks first, as those of `graphfold bench --json`.
        sizes: of the workloads.

    Returns:
        The exit code: 1 if a check failed or something could not be measured.
    """
    check_output(json_path)
    device, start = torch.device(device), time.perf_counter()
    facts = {"cpu": _name(device), "isa": instruction_set(), "torch": torch.__version__}
    _use_products("float32")
    found = list(checks(device))
    _print_checks(found)
    written = [{**_check_row(check), **facts, "products": "float32"} for check in found]
    missing: list[str] = []
    for products in PRODUCTS if device.type == "cuda" else ["float32"]:
        _use_products(products)
        rows = list(_measure(device, overrides, sizes, missing))
        if rows:
            print_rows("device", rows, {**facts, "products": products})
            for line in _targets(rows, products):
                print(line)
        written += [{**row.to_dict(), **facts, "products": products} for row in rows]
    _use_products("float32")
    if not missing:
        for place in waits_of_a_step(device, overrides):
            print(f"a training step of SST waits for the device: {place}")
    print(f"{time.perf_counter() - start:.0f} s in all")
    if json_path is not None:
        write_text(json_path, json.dumps(written, indent=1, allow_nan=False) + "\n")
    return 0 if not missing and all(check.passed for check in found) else 1


def _measure(
    device: torch.device, overrides: Sequence[str], sizes: Sizes, missing: list[str]
) -> Iterator[Row]:
    """The rows of all workloads; one whose corpus is not there is named and left out."""
    for name, rows in workloads(device, overrides, sizes).items():
        yield from _named(name, rows(), missing)


def _named(name: str, rows: Iterator[Row], missing: list[str]) -> Iterator[Row]:
    try:
        yield from rows
    except GraphfoldError as error:
        missing.append(name)
        print(f"{name}: not measured. {error}")


def _targets(rows: Sequence[Row], products: str) -> Iterator[str]:
    for row in rows:
        key, limit = TARGETS.get((row.benchmark, row.shape, row.phase), ("", 0.0))
        if key in row.extra and row.variant == "graphfold":
            value = row.extra[key]
            verdict = "reached" if value < limit else "MISSED"
            words = f"{row.benchmark}, {products}: {key.replace('_', ' ')} {value:.3g}"
            yield f"{words}, to be below {limit:g}: {verdict}"


def _print_checks(found: Sequence[Check]) -> None:
    lines = [
        [check.name, f"{check.error:.1e}", f"{check.limit:.0e}", "yes" if check.passed else "NO"]
        for check in found
    ]
    failed = sum(not check.passed for check in found)
    title = f"{len(found)} checks against the reference on the CPU, {failed} failed"
    print_table(title, ["check", "difference", "limit", "passed"], lines)


def _check_row(check: Check) -> Mapping[str, Any]:
    """As JSON has it, which knows no NaN."""
    return {
        "benchmark": "check",
        "variant": check.name,
        "error": check.error if math.isfinite(check.error) else None,
        "limit": check.limit,
        "passed": check.passed,
    }


def _use_products(name: str) -> None:
    """TensorFloat-32 or not, for the whole process; only commands call this."""
    torch.set_float32_matmul_precision(PRODUCTS[name])


def _name(device: torch.device) -> str:
    if device.type == "cuda":
        return str(torch.cuda.get_device_name(device))
    return platform.processor() or platform.machine()
