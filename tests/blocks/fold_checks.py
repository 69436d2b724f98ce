"""The harness of TensorFlow Fold's own tests: every case as a depth, a value and a batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import repeat
from typing import Any, TypeAlias

import numpy as np
import pytest
from block_checks import ENGINES, pick
from torch import Tensor

from graphfold import blocks as td
from graphfold.errors import GraphfoldError

#: name -> (what makes the block, the example, its value, its depth or None).
Cases: TypeAlias = Mapping[str, tuple[Callable[[], Any], Any, Any, int | None]]
#: name -> (what goes wrong, Python's kind of error, words of the message in their order).
Faults: TypeAlias = Mapping[str, tuple[Callable[[], Any], type[Exception], str]]

P, V, scalar = td.PyObjectType(), td.VoidType(), td.TensorType(())


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
        ragged = "SequenceType" in repr(block.output_type)
        if ragged:
            refused(block, "root output may not contain sequences")
        in_batches(td.compile(block, ragged=ragged), example, expected, metrics)


def in_batches(model: td.CompiledModel, example: Any, expected: Any, metrics: bool) -> None:
    """Checks that every engine gives the value for each of two examples."""
    output, values = expected if metrics else (expected, {})
    for engine in ENGINES:
        model.engine = engine
        result = model.run([example, example])
        for number in range(2):
            row_is(pick(result.output, number), output)
        got = {name: value.tolist() for name, value in result.metrics.items()}
        exactly(got, {name: value * 2 for name, value in values.items()})


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


def row_is(row: Any, expected: Any) -> None:
    """Checks one example of a batch, in which a sequence of tensors is one tensor."""
    if isinstance(row, Tensor):
        exactly(row.tolist(), expected)
    elif isinstance(expected, list) and not isinstance(row, list):
        for position, item in enumerate(expected):
            row_is(pick(row, position), item)
    elif isinstance(expected, (list, tuple)):
        assert type(row) is type(expected)
        for one, other in zip(row, expected, strict=True):
            row_is(one, other)
    else:
        assert row is expected is None


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
