"""Tables for a terminal."""

from __future__ import annotations

from graphfold.training.console import format_confusion, format_table


def test_columns_are_as_wide_as_what_is_in_them() -> None:
    columns = {"a long name": {"x": 1.0, "yy": None}, "b": {"x": 20}}
    assert format_table(columns, 4).splitlines() == [
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
