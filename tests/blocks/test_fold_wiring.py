"""What is wrong with a composition, as TensorFlow Fold's tests have it."""

from __future__ import annotations

import pytest
import torch
from block_checks import add, neg
from fold_checks import Faults, P, V, goes_wrong, numbers, wired

from graphfold import blocks as td


def cycle() -> None:
    f, g = neg(), neg()
    composition = td.Composition([f, g])
    composition.set_input_type(V)
    f.set_input_type([])
    composition.connect(f, g)
    composition.connect(g, f)
    composition.connect(g, composition.output)
    composition.eval(None)


def loop() -> None:
    f = neg().set_input_type([])
    wired(lambda c: c.output.reads(f.reads(f))).set_input_type(V).eval(None)


def unused() -> td.Composition:
    def wire(c: td.Composition) -> None:
        s = td.Scalar().reads(c.input)
        td.Function(torch.neg, name="forgotten").reads(s)
        c.output.reads(s)

    return wired(wire)


def unconnected() -> td.Composition:
    composition = td.Composition([td.Scalar(name="lonely")])
    composition.connect(composition.input, composition.output)
    return composition


def unread_input() -> td.Composition:
    other = td.Scalar(name="lonely")
    return wired(lambda c: c.output.reads(td.Scalar().reads(c.input), other))


def two_outputs(c: td.Composition) -> None:
    s = td.Scalar().reads(c.input)
    c.output.reads(s)
    c.output.reads(s)


FAULTS: Faults = {
    "pipe": (lambda: td.Pipe(td.Scalar(), td.Concat()), TypeError, "Scalar.*TensorType.*Concat"),
    "cycle": (cycle, ValueError, "Composition cannot have cycles."),
    "loop": (loop, ValueError, "Composition cannot have cycles."),
    "no_output": (lambda: td.Composition().eval(1), TypeError, "Composition block has no output"),
    "read_output": (
        lambda: wired(lambda c: neg().reads(c.output)),
        ValueError,
        "cannot read from composition output",
    ),
    "write_input": (
        lambda: wired(lambda c: c.input.reads(td.Scalar())),
        ValueError,
        "cannot write to composition input",
    ),
    "other_input": (
        lambda: wired(lambda c: c.output.reads(td.Composition().input)),
        ValueError,
        "is the input or output of a different composition",
    ),
    "other_output": (
        lambda: wired(lambda c: td.Composition().output.reads(c.input)),
        ValueError,
        "is the input or output of a different composition",
    ),
    "unused": (lambda: unused().eval(1), TypeError, "children have unused outputs: .*forgotten"),
    "unconnected": (lambda: unconnected().eval(1), TypeError, "children have un.*lonely"),
    "unread_input": (lambda: unread_input().eval(1), TypeError, "unconnected inputs: .*lonely"),
    "twice": (
        lambda: wired(lambda c: td.Scalar().reads(c.input).reads(c.input)),
        ValueError,
        "input of block is already connected: <Scalar",
    ),
    "two_outputs": (
        lambda: wired(two_outputs),
        ValueError,
        "input of block is already connected: <Composition.output 'wired'>",
    ),
    "no_scope": (
        lambda: neg().reads(td.Scalar()),
        AssertionError,
        "reads method was called outside of a Composition scope",
    ),
    "no_scope_slice": (
        lambda: td.AllOf(td.Scalar(), td.Scalar())[1:],
        AssertionError,
        "outside of a Composition scope",
    ),
    "too_few": (
        lambda: wired(
            lambda c: td.Identity().set_input_type(([], [], [])).reads(td.Scalar(), td.Scalar())
        ),
        TypeError,
        "has 2 inputs but expects 3",
    ),
    "several": (
        lambda: wired(lambda c: td.Vector(2).set_input_type(P).reads(td.Scalar(), td.Scalar())),
        TypeError,
        "Scalar.*TensorType.*Vector.*PyObjectType",
    ),
    "several_to_sequence": (
        lambda: wired(lambda c: td.NGrams(2).reads(numbers(), numbers())),
        TypeError,
        "NGrams.*SequenceType",
    ),
    "types": (
        lambda: wired(lambda c: neg().set_input_type([3]).reads(td.Vector(2))),
        TypeError,
        r"Vector.*\(2,\).*cannot connect it to block .*\(3,\)",
    ),
    "types_of_item": (
        lambda: wired(
            lambda c: (
                add()
                .set_input_type(([3], [3]))
                .reads(td.AllOf(td.Vector(2), td.Vector(3))[0], td.Vector(3))
            )
        ),
        TypeError,
        r"output 0 of .*AllOf.*\(2,\).*input 0 of block .*\(3,\)",
    ),
    "item_of_object": (
        lambda: wired(lambda c: td.Scalar().reads(td.InputTransform(len).reads(c.input)[0])),
        TypeError,
        "output 0 of .*InputTransform.*bad output type PyObjectType",
    ),
    "item_of_input": (
        lambda: wired(lambda c: td.Scalar().reads(c.input[0])).set_input_type(P),
        TypeError,
        "bad output type PyObjectType.*Composition.input.*expected TupleType",
    ),
    "item_beyond": (
        lambda: td.AllOf(td.Scalar(), td.Scalar())[7],
        TypeError,
        "cannot get 7-th output of block .*AllOf.* with 2 outputs",
    ),
    "item_next": (
        lambda: td.AllOf(td.Scalar(), td.Scalar())[2],
        IndexError,
        "cannot get 2-th output of block .*AllOf.* with 2 outputs",
    ),
    "iterated": (lambda: list(td.Scalar()), TypeError, "cannot be iterated"),
    "child": (lambda: td.Composition([42]), TypeError, "42 cannot be converted to a block"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_error(name: str) -> None:
    goes_wrong(FAULTS[name])
