"""Functions, as TensorFlow Fold's tests have them."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest
import torch
from block_checks import ENGINES, add, neg, times
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
    "void": (td.Void, "anything", None, 0),
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


def test_a_module_that_does_not_fit_is_reported_once() -> None:
    records: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = records.append  # type: ignore[assignment, method-assign]
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    logger.addHandler(handler)
    try:
        with pytest.raises(td.BlockTypeError, match=r"Vector.*Linear.*cannot take .*\(2,\)"):
            td.Vector(2) >> torch.nn.Linear(3, 4)
    finally:
        logger.removeHandler(handler)
    assert not records


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


def declared(function: Any, kind: Any) -> td.Block:
    """A function whose output type nothing but the declaration says."""
    return td.Scalar() >> td.Function(function, "f", infer_output_type=False).set_output_type(kind)


DECLARED: dict[str, tuple[Any, Any, str]] = {
    "shape": (torch.neg, [3], r"f.* gave a float32 tensor of shape \[1\].*TensorType\(\(3,\)"),
    "integer": (torch.neg, "int32", r"gave a float32 tensor .*TensorType\(\(\), 'int32'\)"),
    "float": (lambda x: x > 0, [], "gave a bool tensor .*float32"),
    "too_many": (lambda x: (x, x), [], "f.* gave 2 tensors, but its output type has 1"),
    "too_few": (torch.neg, ([], []), "gave 1 tensors, but its output type has 2"),
    "no_tensor": (lambda x: 3, [], "gave 3, which is not a tensor"),
}


@pytest.mark.parametrize("name", DECLARED)
def test_a_declared_type_is_checked_alike_alone_and_in_a_batch(name: str) -> None:
    function, kind, text = DECLARED[name]
    goes_wrong((lambda: declared(function, kind).eval(3), TypeError, text))
    for engine in ENGINES:
        model = td.compile(declared(function, kind), engine=engine)
        goes_wrong((lambda model=model: model([3]), TypeError, text))  # type: ignore[misc]


def test_floats_take_the_dtype_of_the_type_or_the_model() -> None:
    block = declared(lambda x: x.double() / 3, [])
    model = td.compile(block)
    alone, batch = block.eval(1), model([1])
    assert alone.dtype == batch.dtype == torch.float32
    assert alone == batch[0]
    learned = td.Scalar() >> td.Function(lambda x: x.double()[:, None]) >> td.FC(1, None)
    assert learned.eval(1).dtype == td.compile(learned)([1]).dtype == torch.float32


def test_a_function_of_a_narrower_dtype_does_not_narrow_the_next() -> None:
    narrow = td.Function(lambda x: x.to(torch.float32))
    block = td.Map(td.Scalar("int64") >> narrow) >> td.Reduce(td.Function(torch.sub))
    model = td.compile(block >> td.Function(torch.sin))
    assert td.verify(model, [[1, 2], [2, -3, 5], []]) < 1e-15


def test_an_error_of_a_function_names_the_block() -> None:
    def fails(x: Tensor) -> Tensor:
        raise OSError("no disk")

    block = declared(fails, [])
    for run in (block.eval, lambda x: td.compile(block)([x])):
        with pytest.raises(OSError, match="no disk") as caught:
            run(3)
        assert "in <Function 'f' fn='fails'>" in caught.value.__notes__
