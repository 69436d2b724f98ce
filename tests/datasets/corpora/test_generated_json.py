"""Generated reports: the same each time, with the answer of their rule."""

import json
from pathlib import Path

import pytest

from graphfold.datasets.corpora.generated_json import LABELS, answer, write_reports
from graphfold.errors import ConfigError


def test_labels_are_the_answers_and_parts_are_repeatable(tmp_path: Path) -> None:
    sizes = {"train": 60, "test": 30}
    first = write_reports(tmp_path / "a", sizes, seed=1)
    again = write_reports(tmp_path / "b", sizes, seed=1)
    for part, size in sizes.items():
        assert first[part].read_bytes() == again[part].read_bytes()
        reports = [json.loads(line) for line in first[part].read_text("utf-8").splitlines()]
        assert [report["label"] for report in reports] == [answer(report) for report in reports]
        assert [sum(r["label"] == label for r in reports) for label in LABELS] == [size // 3] * 3
    with pytest.raises(ConfigError, match="data.train_size is 0"):
        write_reports(tmp_path / "c", {"train": 0}, seed=1)


def test_the_rule() -> None:
    full = {"kind": "disk", "measured": {"share": 0.95}}
    slow = {"kind": "latency", "measured": {"ms": 500.0}}
    assert answer({"services": [{"public": False, "checks": [full]}]}) == "full"
    assert answer({"services": [{"public": True, "checks": [slow]}]}) == "slow"
    assert answer({"services": [{"public": False, "checks": [slow]}, {"public": True}]}) == "fine"
