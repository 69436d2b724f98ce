"""Compiling and batches of examples, as TensorFlow Fold's tests have them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from block_checks import goes_wrong, neg, numbers
from torch import Tensor, nn

from graphfold import blocks as td


def test_batches_may_be_of_any_iterable_but_a_single_example() -> None:
    def numbers_of(count: int) -> Iterator[int]:
        yield from range(count)

    model = td.compile(td.Scalar() >> neg())
    assert model(range(3)).tolist() == [0, -1, -2]
    assert model(numbers_of(3)).tolist() == [0, -1, -2]
    assert model([np.float32(3)]).tolist() == [-3]
    assert td.compile(td.Vector(2) >> neg())([(1, 2), np.array([3, 4])]).tolist() == [
        [-1, -2],
        [-3, -4],
    ]


def test_a_block_may_be_compiled_again_and_evaluated_before_and_after() -> None:
    block = td.Scalar() >> neg()
    assert block.eval(1, tolist=True) == -1.0
    models = [td.compile(block), td.compile(block), td.compile(td.AllOf(block, td.Scalar()))]
    assert models[0]([1]).tolist() == models[1]([1]).tolist() == [-1.0]
    assert [x.tolist() for x in models[2]([1])] == [[-1.0], [1.0]]
    assert block.eval(2, tolist=True) == -2.0


SINGLE = "takes a batch of examples, not a single example"


@pytest.mark.parametrize("kind", [tuple, list, np.array, torch.tensor])
@pytest.mark.parametrize("num_workers", [0, 1])
def test_any_sequence_is_a_batch_unless_it_is_an_example(kind: Any, num_workers: int) -> None:
    model = td.compile(td.Vector(2) >> neg())
    rows = [[1.0, 2.0], [3.0, 4.0]]
    assert model(model.lower(kind(rows), num_workers)).tolist() == [[-1, -2], [-3, -4]]
    assert model(kind([[1.0, 2.0]])).tolist() == [[-1, -2]]
    goes_wrong((lambda: model.lower(kind([1.0, 2.0]), num_workers), TypeError, SINGLE))
    with pytest.raises(td.BlockTypeError, match=r"has the shape \[3\]"):
        model.lower(kind([[1.0, 2.0, 3.0]]), num_workers)
    numbers_of = td.compile(numbers() >> td.Sum())
    assert numbers_of(kind(rows)).tolist() == [3.0, 7.0]
    goes_wrong((lambda: numbers_of(kind([1.0, 2.0])), TypeError, SINGLE))


def test_a_bad_example_is_no_single_one() -> None:
    model = td.compile({"a": td.Scalar()})
    goes_wrong((lambda: model([{"a": 1}, {"b": 1}]), KeyError, "no key 'a'"))
    assert model(())[0].shape == (0,)


def mean() -> td.CompiledModel:
    return td.compile(numbers() >> td.Mean())


def test_a_model_without_parameters_has_a_dtype() -> None:
    assert mean()([[0.1, 0.2]]).dtype == torch.float32
    third = torch.tensor([1 / 3], dtype=torch.float64)
    torch.testing.assert_close(mean().double()([[1, 0, 0]]), third, rtol=1e-15, atol=0)
    assert mean().double().float()([[0.1]]).dtype == torch.float32
    wide = td.compile((td.Scalar("float64"), td.Scalar()))
    assert [x.dtype for x in wide([(1, 2)])] == [torch.float64, torch.float32]
    assert [x.dtype for x in wide.float()([(1, 2)])] == [torch.float32] * 2
    assert not mean().state_dict()
    assert mean().bfloat16()([[0.5]]).dtype == torch.bfloat16


def test_verify_is_exact_without_parameters_and_leaves_the_model_as_it_is() -> None:
    model = mean()
    assert td.verify(model, [[0.1, 0.2, 0.3], [], [0.7]]) < 1e-12
    assert model([[0.1, 0.2]]).dtype == torch.float32


def test_verify_takes_outputs_that_nothing_learned_is_in() -> None:
    both = td.AllOf(nn.Linear(3, 2), td.Function(torch.tanh)) >> td.GetItem(1)
    assert td.verify(td.compile(td.Vector(3) >> both), [[1, 2, 3], [4, 5, 6]]) < 1e-12


def centred(x: Tensor) -> Tensor:
    return x - x.mean(0)


BATCH_DEPENDENT = {
    "leaf": td.Vector(2) >> td.Function(centred),
    "inner": td.Map(td.Vector(2)) >> td.Sum() >> td.Function(centred),
    "pair": (td.Vector(2), td.Vector(2)) >> td.Function(lambda x, y: x + y / y.norm()),
    "metric": td.Vector(2) >> td.Function(centred) >> td.Metric("m"),
    "ragged": td.Map(td.Vector(2) >> td.Function(centred)),
}


@pytest.mark.parametrize("share", [False, True])
@pytest.mark.parametrize("name", BATCH_DEPENDENT)
def test_verify_sees_functions_that_look_at_other_examples(name: str, share: bool) -> None:
    model = td.compile(BATCH_DEPENDENT[name], ragged=True, share=share)
    rows = [[1.0, 2.0], [3.0, 5.0]]
    examples = [rows, [[2.0, 2.0], [4.0, 1.0]]] if name in ("inner", "pair", "ragged") else rows
    assert td.verify(model, examples) > 0.1
    assert (model.run, model.share) == ("auto", share)


@pytest.mark.parametrize("share", [False, True])
def test_verify_joins_the_results_of_examples(share: bool) -> None:
    scaled = (
        td.Vector(2) >> td.FC(3) >> td.Function(lambda x: x / (1 + x.norm(dim=1, keepdim=True)))
    )
    block = td.Map(scaled >> td.AllOf(td.Identity(), td.Metric("m"), td.Identity()))
    model = td.compile((block, td.Map(td.Map(td.Scalar("int64")))), ragged=True, share=share)
    examples = [([[1, 2], [3, 4]], [[1], []]), ([], []), ([[1, 2]], [[2, 3]])]
    assert td.verify(model, examples) < 1e-12
    assert td.verify(model, []) == 0
