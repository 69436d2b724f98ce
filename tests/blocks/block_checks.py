"""Checks of blocks: the value of one example, and the same from a batch by every engine."""

from __future__ import annotations

from collections.abc import Callable
from itertools import repeat
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from graphfold import blocks as td
from graphfold.errors import GraphfoldError

WAYS = ("auto", "eager", "reference")

P, V, scalar = td.PyObjectType(), td.VoidType(), td.TensorType(())


def neg() -> td.Block:
    return td.Function(torch.neg)


def add() -> td.Block:
    return td.Function(torch.add)


def sub() -> td.Block:
    return td.Function(torch.sub)


def times(factor: float) -> td.Block:
    return td.Function(lambda x: factor * x)


def squares(x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """A recurrent cell: the square of the input, and the sum of the inputs as its state."""
    return x * x, state + x[:, None]


def numbers(dtype: str = "float32") -> td.Block:
    """A sequence of scalars from a list of numbers."""
    return td.Map(td.Scalar(dtype))


def array(value: Any, dtype: str = "float32") -> np.ndarray:
    return np.array(value, dtype)


def objects() -> td.Block:
    """A block that is known to take and to give Python objects."""
    return td.Identity().set_input_type(P)


def wired(wire: Callable[[td.Composition], Any]) -> td.Composition:
    """A composition named so, which a function wires within its scope."""
    composition = td.Composition(name="wired")
    with composition.scope():
        wire(composition)
    return composition


def hold(make: Callable[[], Any], example: Any, expected: Any, depth: int | None = None) -> None:
    """Checks the depth of one example, its value, and both rows of a batch of two of them.

    Args:
        make: gives the block, or what converts to one.
        example: the example.
        expected: its value in Python's own numbers, lists and tuples; if there are metrics, a pair
            of it and a dict of their values.
        depth: the longest chain of calls; None where Fold counts otherwise.
    """
    block = td.convert_to_block(make())
    if depth is not None:
        assert block.max_depth(example) == depth
    exactly(block.eval(example, tolist=True), expected)
    kinds = list(block.output_type.terminal_types())  # type: ignore[union-attr]
    metrics = isinstance(expected, tuple) and any(isinstance(e, dict) for e in expected[1:])
    if P in kinds:
        refused(block, "root outputs must all be tensors")
    elif not kinds and not metrics:
        refused(block, "root must have at least one output or metric tensor")
    elif "BroadcastSequenceType" in repr(block.output_type):
        refused(block, "root output may not contain sequences")
    else:
        if "SequenceType" in repr(block.output_type):
            refused(block, "root output may not contain sequences")
        check_batched(block, [example, example])


def check_batched(block: td.Block, examples: list[Any]) -> None:
    """Checks that a batch gives what the examples give one by one, with every engine."""
    alone = [block.eval(example) for example in examples]
    model = td.compile(block, ragged=True)
    has_metrics = bool(model.result(examples).metrics)
    for way in WAYS:
        model.run = way
        result = model.result(examples)
        for number, value in enumerate(alone):
            output = value[0] if has_metrics else value
            same(pick(result.output, number), output)
        for name, values in result.metrics.items():
            torch.testing.assert_close(values, torch.cat([value[1][name] for value in alone]))


def pick(batched: Any, number: int) -> Any:
    """Takes one example out of a batched output; a tuple holds one batch per item."""
    if isinstance(batched, tuple):
        return tuple(pick(item, number) for item in batched)
    return None if batched is None else batched[number]


def same(batched: Any, alone: Any) -> None:
    """Checks one example of a batch against its evaluation, in which a sequence is a list."""
    if isinstance(alone, list) and not isinstance(batched, list):
        count = len(alone)
        for position in range(count):
            same(pick(batched, position), alone[position])
    elif isinstance(alone, (list, tuple)):
        assert len(batched) == len(alone)
        for one, other in zip(batched, alone, strict=True):
            same(one, other)
    elif alone is None:
        assert batched is None
    else:
        torch.testing.assert_close(batched, alone, rtol=1e-5, atol=1e-6)


def exactly(got: Any, expected: Any) -> None:
    """Checks equality, also of the classes of all parts: an int is no float, a list no tuple."""
    assert type(got) is type(expected), f"{got!r} is not {expected!r}"
    if isinstance(expected, repeat):
        exactly(next(got), next(expected))
    elif isinstance(expected, dict):
        assert list(got) == list(expected)
        exactly(list(got.values()), list(expected.values()))
    elif isinstance(expected, (list, tuple)):
        assert len(got) == len(expected), f"{got!r} is not {expected!r}"
        for one, other in zip(got, expected, strict=True):
            exactly(one, other)
    else:
        assert got == expected


def refused(block: td.Block, text: str) -> None:
    """Checks that a root cannot be compiled, and that the message shows its type."""
    with pytest.raises(TypeError, match=text) as caught:
        td.compile(block)
    assert repr(block.output_type) in str(caught.value)


def goes_wrong(fault: tuple[Callable[[], Any], type[Exception], str]) -> None:
    """Checks an error: ours, of Python's kind too, with these words."""
    make, kind, text = fault
    with pytest.raises(kind, match=text) as caught:
        make()
    assert isinstance(caught.value, GraphfoldError)
