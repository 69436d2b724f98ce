"""Progress on standard error: when it says something, and what."""

from __future__ import annotations

import pytest

from graphfold import progress


class Clock:
    """Time that passes with each record."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
        self.now, self.seconds = 100.0, seconds
        monkeypatch.setattr(progress.time, "monotonic", lambda: self.now)

    def work(self, numbers: int, **options: object) -> list[int]:
        """Goes through some numbers, each of which takes its time."""
        done = []
        for number in progress.shown(range(numbers), "working", **options):  # type: ignore[arg-type]
            done.append(number)
            self.now += self.seconds
        return done


def test_a_log_has_a_line_now_and_then(monkeypatch, capsys):
    clock = Clock(monkeypatch, 1.0)
    assert clock.work(100, count=lambda _: 20, total=2000) == list(range(100))
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        f"working: {done:,} of 2,000 records, 20 a second" for done in (100, 300, 700, 1500)
    ]


def test_short_work_says_nothing(monkeypatch, capsys):
    Clock(monkeypatch, 0.01).work(400)
    assert capsys.readouterr() == ("", "")


def test_a_terminal_has_a_bar_that_goes_away(monkeypatch, capsys):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setattr(progress, "_QUIET", 1e9)
    assert list(progress.shown(range(3), "working")) == [0, 1, 2]
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(progress, "_QUIET", 0.0)
    monkeypatch.setattr(progress, "_UPDATE", 0.0)
    assert list(progress.shown(range(3), "working", total=3)) == [0, 1, 2]
    assert "3 of 3 records" in capsys.readouterr().err


def test_a_process_that_shares_the_work_of_another_one_says_nothing(monkeypatch, capsys):
    monkeypatch.setattr(progress.multiprocessing, "parent_process", lambda: object())
    assert Clock(monkeypatch, 10.0).work(100) == list(range(100))
    assert capsys.readouterr().err == ""
