"""Tables for a terminal."""

from __future__ import annotations

from graphfold.training.console import format_confusion, format_table, metrics_table


def test_columns_are_as_wide_as_what_is_in_them() -> None:
    columns = {"a long name": {"x": 1.0, "yy": None}, "b": {"x": 20}}
    assert format_table(columns, 2).splitlines() == [
        "    a long name   b",
        "x             1  20",
        "yy    undefined    ",
    ]


def test_a_confusion_matrix_has_a_row_for_each_true_class() -> None:
    counts = {"NN": {"NN": 5, "JJ": 2}, "JJ": {"NN": 0, "JJ": 13}}
    assert format_confusion(counts).splitlines() == [
        "    NN  JJ",
        "NN   5   0",
        "JJ   2  13",
    ]


def test_of_many_classes_the_usual_mistakes_are_named() -> None:
    names = [f"c{number}" for number in range(40)]
    counts: dict[str, dict[str, float | None]] = {a: {b: 9 for b in names if a == b} for a in names}
    counts["c3"]["c1"], counts["c5"]["c2"] = 4, 7
    assert format_confusion(counts) == "c2 as c5: 7\nc1 as c3: 4"


def test_targets_have_a_table() -> None:
    names = [f"t{n}" for n in range(6)]
    metrics = {"rmse": 1.0, "mae": 2.0, "loss": 3.0}
    metrics |= {f"{m}/{name}": n / 2 for m in ("rmse", "mae") for n, name in enumerate(names)}
    whole = {f"{part}/{name}": value for part in ("val", "test") for name, value in metrics.items()}
    lines = metrics_table(whole).splitlines()
    assert len(lines) == 1 + 3 + 2 + 6
    assert lines[0].split() == ["val", "test"]
    assert lines[1].split() == ["rmse", "1", "1"]
    assert lines[4] == "test by target"
    assert lines[5].split() == ["rmse", "mae"]
    assert lines[6].split() == ["t0", "0", "0"]
    assert lines[-1].split() == ["t5", "2.5", "2.5"]


def test_of_many_targets_the_first_are_shown() -> None:
    metrics = {"val/rmse": 1.0} | {f"val/rmse/t{n}": None for n in range(217)}
    lines = metrics_table(metrics).splitlines()
    assert len(lines) == 2 + 2 + 20 + 1
    assert lines[-1] == "and 197 more targets"


def test_one_target_has_no_table() -> None:
    metrics = {"val/rmse": 1.0, "val/rmse/y": 1.0, "test/rmse": 2.0, "test/rmse/y": 2.0}
    assert len(metrics_table(metrics).splitlines()) == 2
    assert metrics_table({}) == ""
