"""A model reflected from JSON records, beside one written by hand for these very records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from graphfold.cli import main
from graphfold.datasets.corpora.generated_json import LABELS, write_reports

KINDS = ("disk", "latency", "memory")
SIZES = {"train": 6_000, "val": 1_000, "test": 2_000}


class ByHand(nn.Module):
    """The maximum over all checks of a small network, with inputs chosen by who knows them."""

    def __init__(self) -> None:
        super().__init__()
        self.of_check = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU())
        self.answer = nn.Linear(32, len(LABELS))

    def forward(self, checks: Tensor, record: Tensor, number: int) -> Tensor:
        rows = self.of_check(checks)
        index = record[:, None].expand_as(rows)
        return self.answer(rows.new_zeros(number, 32).scatter_reduce(0, index, rows, "amax"))


def by_hand(path: Path) -> tuple[Tensor, Tensor, Tensor]:
    """The inputs of all checks, the record of each, and the answers."""
    rows, record, answers = [], [], []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines()):
        report: dict[str, Any] = json.loads(line)
        answers.append(LABELS.index(report["label"]))
        for service in report["services"]:
            for check in service.get("checks", ()):
                measured = check.get("measured", {})
                kind = [float(check["kind"] == name) for name in KINDS]
                values = [measured.get("share", 0.0), measured.get("ms", 0.0) / 1_000]
                rows.append([*kind, *values, float(service["public"])])
                record.append(number)
    return torch.tensor(rows), torch.tensor(record), torch.tensor(answers)


def accuracy_by_hand(files: dict[str, Path]) -> float:
    """That of the test part, after all of the training part 600 times."""
    torch.manual_seed(0)
    model = ByHand()
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    checks, record, answers = by_hand(files["train"])
    for _ in range(600):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(checks, record, len(answers)), answers).backward()
        optimizer.step()
    checks, record, answers = by_hand(files["test"])
    right = model(checks, record, len(answers)).argmax(1) == answers
    return float(right.double().mean())


@pytest.mark.slow
def test_the_reflected_model_is_as_good_as_one_by_hand(tmp_path: Path) -> None:
    files = write_reports(tmp_path, SIZES, 0)
    by_part = ",".join(f"{part}:{path}" for part, path in files.items())
    words = [f"data.path={{{by_part}}}", f"hydra.run.dir={tmp_path / 'run'}", "logger=none"]
    assert main(["train", "experiment=json_records", *words, "data.target=$.label"]) == 0
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text(encoding="utf-8"))
    hand = accuracy_by_hand(files)
    assert hand >= 0.98
    assert metrics["test/accuracy"] >= max(0.98, hand - 0.005)
