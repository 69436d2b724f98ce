"""Type inference and names, as TensorFlow Fold's tests have them."""

from __future__ import annotations

import pytest
import torch
from block_checks import add, neg
from fold_checks import Faults, P, V, goes_wrong, hold, numbers, objects, scalar

from graphfold import blocks as td

T, numbers_type = td.TensorType, td.SequenceType(scalar)


def test_what_blocks_know_of_themselves() -> None:
    assert (td.Scalar().input_type, td.Scalar().output_type) == (P, scalar)
    assert (td.Length().input_type, td.Length().output_type) == (None, scalar)
    assert td.Map(td.Scalar()).output_type == numbers_type
    assert td.InputTransform(str.lower).output_type == P
    assert td.Map(td.InputTransform(str.lower)).output_type == P
    assert (td.Identity().input_type, td.Identity().output_type) == (None, None)
    assert td.Void().output_type == V
    assert td.FromTensor(torch.ones(2)).input_type == V
    assert td.FC(5).output_type == T((5,))


def test_blocks_learn_from_what_they_read() -> None:
    length = td.Length()
    numbers() >> length
    assert length.input_type == numbers_type
    both = add()
    (td.Scalar(), td.Scalar()) >> both
    assert both.input_type == td.TupleType(scalar, scalar)


def test_types_go_along_pipes_in_both_directions() -> None:
    forward = td.Identity() >> td.Identity() >> td.Identity()
    assert forward.set_input_type([3]).output_type == T((3,))
    backward = td.Identity() >> (td.Identity() >> td.Identity())
    assert backward.set_output_type([3, "int8"]).input_type == T((3,), "int8")
    mapped = td.Map(td.Identity()) >> td.Identity()
    mapped.set_output_type(td.SequenceType(scalar))
    assert mapped.children[0].children[0].output_type == scalar
    assert td.AllOf(td.Identity(), td.Identity()).set_input_type([2]).output_type == td.TupleType(
        T([2]), T([2])
    )
    record = td.Record((td.Identity(), td.Identity()))
    assert record.set_output_type(([2], [])).input_type == td.TupleType(T([2]), scalar)
    assert td.Fold(add(), td.Zeros([2])).output_type == T((2,))


def test_a_type_may_be_set_by_what_stands_for_it() -> None:
    block = td.Identity()
    assert block.set_input_type(None) is block
    assert block.input_type is None
    assert block.set_input_type([3]) is block
    assert block.output_type == T((3,))
    assert block.set_output_type([3]) is block
    assert td.Identity().set_input_type((P, P)).output_type == P


def test_two_blocks_may_be_of_the_same_types() -> None:
    one, other = td.Identity().set_input_type([2]), td.InputTransform(len)
    free, declared = td.Identity(), td.ForwardDeclaration()
    free.set_io_types(one)
    assert (free.input_type, free.output_type) == (T([2]), T([2]))
    other.set_io_types(declared)
    assert (declared.input_type, declared.output_type) == (P, P)


def test_names() -> None:
    assert td.Identity().name == "Identity"
    assert td.Identity(name="mine").name == "mine"
    assert "mine" in str(td.Identity(name="mine"))


def test_pipes_of_identities() -> None:
    hold(lambda: td.Scalar() >> (td.Identity() >> td.Identity()), 42, 42.0, 0)
    record = {"a": td.Scalar(), "b": td.Vector(2) >> td.Identity()}
    middle = td.Identity() >> td.Identity()
    hold(
        lambda: record >> td.Identity() >> middle >> td.Identity(),
        {"a": 7, "b": [5, 1]},
        (7.0, [5.0, 1.0]),
        0,
    )
    hold(lambda: td.Map(td.Identity()) >> td.Vector(2), [1, 2], [1.0, 2.0], 0)


FAULTS: Faults = {
    "name": (lambda: td.Identity(name=3), TypeError, "name must be a string"),  # type: ignore
    "void": (lambda: td.Length().set_input_type(V), TypeError, "bad input type VoidType.*Length"),
    "void_output": (
        lambda: td.Map(td.Identity()).set_output_type(V),
        TypeError,
        "bad output type VoidType.*Map.*SequenceType",
    ),
    "other_input": (
        lambda: numbers() >> td.Length().set_input_type(P),
        TypeError,
        r"SequenceType.*PyObjectType.*Type mismatch between input type",
    ),
    "again": (
        lambda: td.Identity().set_input_type([3]).set_input_type([4]),
        TypeError,
        r"Type mismatch between input type .*\(4,\).* and expected input type .*\(3,\)",
    ),
    "output_again": (
        lambda: td.Scalar().set_output_type("int32"),
        TypeError,
        "Type mismatch between output type .*int32.*float32.*Scalar",
    ),
    "classes": (
        lambda: td.Identity().set_input_type_classes(td.TupleType).set_input_type(P),
        TypeError,
        "bad input type PyObjectType.*expected TupleType",
    ),
    "output_classes": (
        lambda: td.Identity().set_output_type_classes(td.TensorType).set_output_type(P),
        TypeError,
        "bad output type PyObjectType.*expected TensorType",
    ),
    "late_classes": (
        lambda: td.Scalar().set_output_type_classes(td.TupleType),
        TypeError,
        "bad output type TensorType",
    ),
    "forward": (
        lambda: (td.Identity() >> td.Identity() >> td.Map(neg())).set_input_type(P),
        TypeError,
        "bad input type PyObjectType",
    ),
    "backward": (
        lambda: (td.Map(td.Identity()) >> td.Identity() >> td.Identity()).set_output_type(V),
        TypeError,
        "bad output type VoidType",
    ),
    "io": (
        lambda: td.Scalar().set_io_types(td.Vector(2)),
        TypeError,
        "Type mismatch between output type",
    ),
    "no_type": (lambda: td.Identity().set_input_type(1.5), TypeError, "1.5 to a type"),
    "nothing_known": (
        lambda: td.Identity().check(),
        TypeError,
        "Cannot determine input type for Identity.",
    ),
    "pipe_known": (
        lambda: (td.Identity() >> td.Identity()).check(),
        TypeError,
        "Cannot determine input type for [A-Z]",
    ),
    "nothing_given": (
        lambda: (objects() >> td.Length() >> neg() >> td.Metric("m")).set_output_type([]),
        TypeError,
        "Type mismatch between output type",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_types_that_do_not_fit(name: str) -> None:
    goes_wrong(FAULTS[name])
