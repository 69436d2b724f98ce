"""Functions, as TensorFlow Fold's tests have them."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest
import torch
from block_checks import WAYS, add, array, goes_wrong, hold, neg
from torch import Tensor

from graphfold import blocks as td

T = td.TensorType


@pytest.mark.parametrize("shape", [[], [1], [2, 3]])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
def test_a_function_keeps_shape_and_dtype(shape: list[int], dtype: str) -> None:
    block = td.Tensor(shape, dtype) >> neg()
    assert block.output_type == T(shape, dtype)
    hold(lambda: block, np.full(shape, 3), np.full(shape, -3, dtype).tolist(), 1)


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
    """A function whose output type is declared, not inferred."""
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
    for way in WAYS:
        model = td.compile(declared(function, kind), run=way)
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
