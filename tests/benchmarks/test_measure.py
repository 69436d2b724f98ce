"""Turns, medians and rows; nothing here depends on how fast the machine is."""

from __future__ import annotations

from itertools import product

from benchmarks import measure as module
from benchmarks.measure import Row, Work, measure, summarize, time_in_turns

SETTING = Row("trees", "", "random", 4, 8, "train", 1, extra={"workload": "w"})


def test_variants_take_turns_in_changing_order_after_one_that_is_not_counted(monkeypatch):
    monkeypatch.setattr(module, "SECONDS", 0.0)  # so each turn is one call
    calls: list[str] = []
    timings = time_in_turns(
        {"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, seconds=0.0, turns=8
    )
    turns = list(zip(calls[::2], calls[1::2], strict=True))
    assert len(turns) == 9
    assert set(turns) == {("a", "b"), ("b", "a")}
    assert set(timings) == {"a", "b"}


def test_summary_is_median_and_interquartile_range():
    timing = summarize([1.0, 2.0, 3.0, 4.0, 100.0])
    assert timing.seconds == 3.0
    assert timing.spread > 0
    assert summarize([2.0, 2.0]) == (2.0, 0.0)


def test_rows_have_speed_and_ratio(monkeypatch):
    times = {(0, "graphfold"): module.Timing(2.0, 0.1), (0, "slow"): module.Timing(8.0, 0.2)}
    monkeypatch.setattr(module, "time_in_turns", lambda *_: times)
    works = {"graphfold": Work(lambda: None, 4), "slow": Work(lambda: None, 2)}
    first, second = measure((SETTING, works))
    assert (first.variant, first.examples_per_second, first.ratio) == ("graphfold", 2.0, 1.0)
    assert (second.examples_per_second, second.ratio, second.spread) == (0.25, 0.125, 0.2)


def test_settings_measured_together_take_turns_and_have_ratios_of_their_own(monkeypatch):
    monkeypatch.setattr(module, "SECONDS_PER_TURN", 0.0)
    calls: list[tuple[int, str]] = []
    works = [
        {name: Work(lambda key=(n, name): calls.append(key), 1) for name in ("graphfold", "other")}
        for n in range(2)
    ]
    monkeypatch.setattr(module, "SECONDS", 0.0)
    rows = list(measure(*((SETTING, w) for w in works)))
    assert [row.variant for row in rows] == ["graphfold", "other"] * 2
    assert [row.ratio for row in rows[::2]] == [1.0, 1.0]
    assert set(calls[-8:-4]) == set(calls[-4:]) == set(product(range(2), works[0]))
