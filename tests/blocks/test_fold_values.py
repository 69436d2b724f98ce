"""Values and depths of blocks, as TensorFlow Fold's tests have them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from itertools import repeat
from typing import Any, TypeAlias

import numpy as np
import pytest
import torch
from block_checks import V, add, array, hold, neg, numbers, sub, times, wired
from torch import Tensor, nn

from graphfold import blocks as td

T = td.TensorType

#: What makes the block, an example, its value, the longest chain of calls.
Cases: TypeAlias = list[tuple[Callable[[], Any], Any, Any, int]]


def pair() -> Any:
    return td.Pipe((td.Scalar(), td.Scalar()))


def endless() -> td.Block:
    return td.Scalar() >> td.Broadcast()


def sign() -> td.Block:
    return td.OneOf(lambda x: x > 0, {True: td.Scalar(), False: td.Scalar() >> neg()})


def with_pre_block() -> td.Block:
    cases = {"a": td.GetItem("bar") >> td.Scalar(), "b": td.GetItem("baz") >> td.Scalar()}
    return td.OneOf(lambda x: x["key"], cases, td.GetItem("val"))


def mixed() -> td.Block:
    cases = (td.Function(torch.square), neg())
    one_of = td.OneOf(key_fn=td.GetItem(0), case_blocks=cases, pre_block=td.GetItem(1))
    return (td.Identity(), td.Scalar("int32")) >> one_of


def numbered() -> td.Block:
    cases = (array(10), array(20), array(30))
    return td.OneOf(td.GetItem("index"), cases, pre_block=td.Void())


def connected() -> td.Composition:
    s, f, g, h = td.Scalar(), times(2), times(3), add()
    composition = td.Composition([s, f, g, h])
    composition.connect(composition.input, s)
    composition.connect(s, f)
    composition.connect(s, g)
    composition.connect((f, g), h)
    composition.connect(h, composition.output)
    return composition


def scopes() -> td.Composition:
    outer = td.Composition()
    with outer.scope():
        inner = td.Composition().reads(td.Scalar().reads(outer.input))
        with inner.scope():
            inner.output.reads(times(2).reads(inner.input), times(3).reads(inner.input))
        outer.output.reads(add().reads(inner))
    return outer


def sliced(c: td.Composition) -> None:
    c.set_input_type(V)
    items = td.AllOf(*[np.array(n) for n in range(5)]).reads(c.input)
    c.output.reads(add().reads(items[1:-1:2]))


def both_ends(c: td.Composition) -> None:
    items = td.AllOf(td.Scalar(), td.OneHot(9), td.Scalar("int8")).reads(c.input)
    c.output.reads(items[-1], items[0])


def joined(c: td.Composition) -> None:
    first, second = td.GetItem(0).reads(c.input), td.GetItem(1).reads(c.input)
    c.output.reads(
        td.Scalar().reads(td.InputTransform(lambda x: 10 * x[0] + x[1]).reads(first, second))
    )


def first_input() -> td.Block:
    return (td.Scalar("int32"), td.Scalar()) >> wired(lambda c: c.output.reads(c.input[0]))


def weighed() -> td.Block:
    """2 a + 3 b, wired by the keys of a record."""
    composition = td.Composition()
    with composition.scope():
        record = td.Record({"b": td.Scalar(), "a": td.Scalar()}).reads(composition.input)
        double, triple = times(2).reads(record["a"]), times(3).reads(record["b"])
        composition.output.reads(add().reads(double, triple))
    return composition


def swapped(x: Tensor, y: tuple[Tensor, Tensor]) -> Any:
    return (y[1], x), y[0]


def both(left: tuple[Tensor, Tensor], right: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    return left[0] + right[0], left[1] * right[1]


def vectors(block: td.Block) -> td.Block:
    return td.Map(td.Vector(2)) >> block


def absolute() -> td.Block:
    return td.Map(td.Scalar() >> td.Function(torch.abs))


def doubling() -> td.Block:
    return td.Function(lambda value, x: 2 * value + x)


def counted(value: Any, x: Tensor) -> Any:
    return value[0] + x, value[1] + 1


ROWS = [[1, 5], [2, 3], [0, 4]]

# fmt: off
CHOICES: Cases = [
    (sign, 3, 3.0, 0),
    (sign, -3, 3.0, 1),
    (with_pre_block, {"key": "a", "val": {"bar": 42, "baz": 0}}, 42.0, 0),
    (mixed, (0, 2), 4, 1),
    (lambda: td.OneOf(len, [(1, td.Length()), (2, td.Scalar())]), "x", 1.0, 0),
    (lambda: td.OneOf(type, {int: td.Scalar(), list: td.Length(), type(None): td.Length()}),
     [3, 4], 2.0, 0),
    # Fold's manual says so; its code has no such case.
    (numbered, {"index": -1}, 30.0, 0),
    (lambda: td.Optional(td.Vector(4)), [1, 2, 3, 4], [1.0, 2.0, 3.0, 4.0], 0),
    (lambda: td.Optional(td.Vector(4)), None, [0.0] * 4, 0),
    (lambda: td.Optional(td.Scalar(), array(42)), 6, 6.0, 0),
    (lambda: td.Optional(td.Length(), array(42)), "", 0.0, 0),
    (lambda: td.Map(td.Optional(td.Scalar("int32"))), [1, None], [1, 0], 0),
    (lambda: td.Optional(td.Void()), 3, None, 0),
]

COMPOSITIONS: Cases = [
    (connected, 5, 25.0, 2),
    (scopes, 1, 5.0, 2),
    (lambda: wired(sliced), None, 4, 1),
    (lambda: wired(both_ends), 4, (4, 4.0), 0),
    (first_input, (42, 0.0), 42, 0),
    (lambda: wired(joined), (1, 2), 12.0, 0),
    (lambda: td.Pipe(td.Scalar(), times(2), neg()), 3, -6.0, 2),
    (lambda: td.Scalar() >> (times(2) >> neg()), 3, -6.0, 2),
    (lambda: td.Scalar() >> td.AllOf(neg(), neg()) >> (neg(), neg()), 3, (3.0, 3.0), 2),
    (lambda: {"a": td.Scalar(), "b": td.Scalar()} >> add(), {"a": 1, "b": 2}, 3.0, 1),
]

CONCATENATED: Cases = [
    (lambda: {"a": td.Vector(1), "b": td.Vector(4), "c": td.Vector(1)} >> td.Concat(),
     {"a": [1], "b": [2, 3, 4, 5], "c": [6]}, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 1),
    (lambda: td.AllOf(td.Tensor([1, 3]), td.Tensor([1, 3])) >> td.Concat(concat_dim=0),
     [[1, 2, 3]], [[1.0, 2.0, 3.0], [1.0, 2.0, 3.0]], 1),
    (lambda: td.AllOf(td.Tensor([1, 3]), td.Tensor([1, 3])) >> td.Concat(concat_dim=1),
     [[1, 2, 3]], [[1.0, 2.0, 3.0, 1.0, 2.0, 3.0]], 1),
    (lambda: td.AllOf(td.Vector(2)) >> td.Concat(), [1, 2], [1.0, 2.0], 1),
    (lambda: ((td.Scalar(), (td.Vector(2), td.Scalar())), td.Scalar()) >> td.Concat(0, True),
     ((1, ([2, 3], 4)), 5), [1.0, 2.0, 3.0, 4.0, 5.0], 1),
    (lambda: td.Zeros([]), None, 0.0, 0),
    (lambda: td.Zeros(([], ([1], ([],)))), None, (0.0, ([0.0], (0.0,))), 0),
    (lambda: td.Zeros((V, T(()))), None, (None, 0.0), 0),
    (lambda: td.Zeros(td.SequenceType(T(()))), None, [], 0),
    (lambda: td.Zeros(([], td.SequenceType(T(())))), None, (0.0, []), 0),
    # In Fold zeros of the empty tuple are void.
    (lambda: td.Zeros(()), None, (), 0),
]

FUNCTIONS: Cases = [
    (lambda: td.Scalar() >> times(2), 21, 42.0, 1),
    (lambda: (td.Vector(1), (td.Vector(2), td.Vector(3))) >> td.Function(swapped),
     ([1], ([2, 3], [4, 5, 6])), (([4.0, 5.0, 6.0], [1.0]), [2.0, 3.0]), 1),
    (lambda: td.Vector(2) >> td.Function(lambda x: [x, x.int()]), [1, 2], ([1.0, 2.0], [1, 2]), 1),
    (lambda: td.Scalar("int64") >> neg(), 2**60, -(2**60), 1),
]

TENSORS: Cases = [
    (td.Scalar, 42, 42.0, 0),
    (lambda: td.Scalar("int32"), 3.0, 3, 0),
    (lambda: td.Scalar("float16"), 65504, 65504.0, 0),
    (lambda: td.Scalar("bool"), True, True, 0),
    (lambda: td.Vector(3), range(3), [0.0, 1.0, 2.0], 0),
    (lambda: td.Vector(2, "int32"), (1, 2), [1, 2], 0),
    (lambda: td.Tensor([2, 2], "int32"), [[1, 2], [3, 4]], [[1, 2], [3, 4]], 0),
    (lambda: td.Tensor([1, 2]), np.array([[1, 2]]), [[1.0, 2.0]], 0),
    (lambda: td.FromTensor(torch.tensor([1, 2, 3])), None, [1, 2, 3], 0),
    (lambda: td.FromTensor(nn.Parameter(torch.ones(2))), None, [1.0, 1.0], 0),
    (lambda: array([3.0]) >> times(2), None, [6.0], 1),
    (lambda: td.OneHot(100, 102), 100, [1.0, 0.0], 0),
    (lambda: td.OneHot(100, 103), 101, [0.0, 1.0, 0.0], 0),
    # In Fold a stop of 0 counts as not given.
    (lambda: td.OneHot(-2, 0), -2, [1.0, 0.0], 0),
    (lambda: td.OneHot(2, dtype="int32"), 0, [1, 0], 0),
    (lambda: td.OneHotFromList([5, 9, 6]), 9, [0.0, 1.0, 0.0], 0),
    (lambda: td.OneHotFromList([37, 23], strict=False), 100, [0.0, 0.0], 0),
    (lambda: td.OneHotFromList(["a", ("b", 1)], "int32"), ("b", 1), [0, 1], 0),
]

ITEMS: Cases = [
    (lambda: td.InputTransform(str), 42, "42", 0),
    (lambda: td.GetItem(1) >> td.Scalar(), [1, 2, 3], 2.0, 0),
    (lambda: td.GetItem("k") >> td.Scalar(), {"k": 3}, 3.0, 0),
    (lambda: numbers() >> td.GetItem(-1), range(10), 9.0, 0),
    (lambda: pair() >> td.GetItem(-1), (1, 2), 2.0, 0),
    (lambda: numbers() >> td.GetItem(slice(1, None)), range(3), [1.0, 2.0], 0),
    (lambda: numbers("float64") >> td.Length("int64"), [1, 2, 3], 3, 0),
    (td.Length, "abc", 3.0, 0),
    (td.Length, [], 0.0, 0),
    (lambda: pair() >> td.Length("int32"), (0, 1), 2, 0),
    (lambda: td.Record([]) >> td.Length("int32"), (), 0, 0),
    (lambda: td.Slice(stop=2), "abc", "ab", 0),
    (lambda: td.Slice(step=-1), "abc", "cba", 0),
    (lambda: numbers() >> td.Slice(step=-1), range(3), [2.0, 1.0, 0.0], 0),
    (lambda: pair() >> td.Slice(stop=0), (1, 2), (), 0),
    (lambda: (td.Scalar("int32"), td.Scalar()) >> td.Slice(step=-1), (1, 2), (2.0, 1), 0),
    (lambda: (numbers("int32"), td.Identity()) >> td.Nth(), (range(5), -1), 4, 0),
]

RECORDS: Cases = [
    (lambda: td.AllOf(td.Identity(), td.Identity()), "foo", ("foo", "foo"), 0),
    (td.Pipe, 3, 3, 0),
    (lambda: td.Record(OrderedDict([("b", td.Scalar()), ("a", td.Scalar())])) >> sub(),
     {"a": 1.0, "b": 5.0}, 4.0, 1),
    (lambda: td.Record({"b": td.Scalar(), "a": td.Scalar()}) >> sub(), {"a": 1, "b": 5}, -4.0, 1),
    (lambda: td.Record({0: td.Scalar()}), {0: 1, "other": "ignored"}, (1.0,), 0),
    (weighed, {"a": 1.0, "b": 5.0}, 17.0, 2),
    (lambda: td.Record([]), (), (), 0),
    (lambda: {"a": td.Map({"b": td.Scalar(), "c": td.Scalar()}), "d": td.Vector(3)},
     {"a": [{"b": 0, "c": 1}], "d": [2, 3, 4]}, ([(0.0, 1.0)], [2.0, 3.0, 4.0]), 0),
    (lambda: pair() >> td.Record((neg(), times(2))), (1, 2), (-1.0, 4.0), 1),
    # Fold looks keys up in the tuple, which fails; here the order decides.
    (lambda: pair() >> td.Record(OrderedDict(y=neg(), x=times(2))), (1, 2), (-1.0, 4.0), 1),
    (lambda: td.Scalar() >> td.AllOf(), -3, None, 0),
    (lambda: td.Scalar() >> td.AllOf(neg()), -3, (3.0,), 1),
    (lambda: td.Scalar() >> td.AllOf(neg(), td.Function(lambda x: x.unsqueeze(1))),
     3, (-3.0, [3.0]), 1),
    (lambda: td.AllOf(td.Scalar(), array([1])), 3, (3.0, [1.0]), 0),
    (lambda: numbers() >> td.Map(td.AllOf(td.Identity(), neg())),
     [1, 2], [(1.0, -1.0), (2.0, -2.0)], 1),
]

REDUCTIONS: Cases = [
    (lambda: numbers() >> td.Reduce(add(), array(10)), [], 10.0, 0),
    (lambda: numbers() >> td.Reduce(add()), [], 0.0, 0),
    (lambda: numbers() >> td.Reduce(add()), range(7), 21.0, 3),
    (lambda: td.Map(td.AllOf(td.Scalar(), td.Scalar())) >> td.Reduce(td.Function(both)),
     [1, 2, 3, 4], (10.0, 24.0), 2),
    (lambda: vectors(td.Sum()), ROWS, [3.0, 12.0], 2),
    (lambda: vectors(td.Min()), ROWS, [0.0, 3.0], 2),
    (lambda: vectors(td.Max()), ROWS, [2.0, 5.0], 2),
    (lambda: vectors(td.Mean()), ROWS, [1.0, 4.0], 3),
    (lambda: td.Map(td.Tensor([2, 3])) >> td.Mean(),
     [[[1, 2, 3], [4, 5, 6]], [[3, 4, 5], [6, 7, 8]]], [[2.0, 3.0, 4.0], [5.0, 6.0, 7.0]], 2),
    (lambda: numbers("int32") >> td.Sum(), [1, 2], 3, 1),
    (lambda: numbers() >> td.Max(), [-3, -1], -1.0, 1),
    (lambda: numbers("int64") >> td.Min(), [2**60 + 1, 2**60], 2**60, 1),
    (lambda: td.Map(numbers() >> td.Sum()) >> td.Max(), [[1, 2], [], [-5]], 3.0, 3),
]

SEQUENCES: Cases = [
    (absolute, [], [], 0),
    (absolute, [-1, -2, -3], [1.0, 2.0, 3.0], 1),
    (lambda: td.Map(absolute()),
     [[-1, -2, -3], [-4, -5], [-6], []], [[1.0, 2.0, 3.0], [4.0, 5.0], [6.0], []], 1),
    (lambda: td.Map(td.OneHotFromList("ab")), "ba", [[0.0, 1.0], [1.0, 0.0]], 0),
    (numbers, {1: "a", 2: "b"}, [1.0, 2.0], 0),
]

FOLDS: Cases = [
    (lambda: numbers() >> td.Fold(add(), array(10)), [1, 2, 3], 16.0, 3),
    (lambda: numbers() >> td.Fold(add(), array(10)), [], 10.0, 0),
    (lambda: td.Fold((td.Identity(), td.Scalar()) >> td.Sum(), td.Zeros([])), (2, 3), 5.0, 2),
    (lambda: numbers() >> td.Fold(doubling(), td.Zeros([])), [1, 1, 1], 7.0, 3),
    (lambda: numbers() >> td.Fold(td.Function(counted), td.Zeros(([], []))), [3, 4], (7.0, 2.0), 2),
    (lambda: td.Map(numbers() >> td.Fold(add(), td.Zeros([]))) >> td.Fold(sub(), td.Zeros([])),
     [[1, 2], [], [4]], -7.0, 5),
]

ZIPS: Cases = [
    (lambda: {"x": numbers(), "y": numbers()} >> td.Zip(),
     {"x": [1, 2], "y": [3]}, [(1.0, 3.0)], 0),
    (lambda: {"x": numbers(), "y": td.Scalar() >> td.Broadcast()} >> td.Zip(),
     {"x": [1, 2], "y": 3}, [(1.0, 3.0), (2.0, 3.0)], 0),
    (lambda: (numbers(), numbers()) >> td.ZipWith(add()),
     ([1, 2, 3], [4, 5, 6]), [5.0, 7.0, 9.0], 1),
    (lambda: (numbers(), td.Identity()) >> td.Zip(), ([1, 2], "ab"), [(1.0, "a"), (2.0, "b")], 0),
    (lambda: numbers() >> td.AllOf(td.Identity(), td.Mean() >> td.Broadcast()) >> td.Zip()
         >> td.Map(sub()),
     [1, 2, 3], [-1.0, 0.0, 1.0], 4),
    (lambda: endless() >> td.Map(neg()), 42, repeat(-42.0), 1),
    (lambda: {"x": td.Scalar() >> td.Broadcast(), "y": td.Scalar() >> td.Broadcast()} >> td.Zip(),
     {"x": 1, "y": 2}, repeat((1.0, 2.0)), 0),
    (lambda: numbers() >> td.NGrams(1), [1, 2], [(1.0,), (2.0,)], 0),
    (lambda: numbers() >> td.NGrams(2), [1], [], 0),
    (lambda: numbers() >> td.NGrams(2), [1, 2, 3], [(1.0, 2.0), (2.0, 3.0)], 0),
    (lambda: numbers("int32") >> td.NGrams(3), range(4), [(0, 1, 2), (1, 2, 3)], 0),
]
# fmt: on

#: The order of combination, seen through subtraction.
TREES: Cases = [
    (lambda: numbers() >> td.Reduce(sub()), range(1, length + 1), value, depth)
    for length, value, depth in (
        (1, 1.0, 0),
        (3, (1.0 - 2) - 3, 2),
        (5, ((1.0 - 2) - (3 - 4)) - 5, 3),
        (7, ((1.0 - 2) - (3 - 4)) - ((5 - 6) - 7), 3),
        (8, ((1.0 - 2) - (3 - 4)) - ((5 - 6) - (7 - 8)), 3),
    )
]

TABLES = {
    "choice": CHOICES,
    "composition": COMPOSITIONS,
    "concat": CONCATENATED,
    "function": FUNCTIONS,
    "tensor": TENSORS,
    "item": ITEMS,
    "record": RECORDS,
    "reduction": REDUCTIONS,
    "map": SEQUENCES,
    "fold": FOLDS,
    "zip": ZIPS,
    "tree": TREES,
}


@pytest.mark.parametrize(
    ("table", "row"), [(name, row) for name, rows in TABLES.items() for row in range(len(rows))]
)
def test_value(table: str, row: int) -> None:
    hold(*TABLES[table][row])


@pytest.mark.parametrize("kind", [td.Sum, td.Min, td.Max, td.Mean])
@pytest.mark.parametrize(("shape", "zeros"), [([], 0.0), ([1, 2], [[0.0] * 2])])
def test_reductions_of_no_items_are_zero(kind: Any, shape: list[int], zeros: Any) -> None:
    block = td.Map(td.Tensor(shape)) >> kind()
    assert block.output_type == T(shape)
    assert block.eval([], tolist=True) == zeros
    assert td.compile(block)([[], [np.ones(shape)]])[0].tolist() == zeros
