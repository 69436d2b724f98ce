"""Errors of blocks, one row for each message, as TensorFlow Fold's tests have them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from block_checks import P, V, add, array, goes_wrong, neg, numbers, objects, scalar, squares, wired
from torch import nn

from graphfold import blocks as td

T = td.TensorType


def numbered() -> td.Block:
    cases = (array(10), array(20), array(30))
    return td.OneOf(td.GetItem("index"), cases, pre_block=td.Void())


def wrong(examples: Any, root: Any = td.Scalar) -> Any:
    """Runs a model on something other than a list of examples."""
    return lambda: td.compile(root())(examples)


def lengths() -> td.Block:
    return td.InputTransform(len) >> td.Scalar()


def metric_of(shape: list[int]) -> td.Block:
    return td.Tensor(shape) >> td.AllOf(td.Metric("m"), td.Identity())


def pair() -> tuple[td.Block, td.Block]:
    return td.Scalar(), td.Scalar()


def endless() -> td.Block:
    return td.Scalar() >> td.Broadcast()


def unresolved() -> td.Block:
    return td.Map(td.ForwardDeclaration(P, scalar, name="missing")())


def resolved() -> td.ForwardDeclaration:
    declaration = td.ForwardDeclaration(name="done")
    declaration.resolve_to(td.Scalar())
    return declaration


def cycle() -> None:
    f, g = neg(), neg()
    composition = td.Composition([f, g])
    composition.set_input_type(V)
    f.set_input_type([])
    composition.connect(f, g)
    composition.connect(g, f)
    composition.connect(g, composition.output)
    composition.eval(None)


def unused() -> td.Composition:
    def wire(c: td.Composition) -> None:
        s = td.Scalar().reads(c.input)
        td.Function(torch.neg, name="forgotten").reads(s)
        c.output.reads(s)

    return wired(wire)


def unread_input() -> td.Composition:
    other = td.Scalar(name="lonely")
    return wired(lambda c: c.output.reads(td.Scalar().reads(c.input), other))


#: Python's kind of error -> words of the message, in their order -> what raises it.
# fmt: off
FAULTS: Mapping[type[Exception], Mapping[str, Callable[[], Any]]] = {
    TypeError: {
        "key_fn is not callable: 42": lambda: td.OneOf(42, (td.Scalar(),)),
        r"Scalar.*Vector.*OneOf.*Type mismatch between output type .*\(2,\).*\(\)":
            lambda: td.OneOf(len, {0: td.Scalar(), 1: td.Vector(2)}),
        "FromTensor.*OneOf.*Type mismatch between input type VoidType.*PyObjectType":
            lambda: td.OneOf(len, {0: td.Scalar(), 1: array(1)}),
        "Type mismatch between output type PyObjectType":
            lambda: td.OneOf(td.Scalar(), {0: td.Scalar()}),
        "bad output type PyObjectType": lambda: td.OneOf(nn.Linear(2, 2), (td.Scalar(),)),
        "all terminal types must be tensors: PyObjectType": lambda: td.Optional(td.Identity()),
        "FromTensor.*Optional.*mismatch between output type .*int64.*float32":
            lambda: td.Optional(td.Scalar(), np.array(42)),
        r"root must have at least one output or metric tensor: TupleType\(\)":
            lambda: td.compile(td.Record([])),
        r"root must have at least one output or metric tensor: VoidType\(\)":
            lambda: td.compile(td.Void()),
        r"root outputs must all be tensors: PyObjectType\(\)":
            lambda: td.compile(td.GetItem("foo")),
        r"root outputs must all be tensors: TupleType\(Tensor.*PyObjectType\(\)\)":
            lambda: td.compile((td.Scalar(), td.Identity())),
        r"root output may not contain sequences: SequenceType\(": lambda: td.compile(numbers()),
        "Type mismatch between input type PyObjectType.*TensorType":
            lambda: td.compile(td.Identity().set_input_type([3]) >> neg()),
        "Composition block has no output": lambda: td.compile((td.Scalar(), td.Composition())),
        "takes a batch of examples, not a single example: 5": wrong(5),
        "takes a batch of examples, not a single example: 'foobar'": wrong("foobar", lengths),
        "takes a batch of examples, not a single example":
            wrong((1, 2), lambda: (td.Scalar(), td.Scalar())),
        "Shapes for concat don't match":
            lambda: (td.Scalar(), td.Vector(4), td.Tensor([3, 3])) >> td.Concat(),
        "Concat argument 1 of type TensorType.* has rank less than 2.":
            lambda: (td.Tensor([1, 2]), td.Vector(4)) >> td.Concat(concat_dim=1),
        "Cannot concat tensors of different dtypes: int32 vs. float32":
            lambda: (td.Scalar("int32"), td.Scalar()) >> td.Concat(),
        "contains nested tuples.*set flatten=True":
            lambda: ((td.Scalar(),), (td.Scalar(),)) >> td.Concat(),
        "Concat requires at least one tensor as input": lambda: td.Record([]) >> td.Concat(),
        "Concat inputs must be tensors: .*SequenceType":
            lambda: td.AllOf(numbers(), td.Scalar()) >> td.Concat(),
        "all terminal types must be tensors": lambda: td.Zeros(P),
        "cannot create Zeros for an infinite sequence type":
            lambda: td.Zeros(td.BroadcastSequenceType(T(()))),
        "fn is not callable: 42": lambda: td.Function(42),
        "bad input type PyObjectType.*Function": lambda: objects() >> neg(),
        "bad input type SequenceType.*Function": lambda: numbers() >> neg(),
        "functions must take at least one tensor input": lambda: td.Record([]) >> neg(),
        "function inputs must be tensors: .*VoidType":
            lambda: td.AllOf(td.Void(), td.Scalar()) >> add(),
        "functions must return at least one tensor output":
            lambda: td.Function(torch.neg).set_output_type(()),
        "function outputs must be tensors": lambda: td.Function(torch.neg).set_output_type((V, [])),
        "42.*is not a tensor": lambda: td.Scalar() >> td.Function(lambda x: 42),
        "expected a batch tensor, saw a scalar":
            lambda: td.Scalar() >> td.Function(lambda x: torch.zeros([])),
        r"leading \(batch\) dimension":
            lambda: td.Scalar() >> td.Function(lambda x: torch.zeros(1)),
        "add.*mixes the rows of a batch": lambda: (td.Vector(1), td.Scalar()) >> add(),
        "add.*cannot take TupleType": lambda: (td.Scalar(),) * 3 >> add(),
        r"Type mismatch between output type .*\(3,\).*\(2,\)":
            lambda: td.Vector(3) >> neg().set_output_type([2]),
        "Cannot determine output type for Function":
            lambda: (td.Scalar() >> td.Function(torch.neg, infer_output_type=False)).eval(1),
        "bad input type VoidType.*Length": lambda: td.Length().set_input_type(V),
        "bad output type VoidType.*Map.*SequenceType":
            lambda: td.Map(td.Identity()).set_output_type(V),
        r"SequenceType.*PyObjectType.*Type mismatch between input type":
            lambda: numbers() >> td.Length().set_input_type(P),
        r"Type mismatch between input type .*\(4,\).* and expected input type .*\(3,\)":
            lambda: td.Identity().set_input_type([3]).set_input_type([4]),
        "Type mismatch between output type .*int32.*float32.*Scalar":
            lambda: td.Scalar().set_output_type("int32"),
        "bad input type PyObjectType.*expected TupleType":
            lambda: td.Identity().set_input_type_classes(td.TupleType).set_input_type(P),
        "bad output type PyObjectType.*expected TensorType":
            lambda: td.Identity().set_output_type_classes(td.TensorType).set_output_type(P),
        "bad output type TensorType": lambda: td.Scalar().set_output_type_classes(td.TupleType),
        "Cannot determine input type for Identity.": lambda: td.Identity().check(),
        "42 is not a tensor": lambda: td.FromTensor(42),
        "py_fn is not callable: 42": lambda: td.InputTransform(42),
        "GetItem.*2 items.*item -3": lambda: pair() >> td.GetItem(-3),
        "item 'a'": lambda: (td.Scalar(),) >> td.GetItem("a"),
        "cannot get an item from an infinite sequence": lambda: endless() >> td.GetItem(0),
        "cannot get the length of an infinite sequence": lambda: endless() >> td.Length(),
        r"expected a two-tuple of \(sequence, PyObject\) by <Nth>":
            lambda: (td.Scalar(), td.Scalar(), td.Scalar()) >> td.Nth(),
        r"Nth takes \(sequence, PyObject\), not TupleType": lambda: pair() >> td.Nth(),
        "OneHotFromList.*'int'": lambda: td.OneHotFromList(5),
        "unhashable": lambda: td.OneHotFromList([[1]]),
        "OneHot takes integers.*'ab'": lambda: td.OneHot("ab"),
        r"Vector.*\[3\].*\[2\]": lambda: td.Vector(3).eval([1, 2]),
        "Length.*length of 5": lambda: td.Length().eval(5),
        "GetItem.*None.*'a'": lambda: td.GetItem("a").eval(None),
        "Record.*None.*'a'": lambda: td.Record({"a": td.Scalar()}).eval(None),
        "Nth.*'a'": lambda: ((numbers(), td.Identity()) >> td.Nth()).eval(([1], "a")),
        "FC input dtype must be float32: int64": lambda: td.Vector(2, "int64") >> td.FC(2),
        r"Scalar.*FC input shape must be 1D: \[\]": lambda: td.Scalar() >> td.FC(2),
        "FC.*TupleType": lambda: (td.Vector(1), td.Vector(1)) >> td.FC(2),
        "Embeddings take scalar inputs.*Embedding_2_2":
            lambda: td.Vector(2, "int64") >> td.Embedding(2, 2),
        "Embeddings take integer inputs.*float32": lambda: td.Scalar() >> td.Embedding(2, 2),
        "FC: num_units_out must be an integer: 'a'": lambda: td.FC("a"),
        "Embedding: num_buckets must be an integer: 2.5": lambda: td.Embedding(2.5, 2),
        "bad input type VoidType": lambda: td.Void() >> td.Metric("m"),
        r"Metric 'm'> takes \(tensor, PyObject\), not TupleType": lambda: pair() >> td.Metric("m"),
        r"expected a two-tuple of \(tensor, PyObject\) by <Metric":
            lambda: (td.Scalar(), td.Scalar(), objects()) >> td.Metric("m"),
        r"Metric m has incompatible types: .*\(\).* vs. .*\(2,\)":
            lambda: td.compile((metric_of([]), metric_of([2]))),
        "Record block has 3 children but 2 inputs":
            lambda: pair() >> td.Record((neg(), neg(), neg())),
        "Type mismatch between output type TupleType.*TupleType.*Record":
            lambda: td.Record((td.Scalar(),)).set_output_type(([], [])),
        "expected a list or tuple or dictionary.*5": lambda: td.Record(5),
        "pairs": lambda: td.Record([td.Scalar()]),
        "Type mismatch between input type":
            lambda: td.AllOf(td.Scalar(), td.Vector(2) >> neg(), neg().set_input_type([2])),
        "cannot infer initial_state type from cell": lambda: td.RNN(td.Function(squares)),
        r"a two-tuple of \(output_elem, state\)": lambda: td.RNN(td.FC(3)),
        "First RNN input must be a sequence: TensorType":
            lambda: td.Vector(2) >> td.RNN(td.Function(squares), array([0])),
        "cannot run an RNN on an infinite sequence":
            lambda: endless() >> td.RNN(td.Function(squares), array([0])),
        "RNN cell input and output state types don't match":
            lambda: numbers() >> td.RNN(td.Function(lambda x, s: (x, x)), array([0])),
        r"expected a two-tuple of \(input_sequence, state\)":
            lambda: (numbers(), td.Scalar(), td.Scalar()) >> td.RNN(add(), None, True),
        r"expected a two-tuple of \(input_elem, state\)":
            lambda: td.RNN(td.Function(torch.neg).set_input_type([2]), None, True),
        "no recurrent cell": lambda: td.RNNCell(nn.Linear(2, 2)),
        "already been resolved": lambda: resolved().resolve_to(td.Scalar()),
        "Forward declaration missing was never resolved": lambda: unresolved().eval([1]),
        r"Type mismatch between output type .*\(\).*\(2,\).*ForwardDeclaration":
            lambda: td.ForwardDeclaration(P, [2]).resolve_to(td.Scalar()),
        "Type mismatch between input type PyObjectType.*VoidType.*ForwardDeclaration":
            lambda: td.ForwardDeclaration(V, []).resolve_to(td.Scalar()),
        "bad input type PyObjectType.*Sum": lambda: objects() >> td.Sum(),
        "bad input type TensorType.*Sum": lambda: td.Vector(2) >> td.Sum(),
        "cannot reduce an infinite sequence: Broadcast": lambda: endless() >> td.Reduce(add()),
        "tuple item types must all be equal": lambda: (td.Scalar(), td.Vector(2)) >> td.Sum(),
        "Map.*Reduce.*Type mismatch between output type .*float32.*float64.*FromTensor":
            lambda: numbers() >> td.Reduce(add(), np.zeros([])),
        "Map.*Reduce.*Type mismatch between output type .*float32.*int32.*Function":
            lambda: numbers() >> td.Reduce(td.Function(lambda left, right: left.int())),
        "Mean.*int32": lambda: numbers("int32") >> td.Mean(),
        "expected a non-empty tuple": lambda: td.Record([]) >> td.Map(neg()),
        r"Type mismatch between input type .*\(\).* and expected input type .*\(3,\)":
            lambda: numbers() >> td.Map(neg().set_input_type([3])),
        r"Map.*Fold.*cannot take TupleType.*\(3,\).*\(\)":
            lambda: numbers() >> td.Fold(add(), td.Zeros([3])),
        "Type mismatch between output type .*int32.* and expected output type .*float32":
            lambda: numbers() >> td.Fold(td.Function(lambda value, x: x.int()), td.Zeros([])),
        r"expected a two-tuple of \(value, element\) by combine_block":
            lambda: td.Fold(neg().set_input_type([3]), td.Zeros([3])),
        "cannot fold over an infinite sequence": lambda: endless() >> td.Fold(add(), td.Zeros([])),
        "Map.*5 has no elements": lambda: numbers().eval(5),
        "Fold.*5 has no elements":
            lambda: td.Fold((td.Identity(), td.Scalar()) >> td.Sum(), td.Zeros([])).eval(5),
        "shape must be a tuple or list.*3": lambda: T(3),
        "'ab'": lambda: T("ab"),
        r"\[-1\]": lambda: T([-1]),
        "floaty": lambda: T([2], "floaty"),
        r"\[0\].*5": lambda: td.TupleType(5),
        r"\[1\].*3": lambda: td.TupleType(scalar, 3),
        r"\[2\] is not a type": lambda: td.SequenceType([2]),
        "None to a type": lambda: td.convert_to_type(None),
        "1.5 to a type": lambda: td.convert_to_type(([2], 1.5)),
        "children have unused outputs: .*forgotten": lambda: unused().eval(1),
        "unconnected inputs: .*lonely": lambda: unread_input().eval(1),
        "has 2 inputs but expects 3":
            lambda: wired(lambda c: td.Identity().set_input_type(([], [], [])).reads(td.Scalar(),
                td.Scalar())),
        "Scalar.*TensorType.*Vector.*PyObjectType":
            lambda: wired(lambda c: td.Vector(2).set_input_type(P).reads(td.Scalar(), td.Scalar())),
        r"Vector.*\(2,\).*cannot connect it to block .*\(3,\)":
            lambda: wired(lambda c: neg().set_input_type([3]).reads(td.Vector(2))),
        r"output 0 of .*AllOf.*\(2,\).*input 0 of block .*\(3,\)":
            lambda: wired(lambda c: (add() .set_input_type(([3],
                [3])) .reads(td.AllOf(td.Vector(2), td.Vector(3))[0], td.Vector(3)))),
        "output 0 of .*InputTransform.*bad output type PyObjectType":
            lambda: wired(lambda c: td.Scalar().reads(td.InputTransform(len).reads(c.input)[0])),
        "bad output type PyObjectType.*Composition.input.*expected TupleType":
            lambda: wired(lambda c: td.Scalar().reads(c.input[0])).set_input_type(P),
        "cannot get 7-th output of block .*AllOf.* with 2 outputs":
            lambda: td.AllOf(td.Scalar(), td.Scalar())[7],
        "cannot be iterated": lambda: list(td.Scalar()),
        "bad output type PyObjectType.*Broadcast": lambda: objects() >> td.Broadcast(),
        "item types must be sequences: TensorType": lambda: pair() >> td.Zip(),
        "zip requires at least one input sequence": lambda: td.Record([]) >> td.Zip(),
        "n must be an integer: 1.5": lambda: td.NGrams(1.5),
        "Zip.*5 has no elements": lambda: ((numbers(), td.Identity()) >> td.Zip()).eval(([1], 5)),
        "bad input type TupleType.*NGrams": lambda: pair() >> td.NGrams(2),
        "^<OneOf>: bad input type PyObjectType.* for <Function fn='neg'>":
            lambda: td.OneOf(len, {2: neg()}).set_input_type(P),
        "^<Record ordered=True>: bad input type .* for <Function fn='neg'>":
            lambda: td.Record((td.Scalar(), neg())).set_input_type(P),
        "^some_case of Optional: bad input type .* for <Function fn='neg'>":
            lambda: td.Optional(neg()),
        "^none_case of Optional: Type mismatch between input type VoidType.* in <Scalar":
            lambda: td.Optional(td.Scalar(), td.Scalar()),
        "^start_block of Fold: Type mismatch .*VoidType.* in <Scalar":
            lambda: td.Fold(add(), td.Scalar()),
        "^default_block of Reduce: 42 cannot be converted to a block": lambda: td.Reduce(add(), 42),
    },
    ValueError: {
        "case_blocks must be non-empty": lambda: td.OneOf(len, {}),
        "case_blocks name a key twice: 1, True":
            lambda: td.OneOf(len, [(1, td.Scalar()), (True, td.Length())]),
        "concat_dim must be.*-1": lambda: td.Concat(-1),
        "step of a Slice cannot be zero": lambda: td.Slice(step=0),
        "at least one element": lambda: td.OneHotFromList([]),
        "Scalar.*'abc'": lambda: td.Scalar().eval("abc"),
        "Scalar.*None": lambda: td.Scalar().eval(None),
        "Scalar.*300.*int8": lambda: td.Scalar("int8").eval(300),
        "Tensor.*shape|Tensor.*cannot make": lambda: td.Tensor([2, 2]).eval([[1, 2], [3]]),
        "FC: num_units_out must be positive: 0": lambda: td.FC(0),
        "above 0.*2.0": lambda: td.FC(3, input_keep_prob=2.0),
        "num_buckets must be positive: 0": lambda: td.Embedding(0, 2),
        r"\[3, 2\].*\[2, 2\]": lambda: td.Embedding(2, 2, np.ones((3, 2))),
        "Cannot specify initial_state if initial_state_from_input is True.":
            lambda: td.RNN(td.Function(squares), array([0, 0]), initial_state_from_input=True),
        "Declaration .*has already been resolved": lambda: resolved()(),
        "Composition cannot have cycles.": cycle,
        "cannot read from composition output": lambda: wired(lambda c: neg().reads(c.output)),
        "cannot write to composition input": lambda: wired(lambda c: c.input.reads(td.Scalar())),
        "is the input or output of a different composition":
            lambda: wired(lambda c: c.output.reads(td.Composition().input)),
        "input of block is already connected: <Scalar":
            lambda: wired(lambda c: td.Scalar().reads(c.input).reads(c.input)),
        "n must be positive: 0": lambda: td.NGrams(0),
    },
    KeyError: {
        "no case for the key 'mul'.*'add'":
            lambda: td.OneOf(lambda x: x["op"], {"add": td.Length()}).eval({"op": "mul"}),
        r"the key \[\]": lambda: numbered().eval({"index": []}),
        r"\[1\]": lambda: td.OneHotFromList([1]).eval([1]),
        "GetItem.*'k'": lambda: (td.GetItem("k") >> td.Scalar()).eval({}),
        "OneHot.*3": lambda: td.OneHot(3).eval(3),
        "100": lambda: td.OneHotFromList([37, 23]).eval(100),
        "'zzz'.*'a'": lambda: td.Record({"a": td.Scalar()})["zzz"],
    },
    IndexError: {
        "GetItem.*2 items.*item 2": lambda: pair() >> td.GetItem(2),
        r"range \[0, 0\) is empty": lambda: td.OneHot(0),
        "GetItem.*5": lambda: (td.GetItem(5) >> td.Scalar()).eval([1]),
        "GetItem.*0": lambda: (numbers() >> td.GetItem(0)).eval([]),
        "Nth.*5": lambda: ((numbers(), td.Identity()) >> td.Nth()).eval((range(5), 5)),
        "1": lambda: td.Record(pair()).eval((1,)),
        "cannot get 2-th output of block .*AllOf.* with 2 outputs":
            lambda: td.AllOf(td.Scalar(), td.Scalar())[2],
    },
    AssertionError: {
        "OneHotFromList was passed duplicate elements.": lambda: td.OneHotFromList([1, 3, 3]),
        "reads method was called outside of a Composition scope": lambda: neg().reads(td.Scalar()),
    },
    RuntimeError: {
        "created with an unordered dict cannot take ordered inputs":
            lambda: td.Pipe(pair(), {"a": td.Identity(), "b": td.Identity()}),
    },
}
# fmt: on


@pytest.mark.parametrize(
    ("kind", "text"), [(kind, text) for kind, rows in FAULTS.items() for text in rows]
)
def test_error(kind: type[Exception], text: str) -> None:
    goes_wrong((FAULTS[kind][text], kind, text))


@pytest.mark.parametrize(
    "block",
    [td.GetItem(0), td.Length(), td.Slice(), td.Map(neg()), td.Concat(), td.Sum(), td.Zip()],
)
@pytest.mark.parametrize("kind", ["Tensor", "Void"])
def test_readers_of_several_items_refuse_one(block: td.Block, kind: str) -> None:
    source = td.Vector(2) if kind == "Tensor" else td.Void()
    goes_wrong((lambda: source >> block, TypeError, f"bad input type {kind}Type"))


def test_the_error_of_an_unknown_case_holds_the_key() -> None:
    with pytest.raises(td.BlockKeyError) as caught:
        td.compile(numbered())([{"index": 0}, {"index": "x"}])
    assert caught.value.key == "x"  # type: ignore[attr-defined]
