"""ColumnEncoder against one-hot codes times a weight."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

from graphfold.batching.kernels.segment import segment_sum
from graphfold.dag import Column
from graphfold.errors import ConfigError, ShapeError
from graphfold.layers import ColumnEncoder
from graphfold.layers.encoders import column_encoder

COLUMNS = (
    Column("kind", "int64", size=3),
    Column("charge"),
    Column("places", "int32", shape=(2,), size=4),
    Column("position", "float64", shape=(1, 3)),
    Column("ring", "bool"),
)


def rows(count: int) -> dict[str, torch.Tensor]:
    return {
        "kind": torch.randint(-1, 3, (count,)),
        "charge": torch.randn(count),
        "places": torch.randint(0, 4, (count, 2), dtype=torch.int32),
        "position": torch.randn(count, 1, 3, dtype=torch.float64),
        "ring": torch.rand(count) < 0.5,
    }


def one_hot(encoder: ColumnEncoder, columns: dict[str, torch.Tensor]) -> torch.Tensor:
    """The encoding by a product with one-hot rows; code -1 is the last of its column."""
    kind = functional.one_hot(columns["kind"] % 4, 4)
    places = [functional.one_hot(place, 5) for place in columns["places"].long().unbind(1)]
    codes = torch.cat([kind, *places], dim=1).float()
    names = ("charge", "position", "ring")
    numbers = [columns[name].float().reshape(len(codes), -1) for name in names]
    return codes @ encoder.table + torch.cat(numbers, dim=1) @ encoder.linear.weight.T


@given(count=st.integers(0, 5))
def test_it_equals_one_hot_codes_times_a_weight(count):
    encoder = ColumnEncoder(COLUMNS, 6)
    columns = rows(count)
    got = encoder(columns)
    torch.testing.assert_close(got, one_hot(encoder, columns) if count else torch.zeros(0, 6))


@pytest.mark.parametrize("sparse", [False, True])
def test_a_code_alone_equals_one_hot_rows_times_a_weight(sparse):
    encoder = ColumnEncoder(COLUMNS[:1], 6)
    encoder.sparse = sparse
    kind = torch.tensor([2, -1, 0, 2, 2, -1])
    want = functional.one_hot(kind % 4, 4).float() @ encoder.table
    actual = encoder({"kind": kind})
    torch.testing.assert_close(actual, want)
    upstream = torch.randn(6, 6)
    (grad,) = torch.autograd.grad(actual, encoder.table, upstream)
    assert grad.is_sparse == sparse
    (expected,) = torch.autograd.grad(want, encoder.table, upstream)
    torch.testing.assert_close(grad.to_dense(), expected)


@pytest.mark.parametrize("columns", [COLUMNS, COLUMNS[:1], COLUMNS[1:2]])
def test_sums_over_segments_equal_sums_of_rows(columns):
    encoder = ColumnEncoder(columns, 6)
    given_rows, ptr = rows(5), torch.tensor([0, 2, 2, 5])
    want = segment_sum(encoder(given_rows), ptr)
    torch.testing.assert_close(encoder(given_rows, ptr), want)


def test_on_a_gpu_a_product_gives_the_same_and_the_same_gradient(monkeypatch):
    encoder, columns = ColumnEncoder(COLUMNS, 6), rows(7)
    want = encoder(columns)
    want.square().sum().backward()
    gradient, encoder.table.grad = encoder.table.grad, None
    monkeypatch.setattr(column_encoder, "use_product", lambda codes, table: True)
    actual = encoder(columns)
    torch.testing.assert_close(actual, want)
    actual.square().sum().backward()
    torch.testing.assert_close(encoder.table.grad, gradient)


def test_a_product_serves_training_on_a_gpu_where_tables_are_small():
    codes = torch.zeros(8, 2, dtype=torch.int64, device="meta")
    table, large = (torch.zeros(n, 6, device="meta", requires_grad=True) for n in (9, 1 << 24))
    assert column_encoder.use_product(codes, table)
    assert not column_encoder.use_product(codes, large)
    assert not column_encoder.use_product(codes, table.detach())
    assert not column_encoder.use_product(torch.zeros(8, 2), torch.zeros(9, 6, requires_grad=True))


def test_missing_values_add_nothing_at_the_start():
    encoder = ColumnEncoder((Column("kind", "int64", size=3), Column("charge")), 6)
    missing = {"kind": torch.tensor([-1]), "charge": torch.tensor([float("nan")])}
    assert not encoder(missing).any()


def test_embeddings_are_small_at_first():
    encoder = ColumnEncoder((Column("kind", "int64", size=500),), 100)
    assert float(encoder.table.detach().std()) == pytest.approx(0.1, rel=0.05)


def test_columns_that_cannot_be_encoded_are_refused():
    columns = (Column("form", "string"), Column("count", "int64"), Column("ok", "bool"))
    match = "column 'form' holds strings.* column 'count' holds codes of unknown number"
    with pytest.raises(ConfigError, match=match):
        ColumnEncoder(columns, 4)


def test_given_embeddings_are_those_of_the_codes_of_their_column() -> None:
    codes = (Column("places", "int64", shape=(2,), size=4), Column("word", "int64", size=3))
    encoder = ColumnEncoder(codes, 5)
    given_rows = torch.randn(3, 5)
    before = encoder.table.detach().clone()
    encoder.set_embeddings("word", given_rows)
    columns = {"places": torch.full((4, 2), -1), "word": torch.tensor([2, 0, 1, -1])}
    expected = torch.cat([given_rows[[2, 0, 1]], torch.zeros(1, 5)])
    torch.testing.assert_close(encoder(columns), expected)  # missing codes add nothing at first
    assert torch.equal(encoder.table[:10], before[:10])
    with pytest.raises(ShapeError, match=r"'word' has 3 codes and embeddings of 5 numbers"):
        encoder.set_embeddings("word", torch.zeros(4, 5))
