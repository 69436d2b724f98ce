"""The value of every block on examples whose result is known, evaluated and batched."""

from __future__ import annotations

from collections import OrderedDict
from itertools import repeat
from typing import Any

import numpy as np
import pytest
import torch
from block_checks import add, check, neg, sub, times
from torch import nn

from graphfold import blocks as td

ones = np.ones([], "float32")


def chars() -> td.Block:
    return td.Map(td.InputTransform(lambda c: ord(c) - 96) >> td.Scalar("int32"))


def expression() -> td.Block:
    tree = td.ForwardDeclaration(td.PyObjectType(), td.TensorType(()))
    cases = {
        "lit": td.GetItem("val") >> td.Scalar(),
        "add": td.Record({"left": tree(), "right": tree()}) >> add(),
    }
    block = td.OneOf(lambda x: x["op"], cases)
    tree.resolve_to(block)
    return block


def lit(value: float) -> dict[str, Any]:
    return {"op": "lit", "val": value}


def plus(left: Any, right: Any) -> dict[str, Any]:
    return {"op": "add", "left": left, "right": right}


def state_and_square(x: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x * x, state + x[:, None]


def pair(x: torch.Tensor, y: Any) -> Any:
    return (y[1], x), y[0]


CASES: dict[str, tuple[Any, Any, Any, int | None]] = {
    "scalar": (lambda: td.Scalar(), 42, 42.0, 0),
    "int": (lambda: td.Scalar("int64"), 2**62 + 1, 2**62 + 1, 0),
    "bool": (lambda: td.Scalar("bool"), True, True, 0),
    "matrix": (lambda: td.Tensor([2, 2], "int32"), [[1, 2], [3, 4]], [[1, 2], [3, 4]], 0),
    "vector": (lambda: td.Vector(3), (1, 2, 3), [1.0, 2.0, 3.0], 0),
    "from_tensor": (lambda: td.FromTensor(torch.tensor([1, 2])), None, [1, 2], 0),
    "function": (lambda: td.Scalar() >> times(2), 21, 42.0, 1),
    "nested_tuples": (
        lambda: (td.Vector(1), (td.Vector(2), td.Vector(3))) >> td.Function(pair),
        ([1], ([2, 3], [4, 5, 6])),
        (([4.0, 5.0, 6.0], [1.0]), [2.0, 3.0]),
        1,
    ),
    "from_array": (lambda: np.array([3.0], "float32") >> times(2), None, [6.0], 1),
    "pipes": (lambda: td.Scalar() >> (td.Identity() >> td.Identity()), 42, 42.0, 0),
    "chars": (lambda: chars() >> td.Map(neg()), "abcd", [-1, -2, -3, -4], 1),
    "get_item": (lambda: td.GetItem(1) >> td.Scalar(), [1, 2, 3], 2.0, 0),
    "get_item_sequence": (lambda: td.Map(td.Scalar()) >> td.GetItem(-1), range(10), 9.0, 0),
    "get_item_tuple": (lambda: (td.Scalar(), td.Scalar()) >> td.GetItem(-1), (1, 2), 2.0, 0),
    "length": (lambda: td.Map(td.Scalar("int32")) >> td.Length(), [1, 2, 3], 3.0, 0),
    "length_object": (lambda: td.Length("int64"), "abc", 3, 0),
    "length_tuple": (lambda: td.Record([]) >> td.Length("int32"), (), 0, 0),
    "slice": (lambda: td.Map(td.Scalar()) >> td.Slice(step=-1), range(3), [2.0, 1.0, 0.0], 0),
    "slice_tuple": (
        lambda: (td.Scalar("int32"), td.Scalar()) >> td.Slice(step=-1),
        (1, 2),
        (2.0, 1),
        0,
    ),
    "nth": (lambda: (td.Map(td.Scalar("int32")), td.Identity()) >> td.Nth(), (range(5), 3), 3, 0),
    "record": (
        lambda: td.Record(OrderedDict([("b", td.Scalar()), ("a", td.Scalar())])) >> sub(),
        {"a": 1.0, "b": 5.0},
        4.0,
        1,
    ),
    "record_sorted": (
        lambda: td.Record({"b": td.Scalar(), "a": td.Scalar()}) >> sub(),
        {"a": 1, "b": 5, "unused": 3},
        -4.0,
        1,
    ),
    "record_keys": (lambda: td.Record({0: td.Scalar("int32")}), {0: 42}, (42,), 0),
    "record_slice_key": (
        lambda: td.Record(
            [(0, td.Scalar()), (slice(1, 3), (td.Scalar(), td.Scalar()) >> td.Concat())]
        ),
        [1, 2, 3],
        (1.0, [2.0, 3.0]),
        1,
    ),
    "record_by_position": (
        lambda: (td.Scalar(), td.Scalar()) >> td.Record([("x", neg()), ("y", times(2))]) >> sub(),
        (1, 2),
        -5.0,
        2,
    ),
    "all_of": (
        lambda: (
            td.AllOf(td.Scalar(), td.OneHot(3, dtype="int32")) >> (td.Function(torch.square), neg())
        ),
        2,
        (4.0, [0, 0, -1]),
        1,
    ),
    "all_of_one": (lambda: td.Scalar() >> td.AllOf(neg()), -3, (3.0,), 1),
    "all_of_constants": (
        lambda: td.AllOf(td.Scalar(), np.ones(2, "float32"), ones),
        5,
        (5.0, [1.0, 1.0], 1.0),
        0,
    ),
    "void_item": (lambda: td.AllOf(td.Void(), td.Scalar()) >> td.GetItem(1), 42, 42.0, 0),
    "map": (
        lambda: td.Map(td.Map(td.Scalar() >> td.Function(torch.abs))),
        [[-1, -2, -3], [-6], []],
        [[1.0, 2.0, 3.0], [6.0], []],
        1,
    ),
    "map_empty": (lambda: td.Map(td.Scalar() >> neg()), [], [], 0),
    "map_tuple": (lambda: (td.Scalar(), td.Scalar()) >> td.Map(neg()), (3, 4), [-3.0, -4.0], 1),
    "map_pairs": (
        lambda: td.Map(td.Scalar() >> td.AllOf(td.Identity(), neg())),
        [1, 2],
        [(1.0, -1.0), (2.0, -2.0)],
        1,
    ),
    "map_objects": (lambda: td.Map(td.Identity()) >> td.Vector(2), [1, 2], [1.0, 2.0], 0),
    "fold": (
        lambda: td.Map(td.Scalar()) >> td.Fold(add(), np.array(10.0, "float32")),
        [1, 2, 3],
        16.0,
        3,
    ),
    "fold_empty": (lambda: td.Map(td.Scalar()) >> td.Fold(add(), td.Zeros([])), [], 0.0, 0),
    "fold_order": (
        lambda: td.Map(td.Scalar()) >> td.Fold(td.Function(lambda s, x: 2 * s + x), td.Zeros([])),
        [1, 2, 3],
        11.0,
        3,
    ),
    "fold_objects": (
        lambda: td.Fold((td.Identity(), td.Scalar()) >> td.Sum(), td.Zeros([])),
        (2, 3),
        5.0,
        None,
    ),
    "rnn": (
        lambda: (
            (td.Map(td.Scalar()), td.Vector(2))
            >> td.RNN(td.Function(state_and_square), initial_state_from_input=True)
        ),
        ([1, 2, 3, 4], [0, 0]),
        ([1.0, 4.0, 9.0, 16.0], [10.0, 10.0]),
        4,
    ),
    "rnn_empty": (
        lambda: (
            (td.Map(td.Scalar()), td.Vector(2))
            >> td.RNN(td.Function(state_and_square), initial_state_from_input=True)
        ),
        ([], [0, 0]),
        ([], [0.0, 0.0]),
        0,
    ),
    "reduce_3": (lambda: td.Map(td.Scalar()) >> td.Reduce(sub()), [1, 2, 3], -4.0, 2),
    "reduce_4": (lambda: td.Map(td.Scalar()) >> td.Reduce(sub()), [1, 2, 3, 4], 0.0, 2),
    "reduce_5": (lambda: td.Map(td.Scalar()) >> td.Reduce(sub()), [1, 2, 3, 4, 5], -5.0, 3),
    "reduce_6": (lambda: td.Map(td.Scalar()) >> td.Reduce(sub()), range(1, 7), 1.0, 3),
    "reduce_7": (lambda: td.Map(td.Scalar()) >> td.Reduce(sub()), range(1, 8), 8.0, 3),
    "reduce_1": (lambda: td.Map(td.Scalar()) >> td.Reduce(sub()), [5], 5.0, 0),
    "reduce_0": (
        lambda: td.Map(td.Scalar()) >> td.Reduce(add(), np.array(10.0, "float32")),
        [],
        10.0,
        0,
    ),
    "reduce_zeros": (lambda: td.Map(td.Vector(2)) >> td.Reduce(add()), [], [0.0, 0.0], 0),
    "sum": (lambda: td.Map(td.Vector(2)) >> td.Sum(), [[1, 5], [2, 3], [0, 4]], [3.0, 12.0], 2),
    "min": (lambda: td.Map(td.Vector(2)) >> td.Min(), [[1, 5], [2, 3], [0, 4]], [0.0, 3.0], 2),
    "max": (lambda: td.Map(td.Vector(2)) >> td.Max(), [[1, 5], [2, 3], [0, 4]], [2.0, 5.0], 2),
    "mean": (lambda: td.Map(td.Vector(2)) >> td.Mean(), [[1, 5], [2, 3], [0, 4]], [1.0, 4.0], 3),
    "mean_tuple": (lambda: (td.Scalar(), td.Scalar()) >> td.Mean(), (0, 6), 3.0, 2),
    "negative_max": (lambda: td.Map(td.Scalar()) >> td.Max(), [-3, -1], -1.0, 1),
    "int_sum": (lambda: td.Map(td.Scalar("int64")) >> td.Sum(), [2**60, 1], 2**60 + 1, 1),
    "int_max": (lambda: td.Map(td.Scalar("int32")) >> td.Max(), [-3, -1], -1, 1),
    "one_of": (
        lambda: td.OneOf(lambda x: x > 0, {True: td.Scalar(), False: td.Scalar() >> neg()}),
        -3,
        3.0,
        1,
    ),
    "one_of_pre": (
        lambda: td.OneOf(
            lambda x: x["key"],
            {"a": td.GetItem("bar") >> td.Scalar(), "b": td.GetItem("baz") >> td.Scalar()},
            td.GetItem("val"),
        ),
        {"key": "a", "val": {"bar": 42, "baz": 0}},
        42.0,
        0,
    ),
    "one_of_mixed": (
        lambda: (
            (td.Identity(), td.Scalar("int32"))
            >> td.OneOf(td.GetItem(0), (td.Function(torch.square), neg()), td.GetItem(1))
        ),
        (1, 2),
        -2,
        1,
    ),
    "one_of_negative": (
        lambda: td.OneOf(td.GetItem("i"), (td.Scalar() >> neg(), td.Scalar()), td.GetItem("x")),
        {"i": -1, "x": 2},
        2.0,
        0,
    ),
    "optional_some": (lambda: td.Optional(td.Vector(2)), [1, 2], [1.0, 2.0], 0),
    "optional_none": (lambda: td.Optional(td.Vector(2)), None, [0.0, 0.0], 0),
    "optional_falsy": (lambda: td.Optional(td.Scalar(), np.array(42.0, "float32")), 0, 0.0, 0),
    "optional_nested": (
        lambda: td.Optional({"a": td.Map({"b": td.Scalar(), "c": td.Scalar()}), "d": td.Vector(1)}),
        None,
        ([], [0.0]),
        0,
    ),
    "one_hot": (lambda: td.OneHot(100, 103), 101, [0.0, 1.0, 0.0], 0),
    "one_hot_negative": (lambda: td.OneHot(-2, 0), -1, [0.0, 1.0], 0),
    "one_hot_list": (lambda: td.OneHotFromList([5, 9, 6]), 9, [0.0, 1.0, 0.0], 0),
    "one_hot_loose": (lambda: td.OneHotFromList(["a", "b"], "int32", strict=False), "z", [0, 0], 0),
    "concat": (
        lambda: {"a": td.Scalar(), "b": td.Vector(2), "c": td.Scalar()} >> td.Concat(),
        {"a": 1, "b": [2, 3], "c": 4},
        [1.0, 2.0, 3.0, 4.0],
        1,
    ),
    "concat_dim": (
        lambda: (td.Tensor([1, 2]), td.Tensor([1, 2])) >> td.Concat(concat_dim=1),
        ([[1, 2]], [[3, 4]]),
        [[1.0, 2.0, 3.0, 4.0]],
        1,
    ),
    "concat_flatten": (
        lambda: (
            td.AllOf(td.AllOf(td.Scalar(), td.Scalar()), td.AllOf(td.Scalar()))
            >> td.Concat(flatten=True)
        ),
        42,
        [42.0] * 3,
        1,
    ),
    "zeros": (lambda: td.Zeros(([2], [1, "int32"])), None, ([0.0, 0.0], [0]), 0),
    "zeros_void": (lambda: td.Zeros((td.VoidType(), [])), None, (None, 0.0), 0),
    "zip": (
        lambda: {"x": td.Map(td.Scalar()), "y": td.Map(td.Scalar())} >> td.Zip(),
        {"x": [1, 2], "y": [3]},
        [(1.0, 3.0)],
        0,
    ),
    "zip_broadcast": (
        lambda: {"x": td.Scalar() >> td.Broadcast(), "y": td.Map(td.Scalar())} >> td.ZipWith(add()),
        {"x": 2, "y": [1, 2, 3]},
        [3.0, 4.0, 5.0],
        1,
    ),
    "centre": (
        lambda: (
            td.Map(td.Scalar())
            >> td.AllOf(td.Identity(), td.Mean() >> td.Broadcast())
            >> td.ZipWith(sub())
        ),
        [1, 2, 3],
        [-1.0, 0.0, 1.0],
        4,
    ),
    "ngrams": (lambda: td.Map(td.Scalar()) >> td.NGrams(2), [1, 2, 3], [(1.0, 2.0), (2.0, 3.0)], 0),
    "ngrams_short": (lambda: td.Map(td.Scalar()) >> td.NGrams(2), [1], [], 0),
    "expression": (expression, plus(plus(lit(3), lit(5)), lit(2)), 10.0, 2),
    "metric": (
        lambda: td.Map(td.Scalar() >> td.AllOf(td.Metric("x"), td.Identity())),
        [1, 2],
        ([(None, 1.0), (None, 2.0)], {"x": [1.0, 2.0]}),
        1,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_value(name: str) -> None:
    make, example, expected, depth = CASES[name]
    block = make()
    check(
        block if isinstance(block, td.Block) else td.convert_to_block(block),
        example,
        expected,
        depth,
    )


def test_endless_sequences_are_repeats() -> None:
    block = td.Scalar() >> td.Broadcast() >> td.Map(neg()) >> td.NGrams(2)
    value = block.eval(42, tolist=True)
    assert isinstance(value, repeat)
    assert next(value) == (-42.0, -42.0)


def test_python_objects_pass_through() -> None:
    thing = {"a": 1}
    assert td.Identity().eval(thing) is thing
    assert td.InputTransform(str).eval(42) == "42"
    assert td.Slice(stop=2).eval("abc") == "ab"
    assert td.AllOf(td.Identity(), td.Identity()).eval("foo") == ("foo", "foo")
    assert td.Pipe().eval(3) == 3
    assert (td.Scalar() >> td.AllOf()).eval(3) is None


def test_trees_may_be_deeper_than_pythons_stack() -> None:
    tree = lit(1)
    for _ in range(3000):
        tree = plus(tree, lit(1))
    block = expression()
    assert block.eval(tree, tolist=True) == 3001.0
    assert td.compile(block)([tree]).tolist() == [3001.0]


def test_recursive_says_the_same_as_a_declaration() -> None:
    @td.recursive(output_type=[])
    def sums(sums: td.Block) -> td.Block:
        return td.OneOf(lambda x: isinstance(x, list), (td.Scalar(), td.Map(sums) >> td.Sum()))

    check(sums, [1, [2, 3, []], [[4]]], 10.0)


def test_compose_reads_like_a_function() -> None:
    double = times(2)
    pair = (td.Scalar(), td.Scalar())

    @td.compose
    def model(x: Any) -> Any:
        return add()(double(x[0]), x[1]), double(double(x[1]))

    check(pair >> model, (3, 5), (11.0, 20.0), 2)


def test_a_block_in_two_places_shares_its_weights() -> None:
    layer = nn.Linear(2, 2)
    model = td.compile({"a": td.Vector(2) >> layer, "b": td.Vector(2) >> layer} >> td.Concat())
    assert [name for name, _ in model.named_parameters()] == [
        "blocks.Linear.weight",
        "blocks.Linear.bias",
    ]
    batch = model.batch([{"a": [1, 2], "b": [3, 4]}] * 3)
    assert [t.name for t in batch.dag.schema.types] == ["example", "Linear(x)", "concat(0:0,1:0)"]
    assert len(batch.schedule.passes[0].groups) == 3
