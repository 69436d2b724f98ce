"""Types, as TensorFlow Fold's tests have them: values, conversion, inference and its errors."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product, repeat
from typing import Any

import numpy as np
import pytest
import torch
from block_checks import P, V, scalar

from graphfold import blocks as td

T = td.TensorType

SPELLED: dict[str, Callable[[], td.ResultType]] = {
    "VoidType()": td.VoidType,
    "PyObjectType()": td.PyObjectType,
    "TensorType((), 'float32')": lambda: T(()),
    "TensorType((2, 3), 'int64')": lambda: T([2, 3], "int64"),
    "TupleType()": td.TupleType,
    "TupleType(VoidType())": lambda: td.TupleType(V),
    "TupleType(TensorType((), 'float32'), TensorType((4,), 'int32'))": lambda: td.TupleType(
        T(()), T((4,), "int32")
    ),
    "SequenceType(TensorType((5,), 'float32'))": lambda: td.SequenceType(T((5,))),
    "BroadcastSequenceType(PyObjectType())": lambda: td.BroadcastSequenceType(P),
}


@pytest.mark.parametrize("text", SPELLED)
def test_types_are_spelled_and_compared_by_value(text: str) -> None:
    one, other = SPELLED[text](), SPELLED[text]()
    assert repr(one) == str(one) == text
    assert one == other
    assert (one != other) is False
    assert {one, other} == {one}
    assert [key for key, make in SPELLED.items() if make() == one] == [text]


def test_types_are_ordered_by_what_they_print() -> None:
    mixed = [make() for make in SPELLED.values()]
    backward = mixed[::-1]
    assert sorted(mixed) == sorted(backward) == sorted(mixed, key=repr)


@pytest.mark.parametrize("shape", [(), (1,), (2, 3), (2, 0)])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "uint8", "bool"])
def test_tensor_types(shape: tuple[int, ...], dtype: str) -> None:
    kind = T(list(shape), dtype)
    assert (kind.shape, kind.dtype, kind.ndim) == (shape, dtype, len(shape))
    assert kind.size == int(np.prod(shape))
    assert list(kind.terminal_types()) == [kind]
    assert kind.flatten(7) == [7]
    assert kind.unflatten(iter([7]), None) == 7
    assert (np.array(kind) == np.zeros(shape, dtype)).all()
    ones = np.ones_like(kind)
    assert (ones.shape, ones.dtype) == (shape, np.dtype(dtype))
    assert ones.all()


@pytest.mark.parametrize(
    ("kind", "size"),
    [
        (V, None),
        (P, None),
        (td.SequenceType(scalar), None),
        (td.BroadcastSequenceType(scalar), None),
        (td.TupleType(), 0),
        (td.TupleType(T(()), T((4,)), T(())), 6),
        (td.TupleType(T(()), td.TupleType(T((2, 2)))), 5),
        (td.TupleType(T(()), td.SequenceType(T(()))), None),
        (td.TupleType(V, scalar), None),
    ],
)
def test_sizes(kind: td.ResultType, size: int | None) -> None:
    assert kind.size == size


def test_tuple_types_are_made_of_types_or_of_an_iterable() -> None:
    a, b = T(()), T((2,), "int32")
    kind = td.TupleType(a, b)
    assert kind == td.TupleType([a, b]) == td.TupleType(item for item in (a, b))
    assert (len(kind), kind[0], kind[-1], list(kind)) == (2, a, b, [a, b])
    assert kind[:] == kind
    assert td.TupleType(kind).item_types == (kind,)
    assert kind[0:1] == td.TupleType(a)
    assert tuple(kind) == (a, b)
    plain: Any = tuple(kind)
    assert kind != plain
    nested = td.TupleType(td.TupleType(a), td.TupleType(td.TupleType(b, b), a))
    assert list(nested.terminal_types()) == [a, b, b, a]


def test_a_type_like_is_an_instance_of_its_own_type() -> None:
    like: Any = ([], [1], ([2], [3], ()), ((),))
    kind = td.convert_to_type(like)
    assert kind.flatten(like) == [[], [1], [2], [3]]
    assert kind.unflatten(iter([[], [1], [2], [3]]), None) == like


def test_sequences_are_unflattened_like_a_sample() -> None:
    inner = td.SequenceType(td.TupleType(scalar, scalar))
    kind = td.SequenceType(td.TupleType(inner, scalar))
    assert kind.flatten([([(1, 2), (3, 4)], 5)]) == [1, 2, 3, 4, 5]
    sample = [([(0, 0), (0, 0)], 0)]
    assert kind.unflatten(iter([1, 2, 3, 4, 5]), sample) == [([(1, 2), (3, 4)], 5)]
    mixed = td.SequenceType(td.TupleType(scalar, V, td.TupleType(P)))
    assert list(mixed.terminal_types()) == [scalar, P]
    assert mixed.flatten([(1, None, ("a",)), (2, None, ("b",))]) == [1, "a", 2, "b"]


def test_broadcast_sequences_hold_one_element() -> None:
    kind = td.BroadcastSequenceType(td.SequenceType(scalar))
    assert kind.flatten(repeat([1, 2])) == [1, 2]
    again = kind.unflatten(iter([1, 2]), repeat([0, 0]))
    assert isinstance(again, repeat)
    assert next(again) == [1, 2]


def test_for_each_terminal_tells_types_and_values() -> None:
    seen: list[Any] = []
    kind = td.TupleType(scalar, V, td.SequenceType(P))
    kind.for_each_terminal(lambda t, value: seen.append((t, value)), (1, None, ["a", "b"]))
    assert seen == [(scalar, 1), (P, "a"), (P, "b")]


LIKES: list[tuple[Any, td.ResultType]] = [
    ([], T(())),
    ([3], T((3,))),
    ([3, 4], T((3, 4))),
    ("int64", T((), "int64")),
    (["int64"], T((), "int64")),
    ([3, "int64"], T((3,), "int64")),
    ([3, 4, "int64"], T((3, 4), "int64")),
    (np.dtype("int8"), T((), "int8")),
    (torch.float64, T((), "float64")),
    ([2, torch.int8], T((2,), "int8")),
    (torch.Size([2]), T((2,))),
    (5, T((5,))),
    (P, P),
    (V, V),
    (td.SequenceType(scalar), td.SequenceType(scalar)),
]


def test_what_converts_to_types() -> None:
    assert td.convert_to_type(()) == td.TupleType()
    for like, kind in LIKES:
        assert td.convert_to_type(like) == kind
        assert td.convert_to_type((like,)) == td.TupleType(kind)
        assert td.convert_to_type((like, (like, like))) == td.TupleType(
            kind, td.TupleType(kind, kind)
        )
    for (a, kind_a), (b, kind_b) in product(LIKES, repeat=2):
        assert td.convert_to_type((a, b)) == td.TupleType(kind_a, kind_b)


@pytest.mark.parametrize(
    ("kind", "canonical"),
    [
        ((P, P), P),
        (((P, P), P), P),
        (td.SequenceType(P), P),
        (td.SequenceType(td.TupleType(P, P)), P),
        (td.BroadcastSequenceType(P), P),
        (((P, P), []), td.TupleType(P, scalar)),
        ((td.SequenceType(P), [2]), td.TupleType(P, T([2]))),
        ((), td.TupleType()),
        (((), ()), td.TupleType(td.TupleType(), td.TupleType())),
        ((V, P), td.TupleType(V, P)),
        ([3], T([3])),
    ],
)
def test_canonical_types(kind: Any, canonical: td.ResultType) -> None:
    assert td.canonicalize_type(kind) == canonical


@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        ("float", "float32"),
        ("double", "float64"),
        ("half", "float16"),
        ("long", "int64"),
        ("bfloat16", "bfloat16"),
        (np.float64, "float64"),
        (np.dtype("int32"), "int32"),
        (torch.float, "float32"),
    ],
)
def test_a_dtype_has_the_name_that_torch_gives_it(dtype: Any, name: str) -> None:
    assert T([2], dtype) == T([2], name)
    assert T([2], dtype).torch_dtype == getattr(torch, name)
