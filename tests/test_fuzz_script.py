"""The fuzz script tells a bad end from a good one, and survives what it looks for."""

from __future__ import annotations

import contextlib
import json
import random
import shutil
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from load_script import load_script

COMMANDS = """
import os, sys, time
def main(argv):
    how = argv[0]
    if how == "talk":
        print("out"); print("error: told.", file=sys.stderr)
        return 2
    if how == "abort":
        os.abort()
    if how == "sleep":
        try:
            time.sleep(60)
        except KeyboardInterrupt:
            print("error: interrupted.", file=sys.stderr)
            return 1
    if how == "deaf":
        while True:
            try:
                time.sleep(60)
            except KeyboardInterrupt:
                pass
    if how == "raise":
        raise ValueError("nobody caught this")
    if how == "import":
        import fuzz_stranger
    return 0
"""


@pytest.fixture
def fuzz(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return load_script("fuzz", monkeypatch)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "fuzz_stranger.py").write_text("")
    (tmp_path / "site" / "stand_in.py").write_text(COMMANDS)
    (tmp_path / "case" / "cwd").mkdir(parents=True)
    return tmp_path


def test_a_worker_survives_crashes_hangs_and_errors(fuzz: ModuleType, folder: Path) -> None:
    case = fuzz.Case(0, "x", [])
    expected = {
        "talk": [],
        "abort": ["crash (-6)"],
        "raise": ["raised", "traceback"],
        "sleep": [],
        "deaf": ["hang"],
        "import": ["stranger's code"],
        "nothing": [],
    }
    worker = fuzz.Worker(folder / "site", "stand_in:main", seconds=2, grace=1)
    with contextlib.closing(worker):
        for how, faults in expected.items():
            end = worker.run(fuzz.Job([how], str(folder / "case" / "cwd")))
            assert fuzz.faults(case, end, folder / "case", {}) == faults, how
            if how == "talk":
                assert (end.code, end.output, end.error) == (2, "out\n", "error: told.\n")
            assert end.interrupted is (how in ("sleep", "deaf"))


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        ({"code": 3}, ["exit code 3"]),
        ({"code": 1, "error": "error: it broke. Add --debug for the traceback."}, ["raw error"]),
        ({"code": 2, "error": " \n"}, ["no message"]),
        ({"code": 1, "error": "Traceback (most recent call last):\n"}, ["traceback"]),
        ({"code": 0}, []),
    ],
)
def test_every_kind_of_bad_end_is_told(
    end: dict[str, Any], expected: list[str], fuzz: ModuleType, folder: Path
) -> None:
    case = fuzz.Case(0, "x", [])
    assert fuzz.faults(case, fuzz.End(**end), folder / "case", {}) == expected


def test_what_is_left_or_changed_is_told(fuzz: ModuleType, folder: Path) -> None:
    own = folder / "case"
    kept = own / "run"
    kept.mkdir()
    (kept / "a.csv").write_text("1")
    before = {str(kept): fuzz.digest_of(kept)}
    case = fuzz.Case(0, "x", [])
    assert fuzz.faults(case, fuzz.End(0), own, before) == []
    (kept / "a.csv").write_text("2")
    (own / "cwd" / ".b.csv.x.tmp").touch()
    assert fuzz.faults(case, fuzz.End(0), own, before) == [
        "left behind: .b.csv.x.tmp",
        "changed: run",
    ]


def test_cases_of_a_seed_are_the_same_again(fuzz: ModuleType, folder: Path) -> None:
    fuzz.write_inputs(folder / "files")
    first, second = (
        [fuzz.make_command(random.Random(n), folder / "bases", folder).argv for n in range(20)]
        for _ in range(2)
    )
    assert first == second
    assert len({tuple(words) for words in first}) > 15
    texts = {fuzz.spoilt_text(random.Random(n), "a,b\nc,d\n") for n in range(50)}
    assert len(texts) > 20
    content = [fuzz.spoilt_bytes(random.Random(n), b"abcdef" * 9) for n in range(50)]
    assert content == [fuzz.spoilt_bytes(random.Random(n), b"abcdef" * 9) for n in range(50)]
    assert len({*content}) > 30


def test_checkpoints_are_spoilt_in_many_ways_and_stay_files(fuzz: ModuleType, folder: Path) -> None:
    path = folder / "x.ckpt"
    plain = {"config": json.dumps({"a": {"b": 1}}), "spec": json.dumps([1]), "split": "{}"}
    notes, changed = set(), 0
    for number in range(60):
        torch.save({**plain, "state_dict": {"w": torch.ones(2, 2)}, "progress": {}}, path)
        before = path.read_bytes()
        notes.add(fuzz.spoil_checkpoint(random.Random(number), path).split("=")[0])
        changed += path.read_bytes() != before
    assert changed > 50
    assert len(notes) > 15


def test_the_table_counts_kinds_and_ends(fuzz: ModuleType) -> None:
    counts = fuzz.Counter({("run", "exit 2"): 3, ("run", "faults"): 1, ("all", "exit 2"): 3})
    rows = [line.split() for line in fuzz.table_of(counts).splitlines()]
    assert rows[1] == ["run", "3", "0", "0", "3", "0", "0", "1"]


@pytest.mark.slow
def test_it_runs_cases_on_real_runs(
    fuzz: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fuzz, "BASES", fuzz.BASES[:1])
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    shutil.rmtree(tmp_path / "cases", ignore_errors=True)
    assert fuzz.fuzz(tmp_path, 3, iter(range(6)), float("inf"), list(fuzz.MAKERS)) == 0
    cases = [json.loads(line) for line in (tmp_path / "cases.jsonl").read_text().splitlines()]
    assert [case["number"] for case in cases] == list(range(6))
