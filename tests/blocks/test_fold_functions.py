"""Functions, Concat, Zeros and Void, as TensorFlow Fold's tests have them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from block_checks import add, neg, times
from fold_checks import Cases, Faults, P, V, array, goes_wrong, hold, numbers, objects
from torch import Tensor

from graphfold import blocks as td

T = td.TensorType


def swapped(x: Tensor, y: tuple[Tensor, Tensor]) -> Any:
    return (y[1], x), y[0]


VALUES: Cases = {
    "doubled": (lambda: td.Scalar() >> times(2), 21, 42.0, 1),
    "any_function": (lambda: td.Scalar() >> (lambda x: 2 * x), 21, 42.0, 1),
    "nested": (
        lambda: (td.Vector(1), (td.Vector(2), td.Vector(3))) >> td.Function(swapped),
        ([1], ([2, 3], [4, 5, 6])),
        (([4.0, 5.0, 6.0], [1.0]), [2.0, 3.0]),
        1,
    ),
    "one_item": (lambda: td.Scalar() >> td.Function(lambda x: [x]), 1, (1.0,), 1),
    "two_items": (
        lambda: td.Vector(2) >> td.Function(lambda x: [x, x.int()]),
        [1, 2],
        ([1.0, 2.0], [1, 2]),
        1,
    ),
    "ints": (lambda: td.Scalar("int64") >> neg(), 2**60, -(2**60), 1),
    "matmul": (
        lambda: (td.Tensor([1, 2]), td.Tensor([2, 1])) >> td.Function(torch.matmul),
        ([[1, 2]], [[3], [4]]),
        [[11.0]],
        1,
    ),
    "chain": (lambda: td.Scalar() >> times(2) >> times(3) >> neg(), 1, -6.0, 3),
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
    "void": (td.Void, "anything", None, 0),
    "void_of_tensor": (lambda: td.Scalar() >> neg() >> td.Void(), 42, None, 0),
    "void_beside": (lambda: td.AllOf(td.Void(), td.Scalar()), 42, (None, 42.0), 0),
}

FAULTS: Faults = {
    "number": (lambda: td.Function(42), TypeError, "fn is not callable: 42"),  # type: ignore
    "object": (lambda: objects() >> neg(), TypeError, "bad input type PyObjectType.*Function"),
    "void": (lambda: td.Void() >> neg(), TypeError, "bad input type VoidType.*Function"),
    "sequence": (lambda: numbers() >> neg(), TypeError, "bad input type SequenceType.*Function"),
    "nothing": (
        lambda: td.Record([]) >> neg(),
        TypeError,
        "functions must take at least one tensor input",
    ),
    "nothing_nested": (
        lambda: ((), ((),)) >> neg(),
        TypeError,
        "functions must take at least one tensor input",
    ),
    "sequence_inside": (
        lambda: td.AllOf(numbers(), numbers()) >> add(),
        TypeError,
        "function inputs must be tensors: .*SequenceType",
    ),
    "void_inside": (
        lambda: td.AllOf(td.Void(), td.Scalar()) >> add(),
        TypeError,
        "function inputs must be tensors: .*VoidType",
    ),
    "object_inside": (
        lambda: td.AllOf(td.Identity(), td.Scalar()) >> add(),
        TypeError,
        "function inputs must be tensors: .*PyObjectType",
    ),
    "output": (
        lambda: td.Function(torch.neg).set_output_type(()),
        TypeError,
        "functions must return at least one tensor output",
    ),
    "output_inside": (
        lambda: td.Function(torch.neg).set_output_type((V, [])),
        TypeError,
        "function outputs must be tensors",
    ),
    "output_object": (lambda: neg().set_output_type(P), TypeError, "bad output type PyObjectType"),
    "returns_number": (
        lambda: td.Scalar() >> td.Function(lambda x: 42),
        TypeError,
        "42.*is not a tensor",
    ),
    "returns_scalar": (
        lambda: td.Scalar() >> td.Function(lambda x: torch.zeros([])),
        TypeError,
        "expected a batch tensor, saw a scalar",
    ),
    "returns_no_batch": (
        lambda: td.Scalar() >> td.Function(lambda x: torch.zeros(1)),
        TypeError,
        r"leading \(batch\) dimension",
    ),
    "mixes_rows": (
        lambda: (td.Vector(1), td.Scalar()) >> add(),
        TypeError,
        "add.*mixes the rows of a batch",
    ),
    "arity": (lambda: (td.Scalar(),) * 3 >> add(), TypeError, "add.*cannot take TupleType"),
    "other_output": (
        lambda: td.Vector(3) >> neg().set_output_type([2]),
        TypeError,
        r"Type mismatch between output type .*\(3,\).*\(2,\)",
    ),
    "not_inferred": (
        lambda: (td.Scalar() >> td.Function(torch.neg, infer_output_type=False)).eval(1),
        TypeError,
        "Cannot determine output type for Function",
    ),
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


@pytest.mark.parametrize("shape", [[], [1], [2, 3]])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
def test_a_function_keeps_shape_and_dtype(shape: list[int], dtype: str) -> None:
    block = td.Tensor(shape, dtype) >> neg()
    assert block.output_type == T(shape, dtype)
    hold(lambda: block, np.full(shape, 3), np.full(shape, -3, dtype).tolist(), 1)


def test_output_types_are_found_when_connected() -> None:
    def of(given: Any, function: Any) -> Any:
        return td.Function(function).set_input_type(given).output_type

    assert of([2, 3], lambda x: x.to(torch.int32)) == T([2, 3], "int32")
    assert of(([3, 2], [2, 5]), torch.matmul) == T([3, 5])
    assert of(([1, 1], [1, 1]), torch.matmul) == T([1, 1])
    assert of(([3, 5], [42, "int32"]), lambda x, y: [x, y]) == td.convert_to_type(
        ([3, 5], [42, "int32"])
    )
    assert ({"a": td.Scalar(), "b": td.Vector(5)} >> td.Concat()).output_type == T([6])
    assert (td.Vector(37) >> neg()).output_type == T([37])
    given = td.Function(torch.neg, infer_output_type=False).set_output_type([3])
    assert (td.Vector(3) >> given).output_type == T([3])


def test_a_function_is_called_once_for_all_that_can_run_together() -> None:
    sizes: list[int] = []

    def counted(x: Tensor) -> Tensor:
        sizes.append(x.shape[0])
        return 2 * x

    block = td.Map(td.Scalar() >> td.Function(counted)) >> td.Fold(add(), array(0.0))
    model = td.compile(block)
    sizes.clear()
    assert model([[1, 2, 3], [], [4]]).tolist() == [12.0, 0.0, 8.0]
    assert sizes == [4]
