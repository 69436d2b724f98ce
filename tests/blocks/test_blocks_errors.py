"""Errors: the right kind, at the right time, with both blocks and both types in the text."""

from __future__ import annotations

from collections.abc import Callable
from itertools import repeat
from typing import Any

import numpy as np
import pytest
import torch
from block_checks import add, neg
from torch import nn

from graphfold import blocks as td
from graphfold.errors import GraphfoldError

P, V = td.PyObjectType(), td.VoidType()


def composed(*pairs: Any) -> td.Composition:
    composition = td.Composition()
    for sources, block in pairs:
        composition.connect(sources, block)
    return composition


def two_connections() -> None:
    scalar = td.Scalar()
    composition = td.Composition()
    composition.connect(composition.input, scalar)
    composition.connect(composition.input, scalar)


def cycle() -> None:
    f, g = td.Identity(), td.Identity()
    f.set_input_type([])
    composition = composed((f, g), (g, f))
    composition.connect(g, composition.output)
    composition.set_input_type(V)
    composition.eval(None)


def unused() -> None:
    scalar, f = td.Scalar(), neg()
    composition = td.Composition()
    composition.connect(composition.input, scalar)
    composition.connect(scalar, f)
    composition.connect(scalar, composition.output)
    composition.eval(3)


def unconnected() -> None:
    scalar, other = td.Scalar(), td.Scalar()
    composition = td.Composition([other])
    composition.connect(composition.input, scalar)
    composition.connect((scalar, other), composition.output)
    composition.eval(3)


def other_composition() -> None:
    td.Composition().connect(td.Composition().input, td.Scalar())


def read_output() -> None:
    composition = td.Composition()
    composition.connect(composition.output, td.Scalar())


def write_input() -> None:
    composition = td.Composition()
    composition.connect(td.Scalar(), composition.input)


def resolved_twice() -> None:
    declared = td.ForwardDeclaration()
    declared.resolve_to(td.Scalar())
    declared.resolve_to(td.Scalar())


def late_reference() -> None:
    declared = td.ForwardDeclaration()
    declared.resolve_to(td.Scalar())
    declared()


def two_metrics() -> None:
    td.compile((td.Scalar() >> td.Metric("m"), td.Vector(2) >> td.Metric("m")))


Faults = dict[str, tuple[Callable[[], Any], type[Exception], str]]

CONNECTING: Faults = {
    "shape": (lambda: td.TensorType(3), TypeError, "shape must be a tuple or list"),
    "negative": (lambda: td.TensorType([-1]), TypeError, r"\[-1\]"),
    "dtype": (lambda: td.TensorType([2], "floaty"), TypeError, "floaty"),
    "tuple_item": (lambda: td.TupleType(td.TensorType(()), 3), TypeError, r"item_types\[1\].*3"),
    "sequence": (lambda: td.SequenceType([2]), TypeError, "is not a type"),
    "no_type": (lambda: td.convert_to_type(1.5), TypeError, "1.5 to a type"),
    "name": (lambda: td.Scalar(name=3), TypeError, "name must be a string"),
    "not_a_block": (lambda: td.Map(42), TypeError, "42 cannot be converted to a block"),
    "not_a_tensor": (lambda: td.FromTensor(42), TypeError, "42 is not a tensor"),
    "not_callable": (lambda: td.Function(42), TypeError, "fn is not callable: 42"),
    "py_fn": (lambda: td.InputTransform(42), TypeError, "py_fn is not callable: 42"),
    "key_fn": (lambda: td.OneOf(42, (td.Scalar(),)), TypeError, "key_fn is not callable: 42"),
    "no_cases": (lambda: td.OneOf(len, {}), ValueError, "case_blocks must be non-empty"),
    "cases_differ": (
        lambda: td.OneOf(len, {0: td.Scalar(), 1: td.Vector(2)}),
        TypeError,
        "Type mismatch between output type",
    ),
    "both_blocks": (
        lambda: td.Map(td.Scalar(), name="source") >> td.Function(torch.neg, name="target"),
        TypeError,
        "source.*SequenceType.*target.*expected TupleType or TensorType",
    ),
    "known_type": (
        lambda: td.Map(td.Scalar(), name="source") >> td.Length().set_input_type(P),
        TypeError,
        r"source.*SequenceType.*Length.*PyObjectType.*Type mismatch between input type",
    ),
    "bad_input": (lambda: td.Length().set_input_type(V), TypeError, "bad input type VoidType"),
    "forward": (
        lambda: (td.Identity() >> td.Map(neg())).set_input_type(P),
        TypeError,
        "bad input type PyObjectType",
    ),
    "backward": (
        lambda: (td.Map(td.Identity()) >> td.Identity()).set_output_type(V),
        TypeError,
        "bad output type VoidType",
    ),
    "no_tensors": (lambda: td.Record([]) >> neg(), TypeError, "take at least one tensor input"),
    "void_input": (
        lambda: td.AllOf(td.Void(), td.Scalar()) >> add(),
        TypeError,
        "function inputs must be tensors",
    ),
    "arity": (lambda: (td.Scalar(),) * 3 >> add(), TypeError, "cannot take TupleType"),
    "returns_number": (
        lambda: td.Scalar() >> td.Function(lambda x: 42),
        TypeError,
        "42, which is not a tensor",
    ),
    "returns_scalar": (
        lambda: td.Scalar() >> td.Function(torch.sum),
        TypeError,
        "expected a batch tensor, saw a scalar",
    ),
    "returns_other": (
        lambda: td.Vector(3) >> td.Function(lambda x: x.sum(0)),
        TypeError,
        r"leading \(batch\) dimension",
    ),
    "tuple_too_short": (
        lambda: (td.Scalar(), td.Scalar()) >> td.GetItem(2),
        IndexError,
        "2 items for the item 2",
    ),
    "tuple_by_name": (lambda: (td.Scalar(),) >> td.GetItem("a"), TypeError, "the item 'a'"),
    "item_of_tensor": (
        lambda: td.Scalar() >> td.GetItem(0),
        TypeError,
        "bad input type TensorType",
    ),
    "endless_item": (
        lambda: td.Scalar() >> td.Broadcast() >> td.GetItem(0),
        TypeError,
        "infinite sequence",
    ),
    "endless_length": (
        lambda: td.Scalar() >> td.Broadcast() >> td.Length(),
        TypeError,
        "infinite sequence",
    ),
    "endless_fold": (
        lambda: td.Scalar() >> td.Broadcast() >> td.Fold(add(), td.Zeros([])),
        TypeError,
        "cannot fold over an infinite sequence",
    ),
    "endless_reduce": (
        lambda: td.Scalar() >> td.Broadcast() >> td.Sum(),
        TypeError,
        "cannot reduce an infinite sequence",
    ),
    "slice_position": (lambda: td.Slice(3), TypeError, "positional"),
    "nth_three": (
        lambda: (td.Scalar(), td.Scalar(), td.Scalar()) >> td.Nth(),
        TypeError,
        "Nth block takes 2 inputs",
    ),
    "nth_first": (
        lambda: (td.Scalar(), td.InputTransform(len)) >> td.Nth(),
        TypeError,
        "first input to Nth must be a sequence",
    ),
    "nth_second": (
        lambda: (td.Map(td.Scalar()), td.Scalar()) >> td.Nth(),
        TypeError,
        "second input to Nth must be a PyObject",
    ),
    "unordered": (
        lambda: (td.Scalar(), td.Scalar()) >> td.Record({"a": td.Identity(), "b": td.Identity()}),
        RuntimeError,
        "created with an unordered dict cannot take ordered",
    ),
    "record_length": (
        lambda: (td.Scalar(), td.Scalar()) >> td.Record((neg(), neg(), neg())),
        TypeError,
        "Record block has 3 children but 2 inputs",
    ),
    "record_kind": (lambda: td.Record(5), TypeError, "expected a list or tuple or dictionary"),
    "record_list": (lambda: td.Record([td.Scalar()]), TypeError, "pairs"),
    "record_keys": (lambda: td.Record({1: td.Scalar(), "a": td.Scalar()}), TypeError, "sorted"),
    "record_key": (lambda: td.Record({"a": td.Scalar()})["z"], KeyError, "no key 'z'"),
    "map_tensor": (lambda: td.Scalar() >> td.Map(neg()), TypeError, "bad input type TensorType"),
    "map_mixed": (
        lambda: (td.Scalar(), td.Vector(2)) >> td.Map(td.Identity()),
        TypeError,
        "tuple item types must all be equal",
    ),
    "map_nothing": (lambda: td.Record([]) >> td.Map(neg()), TypeError, "non-empty tuple"),
    "fold_start": (
        lambda: td.Fold(add(), td.Scalar()),
        TypeError,
        "Type mismatch between input type VoidType",
    ),
    "fold_vector": (
        lambda: td.Fold(td.Function(torch.neg).set_input_type([3]), td.Zeros([3])),
        TypeError,
        "combine_block has non-tuple input_type",
    ),
    "rnn_both": (
        lambda: td.RNN(td.RNNCell(nn.GRUCell(2, 2)), np.zeros(2), True),
        ValueError,
        "Cannot specify initial_state",
    ),
    "rnn_unknown": (
        lambda: td.RNN(td.Function(torch.add)),
        TypeError,
        "cannot infer initial_state type from cell",
    ),
    "rnn_tensor": (lambda: td.RNN(td.FC(3)), TypeError, "RNN cell must have tuple output type"),
    "rnn_vector": (
        lambda: (td.Vector(2), td.Vector(2)) >> td.RNN(add(), initial_state_from_input=True),
        TypeError,
        "First RNN input must be a sequence",
    ),
    "rnn_cell_input": (
        lambda: td.Vector(2) >> td.RNN(td.RNNCell(nn.GRUCell(2, 2))),
        TypeError,
        "Type mismatch between input type",
    ),
    "reduce_object": (
        lambda: td.Identity().set_input_type(P) >> td.Sum(),
        TypeError,
        "bad input type PyObjectType",
    ),
    "mean_int": (lambda: td.Map(td.Scalar("int32")) >> td.Mean(), TypeError, "floating-point"),
    "optional_object": (lambda: td.Optional(td.Identity()), TypeError, "must be tensors"),
    "one_hot_empty": (lambda: td.OneHot(5, 2), IndexError, r"range \[5, 2\) is empty"),
    "one_hot_twice": (
        lambda: td.OneHotFromList([1, 3, 3]),
        AssertionError,
        "OneHotFromList was passed duplicate elements",
    ),
    "concat_tensor": (lambda: td.Vector(2) >> td.Concat(), TypeError, "bad input type TensorType"),
    "concat_empty": (lambda: td.Record([]) >> td.Concat(), TypeError, "at least one tensor"),
    "concat_shapes": (
        lambda: (td.Vector(4), td.Tensor([3, 3])) >> td.Concat(),
        TypeError,
        "Shapes for concat don't match",
    ),
    "concat_rank": (
        lambda: (td.Vector(4), td.Vector(4)) >> td.Concat(1),
        TypeError,
        "Concat argument 0 of type .* has rank less than 2",
    ),
    "concat_dtypes": (
        lambda: (td.Scalar("int32"), td.Scalar()) >> td.Concat(),
        TypeError,
        "Cannot concat tensors of different dtypes: int32 vs. float32",
    ),
    "concat_nested": (
        lambda: ((td.Scalar(),), (td.Scalar(),)) >> td.Concat(),
        TypeError,
        "contains nested tuples",
    ),
    "zeros_object": (lambda: td.Zeros((P, [2])), TypeError, "all terminal types must be tensors"),
    "zeros_endless": (
        lambda: td.Zeros(td.BroadcastSequenceType(td.TensorType(()))),
        TypeError,
        "infinite",
    ),
    "zip_tensors": (
        lambda: (td.Scalar(), td.Scalar()) >> td.Zip(),
        TypeError,
        "item types must be sequences",
    ),
    "zip_nothing": (lambda: td.Record([]) >> td.Zip(), TypeError, "at least one input sequence"),
    "broadcast_object": (
        lambda: td.Identity().set_input_type(P) >> td.Broadcast(),
        TypeError,
        "bad output type PyObjectType",
    ),
    "ngrams": (lambda: td.NGrams(0), ValueError, "n must be positive: 0"),
    "metric_label": (
        lambda: (td.Scalar(), td.Scalar()) >> td.Metric("m"),
        TypeError,
        "expected a pyobj type",
    ),
    "metric_three": (
        lambda: (td.Scalar(), td.Scalar(), td.Scalar()) >> td.Metric("m"),
        TypeError,
        "must have 2 items",
    ),
    "read_output": (read_output, ValueError, "cannot read from composition output"),
    "write_input": (write_input, ValueError, "cannot write to composition input"),
    "other": (other_composition, ValueError, "is the input or output of a different composition"),
    "twice": (two_connections, ValueError, "input of block is already connected: <Scalar"),
    "no_scope": (
        lambda: neg().reads(td.Scalar()),
        AssertionError,
        "outside of a Composition scope",
    ),
    "output_number": (
        lambda: td.AllOf(td.Scalar(), td.Scalar())[7],
        IndexError,
        "cannot get 7-th output of block .* with 2 outputs",
    ),
    "iterated": (lambda: list(td.Scalar()), TypeError, "cannot be iterated"),
    "declared_other": (
        lambda: td.ForwardDeclaration(P, [2]).resolve_to(td.Scalar()),
        TypeError,
        "Type mismatch between output type",
    ),
    "resolved_twice": (resolved_twice, TypeError, "has already been resolved"),
    "late": (late_reference, ValueError, "has already been resolved"),
    "fc_scalar": (lambda: td.Scalar() >> td.FC(2), TypeError, "FC input shape must be 1D"),
    "fc_int": (
        lambda: td.Vector(2, "int64") >> td.FC(2),
        TypeError,
        "FC input dtype must be float",
    ),
    "embedding_vector": (
        lambda: td.Vector(2, "int64") >> td.Embedding(2, 2),
        TypeError,
        "Embeddings take scalar inputs",
    ),
    "embedding_float": (
        lambda: td.Scalar() >> td.Embedding(2, 2),
        TypeError,
        "Embeddings take integer inputs",
    ),
    "embedding_table": (lambda: td.Embedding(2, 2, np.zeros((3, 2))), ValueError, r"\[3, 2\]"),
}

CHECKING: Faults = {
    "cycle": (cycle, ValueError, "Composition cannot have cycles"),
    "no_output": (lambda: td.Composition().eval(1), TypeError, "has no output"),
    "unused": (unused, TypeError, "children have unused outputs: <Function fn='neg'>"),
    "unconnected": (unconnected, TypeError, "unconnected inputs: <Scalar"),
    "unresolved": (
        lambda: td.ForwardDeclaration(P, [], name="tree")().eval(3),
        TypeError,
        "Forward declaration tree was never resolved",
    ),
    "unknown": (
        lambda: (td.Scalar() >> td.Function(torch.neg, infer_output_type=False)).eval(1),
        TypeError,
        "Cannot determine output type for Function",
    ),
    "root_input": (lambda: td.compile(neg()), TypeError, "bad input type PyObjectType"),
    "root_nothing": (lambda: td.compile(td.Record([])), TypeError, "at least one output or metric"),
    "root_object": (
        lambda: td.compile(td.GetItem("a")),
        TypeError,
        "root outputs must all be tensors",
    ),
    "root_sequence": (
        lambda: td.compile(td.Map(td.Scalar())),
        TypeError,
        "root output may not contain sequences",
    ),
    "root_five": (lambda: td.compile(5), TypeError, "5 cannot be converted to a block"),
    "metrics": (two_metrics, TypeError, "Metric m has incompatible types"),
    "single": (
        lambda: td.compile(td.Scalar())(5),
        TypeError,
        "takes a batch of examples, not a single example",
    ),
    "single_dict": (lambda: td.compile({"a": td.Scalar()})({"a": 5}), TypeError, "single example"),
}

RUNNING: Faults = {
    "shape": (lambda: td.Vector(3).eval([1, 2]), TypeError, r"shape \[3\].*has the shape \[2\]"),
    "words": (lambda: td.Scalar().eval("abc"), ValueError, "cannot make 'abc' a tensor"),
    "key": (lambda: (td.GetItem("k") >> td.Scalar()).eval({}), KeyError, "no key 'k'"),
    "record": (lambda: td.Record({"a": td.Scalar()}).eval({"b": 1}), KeyError, "no key 'a'"),
    "position": (lambda: (td.GetItem(5) >> td.Scalar()).eval([1]), IndexError, "no item 5"),
    "empty": (lambda: (td.Map(td.Scalar()) >> td.GetItem(0)).eval([]), IndexError, "no item 0"),
    "nth": (
        lambda: ((td.Map(td.Scalar()), td.Identity()) >> td.Nth()).eval(([1], 1)),
        IndexError,
        "no item 1",
    ),
    "case": (
        lambda: td.OneOf(lambda x: "what", {"a": td.Scalar()}).eval(1),
        KeyError,
        "no case for the key 'what'.*'a'",
    ),
    "one_hot": (lambda: td.OneHot(3).eval(-1), KeyError, "no place for -1"),
    "one_hot_list": (lambda: td.OneHotFromList([1, 2]).eval(3), KeyError, "no place for 3"),
    "batched": (
        lambda: td.compile(td.OneHot(3))([1, 2, 7]),
        KeyError,
        "no place for 7",
    ),
}


@pytest.mark.parametrize("name", CONNECTING)
def test_error_when_connected(name: str) -> None:
    make, kind, text = CONNECTING[name]
    with pytest.raises(kind, match=text) as caught:
        make()
    assert isinstance(caught.value, GraphfoldError)


WHOLE: Faults = {
    "case": (
        lambda: td.OneOf(len, {2: neg()}).set_input_type(P),
        TypeError,
        "^<OneOf>: bad input type PyObjectType.* for <Function fn='neg'>",
    ),
    "connected_case": (
        lambda: td.Scalar() >> td.AllOf(td.AllOf(td.FC(2))),
        TypeError,
        r"^cannot connect <Scalar .* to <AllOf>: FC input shape must be 1D: \[\]",
    ),
    "item": (
        lambda: td.Record((td.Scalar(), neg())).set_input_type(P),
        TypeError,
        "^<Record ordered=True>: bad input type .* for <Function fn='neg'>",
    ),
    "inner": (
        lambda: td.Map(td.Record((neg(),))).set_input_type(P),
        TypeError,
        "^<Record ordered=True>: bad input type .* for <Function fn='neg'>",
    ),
    "some": (
        lambda: td.Optional(neg()),
        TypeError,
        "^some_case of Optional: bad input type .* for <Function fn='neg'>",
    ),
    "none": (
        lambda: td.Optional(td.Scalar(), td.Scalar()),
        TypeError,
        "^none_case of Optional: Type mismatch between input type VoidType.* in <Scalar",
    ),
    "start": (
        lambda: td.Fold(add(), td.Scalar()),
        TypeError,
        "^start_block of Fold: Type mismatch .*VoidType.* in <Scalar",
    ),
    "default": (
        lambda: td.Reduce(add(), 42),
        TypeError,
        "^default_block of Reduce: 42 cannot be converted to a block",
    ),
}


@pytest.mark.parametrize("name", WHOLE)
def test_an_error_in_a_part_names_the_whole(name: str) -> None:
    make, kind, text = WHOLE[name]
    with pytest.raises(kind, match=text) as caught:
        make()
    assert isinstance(caught.value, GraphfoldError)


@pytest.mark.parametrize("name", CHECKING)
def test_error_when_checked(name: str) -> None:
    make, kind, text = CHECKING[name]
    with pytest.raises(kind, match=text) as caught:
        make()
    assert isinstance(caught.value, GraphfoldError)


@pytest.mark.parametrize("name", RUNNING)
def test_error_when_an_example_runs(name: str) -> None:
    make, kind, text = RUNNING[name]
    with pytest.raises(kind, match=text) as caught:
        make()
    assert isinstance(caught.value, GraphfoldError)


def test_a_note_names_the_example() -> None:
    with pytest.raises(td.BlockKeyError) as caught:
        td.compile(td.OneHot(3))([1, 2, 7])
    assert caught.value.__notes__ == ["in example 2 (counted from 0)"]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_note_names_the_example_whoever_lowers_it(num_workers: int) -> None:
    model, examples = td.compile(td.Vector(2)), [[1, 2]] * 9 + [[0]] + [[1, 2]] * 9
    with pytest.raises(td.BlockTypeError) as caught:
        model.lower(examples, num_workers)
    assert caught.value.__notes__ == ["in example 9 (counted from 0)"]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_notes_name_block_and_example_of_an_error_of_the_user(num_workers: int) -> None:
    model = td.compile(td.Map(td.InputTransform(inverse) >> td.Scalar()) >> td.Sum())
    with pytest.raises(ZeroDivisionError) as caught:
        model.lower([[1], [2, 0]], num_workers)
    block = "in <InputTransform py_fn='inverse'> of 0"
    assert caught.value.__notes__ == [block, "in example 1 (counted from 0)"]
    with pytest.raises(ZeroDivisionError) as caught:
        td.OneOf(inverse, {1: td.Scalar()}).eval(0)
    assert caught.value.__notes__ == [block]


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("fn", [lambda x: x[2], lambda x: x + 1, lambda x: x.value])
def test_a_bad_first_example_is_named_whatever_a_function_raises_of_the_list(
    num_workers: int, fn: Callable[[Any], Any]
) -> None:
    block = td.InputTransform(lambda x: fn(x) if isinstance(x, list) else x) >> td.Scalar()
    model = td.compile(block)
    for call in (lambda: model.lower(["bad", 1.0], num_workers), lambda: model(["bad", 1.0])):
        with pytest.raises(td.BlockValueError, match="cannot make 'bad' a tensor") as caught:
            call()
        assert caught.value.__notes__ == ["in example 0 (counted from 0)"]


def test_a_single_example_is_named_whatever_a_function_raises_of_its_parts() -> None:
    model = td.compile(td.InputTransform(lambda pair: pair[1]) >> td.Scalar())
    with pytest.raises(td.BlockTypeError, match=r"not a single example: \[1, 2\]") as caught:
        model([1, 2])
    assert "not subscriptable" in str(caught.value.__cause__)


def inverse(x: float) -> float:
    return 1 / x


def test_a_key_error_is_shown_as_it_is() -> None:
    assert str(td.BlockKeyError("no key 'a'.")) == "no key 'a'."


def test_endless_values_are_no_output() -> None:
    assert isinstance((td.Scalar() >> td.Broadcast()).eval(1), repeat)
    with pytest.raises(TypeError, match="may not contain sequences"):
        td.compile(td.Scalar() >> td.Broadcast(), ragged=True)
