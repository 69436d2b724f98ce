"""Generated records with a known answer: what is wrong with a machine, from its nested report."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from graphfold.errors import ConfigError
from graphfold.files import write_text

#: The answers, in the order of the labels: nothing, a full disk, a slow service that users see.
LABELS = ("fine", "full", "slow")

_KINDS = ("disk", "latency", "memory")
_SITES = ("北京", "Köln", "Oslo", "São Paulo")


def write_reports(folder: Path, sizes: Mapping[str, int], seed: int) -> dict[str, Path]:
    """Writes records of five levels, as `PART.jsonl`.

    A report has a machine, services, their checks and the measurements of these. It is `full` if a
    check of kind disk measured more than 90 %, else `slow` if a service that is public has a check
    of kind latency above 200 ms. Keys are missing now and then, identifiers are numbers or text,
    lists may be empty.

    Args:
        folder: where to; made if need be.
        sizes: the number of records of each part.
        seed: the same seed gives the same files.

    Returns:
        The file of each part. Each is written whole or not at all.

    Raises:
        ConfigError: if a number is not positive.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = {}
    for part, size in sizes.items():
        if size < 1:
            raise ConfigError(f"data.{part}_size is {size}. Give at least 1.")
        rng = random.Random(f"{seed} {part}")
        records = (draw_report(rng, LABELS[number % len(LABELS)]) for number in range(size))
        lines = [json.dumps(record, ensure_ascii=False) for record in records]
        paths[part] = folder / f"{part}.jsonl"
        write_text(paths[part], "".join(f"{line}\n" for line in lines))
    return paths


def draw_report(rng: random.Random, label: str) -> dict[str, Any]:
    """One record with that answer."""
    while True:
        services = [_service(rng) for _ in range(rng.randint(0, 4))]
        report = {
            "id": rng.choice((rng.randrange(10**6), f"m-{rng.randrange(10**6)}")),
            "machine": {"site": rng.choice(_SITES), "cores": rng.choice((4, 8, 64, None))},
            "services": services,
            "label": label,
        }
        if rng.random() < 0.2:
            del report["machine"]
        if answer(report) == label:
            return report


def answer(report: Mapping[str, Any]) -> str:
    """The label, by the rule of `write_reports`."""
    checks = [(s, check) for s in report["services"] for check in s.get("checks", ())]
    found = [(service, check["kind"], check.get("measured", {})) for service, check in checks]
    if any(kind == "disk" and measured.get("share", 0) > 0.9 for _, kind, measured in found):
        return "full"
    if any(service["public"] and measured.get("ms", 0) > 200 for service, _, measured in found):
        return "slow"
    return "fine"


def _service(rng: random.Random) -> dict[str, Any]:
    service: dict[str, Any] = {
        "name": "".join(rng.choices("abcdefgh", k=6)),
        "public": rng.random() < 0.5,
        "checks": [_check(rng) for _ in range(rng.randint(0, 3))],
    }
    if rng.random() < 0.1:
        del service["checks"]
    return service


def _check(rng: random.Random) -> dict[str, Any]:
    kind = rng.choice(_KINDS)
    # Clear cases on both sides of each limit, so that the answer can be learned.
    unit, low, high = "share", rng.uniform(0.1, 0.8), rng.uniform(0.95, 1.0)
    if kind == "latency":
        unit, low, high = "ms", rng.uniform(1, 150), rng.uniform(300, 2_000)
    measured = {unit: high if rng.random() < 0.25 else low}
    return {"kind": kind, "measured": measured} if rng.random() < 0.95 else {"kind": kind}
