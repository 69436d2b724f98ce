"""Record and AllOf, as TensorFlow Fold's tests have them."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import pytest
import torch
from block_checks import add, neg, sub, times
from fold_checks import Cases, Faults, P, array, goes_wrong, hold, numbers, scalar

from graphfold import blocks as td


def absolute() -> td.Block:
    return td.Function(torch.abs)


def same() -> td.Block:
    return td.Function(torch.clone)


def weighed() -> td.Block:
    """2 a + 3 b, wired by the keys of a record."""
    composition = td.Composition()
    with composition.scope():
        record = td.Record({"b": td.Scalar(), "a": td.Scalar()}).reads(composition.input)
        double, triple = times(2).reads(record["a"]), times(3).reads(record["b"])
        composition.output.reads(add().reads(double, triple))
    return composition


VALUES: Cases = {
    "ordered": (
        lambda: td.Record(OrderedDict([("b", td.Scalar()), ("a", td.Scalar())])) >> sub(),
        {"a": 1.0, "b": 5.0},
        4.0,
        1,
    ),
    "pairs": (
        lambda: td.Record([("b", td.Scalar()), ("a", td.Scalar())]) >> sub(),
        {"a": 1.0, "b": 5.0},
        4.0,
        1,
    ),
    "sorted": (
        lambda: td.Record({"b": td.Scalar(), "a": td.Scalar()}) >> sub(),
        {"a": 1, "b": 5},
        -4.0,
        1,
    ),
    "number": (lambda: td.Record({0: td.Scalar("int32")}), {0: 42}, (42,), 0),
    "extra": (lambda: td.Record({0: td.Scalar()}), {0: 1, "other": "ignored"}, (1.0,), 0),
    "by_keys": (weighed, {"a": 1.0, "b": 5.0}, 17.0, 2),
    "slice": (
        lambda: td.Record(
            [(0, td.Scalar()), (slice(1, 3), (td.Scalar(), td.Scalar()) >> td.Concat())]
        ),
        [1, 2, 3],
        (1.0, [2.0, 3.0]),
        1,
    ),
    "empty": (lambda: td.Record([]), (), (), 0),
    "empty_tuple": (lambda: td.Record(()), (), (), 0),
    "objects": (lambda: td.Record((td.Identity(), td.Identity())), "ab", ("a", "b"), 0),
    "nested": (
        lambda: {"a": td.Map({"b": td.Scalar(), "c": td.Scalar()}), "d": td.Vector(3)},
        {"a": [{"b": 0, "c": 1}], "d": [2, 3, 4]},
        ([(0.0, 1.0)], [2.0, 3.0, 4.0]),
        0,
    ),
    "positions": (
        lambda: (td.Scalar(), td.Scalar()) >> td.Record((neg(), times(2))),
        (1, 2),
        (-1.0, 4.0),
        1,
    ),
    # Fold looks keys up in the tuple, which fails; here the order decides.
    "positions_of_pairs": (
        lambda: (td.Scalar(), td.Scalar()) >> td.Record([("x", neg()), ("y", times(2))]),
        (1, 2),
        (-1.0, 4.0),
        1,
    ),
    "positions_of_ordered": (
        lambda: (td.Scalar(), td.Scalar()) >> td.Record(OrderedDict(y=neg(), x=times(2))),
        (1, 2),
        (-1.0, 4.0),
        1,
    ),
    "all_objects": (lambda: td.AllOf(td.Identity(), td.Identity()), "foo", ("foo", "foo"), 0),
    "all_into_record": (
        lambda: td.AllOf(td.Identity(), td.Identity()) >> (td.Scalar(), td.Scalar()),
        42,
        (42.0, 42.0),
        0,
    ),
    "all_one_hot": (
        lambda: (
            td.AllOf(td.Scalar(), td.OneHot(3, dtype="int32")) >> (td.Function(torch.square), neg())
        ),
        2,
        (4.0, [0, 0, -1]),
        1,
    ),
    "all_of_none": (lambda: td.Scalar() >> td.AllOf(), -3, None, 0),
    "all_of_one": (lambda: td.Scalar() >> td.AllOf(neg()), -3, (3.0,), 1),
    "all_of_two": (lambda: td.Scalar() >> td.AllOf(same(), absolute()), -3, (-3.0, 3.0), 1),
    "all_of_three": (
        lambda: td.Scalar() >> td.AllOf(same(), absolute(), neg()),
        3,
        (3.0, 3.0, -3.0),
        1,
    ),
    "all_of_three_negative": (
        lambda: td.Scalar() >> td.AllOf(same(), absolute(), neg()),
        -3,
        (-3.0, 3.0, 3.0),
        1,
    ),
    "all_shapes": (
        lambda: td.Scalar() >> td.AllOf(neg(), td.Function(lambda x: x.unsqueeze(1))),
        3,
        (-3.0, [3.0]),
        1,
    ),
    "all_constants": (
        lambda: td.AllOf(array([0, 0]), array([1, 1])),
        None,
        ([0.0, 0.0], [1.0, 1.0]),
        0,
    ),
    "all_with_constant": (lambda: td.AllOf(td.Scalar(), array([1])), 3, (3.0, [1.0]), 0),
    "all_in_map_empty": (lambda: numbers() >> td.Map(td.AllOf(same(), neg())), [], [], 0),
    "all_in_map": (
        lambda: numbers() >> td.Map(td.AllOf(same(), neg())),
        [1, 2],
        [(1.0, -1.0), (2.0, -2.0)],
        1,
    ),
    "all_of_maps_empty": (
        lambda: td.AllOf(td.Map(td.Scalar() >> neg()), numbers()),
        [],
        ([], []),
        0,
    ),
    "all_of_maps": (
        lambda: td.AllOf(td.Map(td.Scalar() >> neg()), numbers()),
        [1, 2],
        ([-1.0, -2.0], [1.0, 2.0]),
        1,
    ),
}


def pair() -> tuple[Any, Any]:
    return td.Scalar(), td.Scalar()


FAULTS: Faults = {
    "unordered": (
        lambda: td.Pipe(pair(), {"a": td.Identity(), "b": td.Identity()}),
        RuntimeError,
        "created with an unordered dict cannot take ordered inputs",
    ),
    "unordered_type": (
        lambda: td.Record({"a": td.Identity()}).set_input_type(([],)),
        TypeError,
        "unordered dict",
    ),
    "too_few": (
        lambda: pair() >> td.Record((neg(), neg(), neg())),
        TypeError,
        "Record block has 3 children but 2 inputs",
    ),
    "too_many_outputs": (
        lambda: td.Record((td.Scalar(),)).set_output_type(([], [])),
        TypeError,
        "Type mismatch between output type TupleType.*TupleType.*Record",
    ),
    "number": (lambda: td.Record(5), TypeError, "expected a list or tuple or dictionary.*5"),  # type: ignore
    "text": (lambda: td.Record(("a", td.Scalar())), TypeError, "'a' cannot be converted"),
    "list": (lambda: td.Record([td.Scalar()]), TypeError, "pairs"),  # type: ignore[list-item]
    "unsorted": (lambda: td.Record({1: td.Scalar(), "a": td.Scalar()}), TypeError, "1, 'a'"),
    "no_output": (lambda: td.Record({"a": td.Scalar()})["zzz"], KeyError, "'zzz'.*'a'"),
    "no_key": (lambda: td.Record({"a": td.Scalar()}).eval({"b": 1}), KeyError, "'a'"),
    "short": (lambda: td.Record(pair()).eval((1,)), IndexError, "1"),
    "disagree": (
        lambda: td.AllOf(td.Scalar(), td.Vector(2) >> neg(), neg().set_input_type([2])),
        TypeError,
        "Type mismatch between input type",
    ),
    "all_scalar": (
        lambda: td.Scalar() >> td.AllOf(neg(), td.FC(2)),
        TypeError,
        "FC input shape must be 1D",
    ),
    "number_inside": (lambda: td.AllOf(td.Scalar(), 42), TypeError, "42 cannot be converted"),
}


@pytest.mark.parametrize("name", VALUES)
def test_value(name: str) -> None:
    hold(*VALUES[name])


@pytest.mark.parametrize("name", FAULTS)
def test_error(name: str) -> None:
    goes_wrong(FAULTS[name])


def test_documents() -> None:
    name = td.Map(td.InputTransform(ord) >> td.Scalar("int32") >> td.Embedding(256, 4))
    block = (
        td.Record(
            [
                ("id", td.Scalar("int32") >> td.Embedding(10, 3)),
                ("name", name >> td.Fold(add(), td.Zeros(4))),
                ("location", td.Vector(2)),
            ]
        )
        >> td.Concat()
        >> td.FC(5)
    )
    assert block.output_type == td.TensorType((5,))
    documents = [{"id": n, "name": "Joe Smith", "location": (2.5, 7.0)} for n in (8, 9)]
    batched = td.compile(block)(documents)
    torch.testing.assert_close(batched[0], block.eval(documents[0]))
    torch.testing.assert_close(batched[1], block.eval(documents[1]))


def test_types_of_records() -> None:
    record = td.Record({"a": td.Scalar(), "b": td.Vector(2)})
    assert (record.input_type, record.output_type) == (P, td.TupleType(scalar, td.TensorType([2])))
    assert td.Record((td.InputTransform(len), td.InputTransform(len))).output_type == P
    assert td.Record(()).output_type == td.TupleType()
    positions = td.Record((neg().set_input_type([2]), neg().set_input_type([])))
    assert positions.input_type == td.TupleType(td.TensorType([2]), scalar)
