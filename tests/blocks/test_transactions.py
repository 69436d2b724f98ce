"""A connection that is refused leaves no trace: the next one that fits is made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from block_checks import add, neg
from torch import nn

from graphfold import blocks as td
from graphfold.blocks.inference.typed import append, assign, transaction

Make = Callable[[], Any]

#: name -> (what is refused, by which block, what fits, an example)
REFUSED: dict[str, tuple[Make, Make, Make, Any]] = {
    "sequence": (lambda: td.Map(td.Scalar()), neg, td.Scalar, 3),
    "layer": (td.Scalar, lambda: td.FC(2), lambda: td.Vector(3), [1, 2, 3]),
    "embedding": (td.Scalar, lambda: td.Embedding(3, 2), lambda: td.Scalar("int64"), 1),
    "concat": (
        lambda: td.Record((td.Vector(2, "int64"), td.Vector(3))),
        td.Concat,
        lambda: td.Record((td.Vector(2), td.Vector(2))),
        ([1, 2], [3, 4]),
    ),
    "map": (
        lambda: td.Map(td.Scalar()),
        lambda: td.Map(nn.Linear(2, 3)),
        lambda: td.Map(td.Vector(2)),
        [[1, 2], [3, 4]],
    ),
    "two": (
        lambda: td.Record((td.Vector(2), td.Vector(3))),
        add,
        lambda: td.Record((td.Vector(2), td.Vector(2))),
        ([1, 2], [3, 4]),
    ),
    "pipe": (
        td.Scalar,
        lambda: td.Identity() >> td.AllOf(td.Identity(), td.FC(2)),
        lambda: td.Vector(3),
        [1, 2, 3],
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refused_connection_leaves_no_trace(name: str) -> None:
    wrong, block, right, example = REFUSED[name]
    reader, source = block(), right()
    for _ in range(2):
        with pytest.raises(td.BlockTypeError) as caught:
            wrong() >> reader
    assert "already" not in str(caught.value)
    assert (reader.input_type, reader.output_type) == (block().input_type, block().output_type)
    td.compile(source >> reader, ragged=True)([example])


def test_zeros_of_a_refused_type_are_forgotten() -> None:
    reduce = td.Reduce(td.Function(lambda a, b: a + b.sum(1, keepdim=True)))
    with pytest.raises(td.BlockTypeError):
        td.Map(td.Scalar()) >> reduce
    assert reduce.default_block is None
    assert (td.Map(td.Vector(2)) >> reduce).eval([], tolist=True) == [0.0, 0.0]


def test_a_refused_read_leaves_no_child() -> None:
    composition, nth = td.Composition(), td.Nth()
    with composition.scope():
        number = td.Scalar().reads(composition.input)
        with pytest.raises(td.BlockTypeError):
            nth.reads(number)
        composition.output.reads(number)
    assert nth not in composition.children
    assert composition.eval(3, tolist=True) == 3.0


def test_a_composition_that_fails_has_no_children() -> None:
    layer = td.FC(2)

    def broken(x: Any) -> Any:
        layer(td.Vector(3)(x))
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        td.compose(broken)
    assert layer.input_type is None
    assert (td.Vector(5) >> layer).output_type == td.TensorType([2])


def test_a_root_that_is_refused_may_become_a_part() -> None:
    block = td.Identity()
    with pytest.raises(td.BlockTypeError, match="root outputs must all be tensors"):
        td.compile(block)
    assert (td.Scalar() >> block).eval(3, tolist=True) == 3.0


def test_a_refused_part_does_not_belong_to_the_whole() -> None:
    start = td.Identity()
    with pytest.raises(td.BlockTypeError):
        td.Fold(td.Function(nn.Linear(1, 1)), start)
    assert start.input_type is None
    assert (td.Vector(2) >> start).eval([1, 2], tolist=True) == [1.0, 2.0]


def test_only_the_inner_part_that_failed_is_taken_back() -> None:
    known, items = {"a": 1}, [1]

    @transaction()
    def fail() -> None:
        assign(known, "a", 5)
        assign(known, "c", 3)
        append(items, 2)
        raise KeyError

    with transaction():
        assign(known, "b", 2)
        with pytest.raises(KeyError):
            fail()
        append(items, 7)
    assert (known, items) == ({"a": 1, "b": 2}, [1, 7])
    assign(known, "a", 9)  # nothing can fail now, so nothing is noted
    assert known["a"] == 9
