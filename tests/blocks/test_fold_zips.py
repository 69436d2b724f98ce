"""Broadcast, Zip and NGrams, as TensorFlow Fold's tests have them."""

from __future__ import annotations

from itertools import repeat

import pytest
from block_checks import add, neg, sub
from fold_checks import Cases, Faults, goes_wrong, hold, numbers, objects, scalar

from graphfold import blocks as td

VALUES: Cases = {
    "shortest": (
        lambda: {"x": numbers(), "y": numbers()} >> td.Zip(),
        {"x": [1, 2], "y": [3]},
        [(1.0, 3.0)],
        0,
    ),
    "nothing": (lambda: {"x": numbers(), "y": numbers()} >> td.Zip(), {"x": [], "y": []}, [], 0),
    "broadcast": (
        lambda: {"x": numbers(), "y": td.Scalar() >> td.Broadcast()} >> td.Zip(),
        {"x": [1, 2], "y": 3},
        [(1.0, 3.0), (2.0, 3.0)],
        0,
    ),
    "added": (
        lambda: {"x": td.Scalar() >> td.Broadcast(), "y": numbers()} >> td.Zip() >> td.Map(add()),
        {"x": 2, "y": [1, 2, 3]},
        [3.0, 4.0, 5.0],
        1,
    ),
    "zip_with": (
        lambda: (numbers(), numbers()) >> td.ZipWith(add()),
        ([1, 2, 3], [4, 5, 6]),
        [5.0, 7.0, 9.0],
        1,
    ),
    "with_object": (
        lambda: (numbers(), td.Identity()) >> td.Zip(),
        ([1, 2], "ab"),
        [(1.0, "a"), (2.0, "b")],
        0,
    ),
    "centred": (
        lambda: (
            numbers()
            >> td.AllOf(td.Identity(), td.Mean() >> td.Broadcast())
            >> td.Zip()
            >> td.Map(sub())
        ),
        [1, 2, 3],
        [-1.0, 0.0, 1.0],
        4,
    ),
    "endless": (lambda: td.Scalar() >> td.Broadcast(), 42, repeat(42.0), 0),
    "endless_map": (lambda: td.Scalar() >> td.Broadcast() >> td.Map(neg()), 42, repeat(-42.0), 1),
    "endless_pairs": (
        lambda: td.Scalar() >> td.Broadcast() >> td.NGrams(2),
        42,
        repeat((42.0, 42.0)),
        0,
    ),
    "endless_zip": (
        lambda: (
            {"x": td.Scalar() >> td.Broadcast(), "y": td.Scalar() >> td.Broadcast()} >> td.Zip()
        ),
        {"x": 1, "y": 2},
        repeat((1.0, 2.0)),
        0,
    ),
    "unigrams_of_none": (lambda: numbers() >> td.NGrams(1), [], [], 0),
    "unigrams_of_one": (lambda: numbers() >> td.NGrams(1), [1], [(1.0,)], 0),
    "unigrams": (lambda: numbers() >> td.NGrams(1), [1, 2], [(1.0,), (2.0,)], 0),
    "bigrams_of_none": (lambda: numbers() >> td.NGrams(2), [], [], 0),
    "bigrams_of_one": (lambda: numbers() >> td.NGrams(2), [1], [], 0),
    "bigram": (lambda: numbers() >> td.NGrams(2), [1, 2], [(1.0, 2.0)], 0),
    "bigrams": (lambda: numbers() >> td.NGrams(2), [1, 2, 3], [(1.0, 2.0), (2.0, 3.0)], 0),
    "trigrams": (lambda: numbers("int32") >> td.NGrams(3), range(4), [(0, 1, 2), (1, 2, 3)], 0),
}

FAULTS: Faults = {
    "broadcast_object": (
        lambda: objects() >> td.Broadcast(),
        TypeError,
        "bad output type PyObjectType.*Broadcast",
    ),
    "zip_tensors": (
        lambda: (td.Scalar(), td.Scalar()) >> td.Zip(),
        TypeError,
        "item types must be sequences: TensorType",
    ),
    "zip_void": (
        lambda: td.AllOf(numbers(), td.Void()) >> td.Zip(),
        TypeError,
        "item types must be sequences: VoidType",
    ),
    "zip_nothing": (
        lambda: td.Record([]) >> td.Zip(),
        TypeError,
        "zip requires at least one input sequence",
    ),
    "zip_root": (lambda: td.Zip().eval(([], [])), TypeError, "bad input type PyObjectType.*Zip"),
    "ngrams_zero": (lambda: td.NGrams(0), ValueError, "n must be positive: 0"),
    "ngrams_half": (lambda: td.NGrams(1.5), TypeError, "n must be an integer: 1.5"),  # type: ignore
    "zip_of_number": (
        lambda: ((numbers(), td.Identity()) >> td.Zip()).eval(([1], 5)),
        TypeError,
        "Zip.*5 has no elements",
    ),
    "ngrams_negative": (lambda: td.NGrams(-1), ValueError, "n must be positive: -1"),
    "ngrams_object": (
        lambda: objects() >> td.NGrams(2),
        TypeError,
        "bad input type PyObjectType.*NGrams",
    ),
    "ngrams_tuple": (
        lambda: (td.Scalar(), td.Scalar()) >> td.NGrams(2),
        TypeError,
        "bad input type TupleType.*NGrams",
    ),
}


@pytest.mark.parametrize("name", VALUES)
def test_value(name: str) -> None:
    hold(*VALUES[name])


@pytest.mark.parametrize("name", FAULTS)
def test_error(name: str) -> None:
    goes_wrong(FAULTS[name])


def test_types_of_ngrams() -> None:
    assert td.NGrams(3).n == 3
    kind = (numbers() >> td.NGrams(2)).output_type
    assert kind == td.SequenceType(td.TupleType(scalar, scalar))
