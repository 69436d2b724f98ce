"""Concat, Zeros and Void, as TensorFlow Fold's tests have them."""

from __future__ import annotations

import pytest
from block_checks import add, neg
from fold_checks import Cases, Faults, P, V, goes_wrong, hold, numbers

from graphfold import blocks as td

T = td.TensorType

VALUES: Cases = {
    "concat_vectors": (
        lambda: {"a": td.Vector(1), "b": td.Vector(4), "c": td.Vector(1)} >> td.Concat(),
        {"a": [1], "b": [2, 3, 4, 5], "c": [6]},
        [1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
        1,
    ),
    "concat_scalars": (
        lambda: {"a": td.Scalar(), "b": td.Vector(4), "c": td.Scalar()} >> td.Concat(),
        {"a": 1, "b": [2, 3, 4, 5], "c": 6},
        [1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
        1,
    ),
    "concat_only_scalars": (
        lambda: (td.Scalar("int32"), td.Scalar("int32")) >> td.Concat(),
        (1, 2),
        [1, 2],
        1,
    ),
    "concat_rows": (
        lambda: td.AllOf(td.Tensor([1, 3]), td.Tensor([1, 3])) >> td.Concat(concat_dim=0),
        [[1, 2, 3]],
        [[1.0, 2.0, 3.0], [1.0, 2.0, 3.0]],
        1,
    ),
    "concat_columns": (
        lambda: td.AllOf(td.Tensor([1, 3]), td.Tensor([1, 3])) >> td.Concat(concat_dim=1),
        [[1, 2, 3]],
        [[1.0, 2.0, 3.0, 1.0, 2.0, 3.0]],
        1,
    ),
    "concat_one": (lambda: td.AllOf(td.Vector(2)) >> td.Concat(), [1, 2], [1.0, 2.0], 1),
    "concat_nested": (
        lambda: (
            td.AllOf(td.AllOf(td.Scalar(), td.Scalar()), td.AllOf(td.Scalar(), td.Scalar()))
            >> td.Concat(flatten=True)
        ),
        42,
        [42.0] * 4,
        1,
    ),
    "concat_depth_first": (
        lambda: ((td.Scalar(), (td.Vector(2), td.Scalar())), td.Scalar()) >> td.Concat(0, True),
        ((1, ([2, 3], 4)), 5),
        [1.0, 2.0, 3.0, 4.0, 5.0],
        1,
    ),
    "zeros_scalar": (lambda: td.Zeros([]), None, 0.0, 0),
    "zeros_vector": (lambda: td.Zeros(3), None, [0.0, 0.0, 0.0], 0),
    "zeros_tuple": (lambda: td.Zeros(([2], [1, "int32"])), None, ([0.0, 0.0], [0]), 0),
    "zeros_nested": (lambda: td.Zeros(([], ([1], ([],)))), None, (0.0, ([0.0], (0.0,))), 0),
    "zeros_void": (lambda: td.Zeros((V, T(()))), None, (None, 0.0), 0),
    "zeros_sequence": (lambda: td.Zeros(td.SequenceType(T(()))), None, [], 0),
    "zeros_with_sequence": (lambda: td.Zeros(([], td.SequenceType(T(())))), None, (0.0, []), 0),
    # In Fold zeros of the empty tuple are void.
    "zeros_empty": (lambda: td.Zeros(()), None, (), 0),
    "zeros_added": (lambda: td.AllOf(td.Scalar(), td.Zeros([])) >> add(), 42, 42.0, 1),
    "void_of_tensor": (lambda: td.Scalar() >> neg() >> td.Void(), 42, None, 0),
    "void_beside": (lambda: td.AllOf(td.Void(), td.Scalar()), 42, (None, 42.0), 0),
}

FAULTS: Faults = {
    "concat_shapes": (
        lambda: (td.Scalar(), td.Vector(4), td.Tensor([3, 3])) >> td.Concat(),
        TypeError,
        "Shapes for concat don't match",
    ),
    "concat_rank": (
        lambda: (td.Tensor([1, 2]), td.Vector(4)) >> td.Concat(concat_dim=1),
        TypeError,
        "Concat argument 1 of type TensorType.* has rank less than 2.",
    ),
    "concat_dtypes": (
        lambda: (td.Scalar("int32"), td.Scalar()) >> td.Concat(),
        TypeError,
        "Cannot concat tensors of different dtypes: int32 vs. float32",
    ),
    "concat_nested": (
        lambda: ((td.Scalar(),), (td.Scalar(),)) >> td.Concat(),
        TypeError,
        "contains nested tuples.*set flatten=True",
    ),
    "concat_nothing": (
        lambda: td.Record([]) >> td.Concat(),
        TypeError,
        "Concat requires at least one tensor as input",
    ),
    "concat_tensor": (lambda: td.Vector(2) >> td.Concat(), TypeError, "bad input type TensorType"),
    "concat_piped": (lambda: td.Pipe(td.Scalar(), td.Concat()), TypeError, "Scalar.*Concat"),
    "concat_negative": (lambda: td.Concat(-1), ValueError, "concat_dim must be.*-1"),
    "concat_sequence": (
        lambda: td.AllOf(numbers(), td.Scalar()) >> td.Concat(),
        TypeError,
        "Concat inputs must be tensors: .*SequenceType",
    ),
    "zeros_object": (lambda: td.Zeros(P), TypeError, "all terminal types must be tensors"),
    "zeros_object_inside": (
        lambda: td.Zeros((P, [2])),
        TypeError,
        "all terminal types must be tensors: TupleType",
    ),
    "zeros_endless": (
        lambda: td.Zeros(td.BroadcastSequenceType(T(()))),
        TypeError,
        "cannot create Zeros for an infinite sequence type",
    ),
}


@pytest.mark.parametrize("name", VALUES)
def test_value(name: str) -> None:
    hold(*VALUES[name])


@pytest.mark.parametrize("name", FAULTS)
def test_error(name: str) -> None:
    goes_wrong(FAULTS[name])


def test_the_type_is_known_when_connected() -> None:
    assert ({"a": td.Scalar(), "b": td.Vector(5)} >> td.Concat()).output_type == T([6])
