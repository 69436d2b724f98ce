"""Kinds of rows, against a dictionary of them."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfold.batching.kernels.kinds import find_kinds

LARGE = 1 << 40
CPU = torch.device("cpu")


@st.composite
def code_columns(draw: st.DrawFn) -> dict[str, torch.Tensor]:
    rows = draw(st.integers(0, 12))
    columns = {
        "code": torch.randint(-1, 3, (rows,)),
        "flag": torch.randint(2, (rows,)).bool(),
        "pair": torch.randint(2, (rows, 2), dtype=torch.uint8),
        "large": torch.randint(2, (rows,)) * LARGE,
        "none": torch.zeros(rows, 0, dtype=torch.int64),
    }
    names = draw(st.sets(st.sampled_from(sorted(columns)), min_size=1))
    return {name: columns[name] for name in names}


def rows_of(columns: dict[str, torch.Tensor], num_rows: int) -> list[tuple[list[int], ...]]:
    return [
        tuple(value[row].flatten().tolist() for value in columns.values())
        for row in range(num_rows)
    ]


@given(columns=code_columns())
def test_every_row_is_that_of_its_kind_and_no_two_kinds_are_equal(columns):
    num_rows = len(next(iter(columns.values())))
    actual, kind, count = find_kinds(columns, num_rows, CPU)
    num_kinds = len(next(iter(actual.values())))
    assert count == num_kinds
    assert {name: value.dtype for name, value in actual.items()} == {
        name: value.dtype for name, value in columns.items()
    }
    kinds = rows_of(dict(actual), num_kinds)
    rows = rows_of(columns, num_rows)
    assert [kinds[k] for k in kind.rows.tolist()] == rows
    if columns.keys() != {"none"}:
        assert num_kinds == len(set(map(str, rows)))


def test_rows_with_other_numbers_are_different_kinds():
    code = torch.zeros(3, dtype=torch.int64)
    for columns in ({"code": code, "length": torch.ones(3)}, {}):
        actual, kind, _ = find_kinds(columns, 3, CPU)
        assert actual == columns
        assert kind.rows.tolist() == [0, 1, 2]


def test_codes_may_be_as_large_as_their_dtype_allows():
    far = torch.tensor([-(1 << 63), (1 << 63) - 1, 0, -(1 << 63)])
    wide = torch.tensor([0, LARGE, 1, 0])
    for columns in ({"one": wide, "two": wide.flip(0), "three": wide}, {"code": far}):
        actual, kind, _ = find_kinds(columns, 4, CPU)
        kinds = rows_of(dict(actual), len(next(iter(actual.values()))))
        assert [kinds[k] for k in kind.rows.tolist()] == rows_of(columns, 4)
        assert len(kinds) == len(set(map(str, kinds)))


def test_kinds_of_no_columns_are_where_the_graphs_are():
    assert find_kinds({}, 3, torch.device("meta")).kind.rows.device.type == "meta"


def test_kinds_on_a_gpu_are_those_of_its_copy_on_the_cpu():
    columns = {"code": torch.tensor([1, 0, 1, 2, 0])}
    there = {name: value.to("meta") for name, value in columns.items()}
    assert find_kinds(there, 5, torch.device("meta")).num_kinds == 5
    actual, kind, count = find_kinds(there, 5, torch.device("meta"), columns)
    assert count == len(actual["code"]) == 3
    assert kind.rows_on_cpu.tolist() == [0, 1, 0, 2, 1]
    assert kind.rows.is_meta
    assert actual["code"].is_meta
