"""Pipe and Composition, as TensorFlow Fold's tests have them: values and types."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from block_checks import add, neg, times
from fold_checks import Cases, P, V, array, goes_wrong, hold, scalar, wired

from graphfold import blocks as td


def connected() -> td.Composition:
    s, f, g, h = td.Scalar(), times(2), times(3), add()
    composition = td.Composition([s, f, g, h])
    composition.connect(composition.input, s)
    composition.connect(s, f)
    composition.connect(s, g)
    composition.connect((f, g), h)
    composition.connect(h, composition.output)
    return composition


def reading() -> td.Composition:
    composition = td.Composition()
    with composition.scope():
        s = td.Scalar().reads(composition.input)
        h = add().reads(times(2).reads(s), times(3).reads(s))
        composition.output.reads(h)
    return composition


def reversed_children() -> td.Composition:
    s, f, g, h, last = td.Scalar(), times(2), times(3), add(), td.Function(torch.abs)
    composition = td.Composition([last, h, g, f, s])
    composition.connect(last, composition.output)
    composition.connect(h, last)
    composition.connect((f, g), h)
    composition.connect(s, g)
    composition.connect(s, f)
    composition.connect(composition.input, s)
    return composition


def nested() -> td.Block:
    inner = td.Composition()
    with inner.scope():
        inner.output.reads(times(2).reads(inner.input), times(3).reads(inner.input))
    return td.Scalar() >> inner >> add()


def scopes() -> td.Composition:
    outer = td.Composition()
    with outer.scope():
        inner = td.Composition().reads(td.Scalar().reads(outer.input))
        with inner.scope():
            inner.output.reads(times(2).reads(inner.input), times(3).reads(inner.input))
        outer.output.reads(add().reads(inner))
    return outer


def twice(c: td.Composition) -> None:
    s = td.Scalar("int32").reads(c.input)
    c.output.reads(s, s)


def sliced(c: td.Composition) -> None:
    c.set_input_type(V)
    items = td.AllOf(*[np.array(n) for n in range(5)]).reads(c.input)
    c.output.reads(add().reads(items[1:-1:2]))


def noted(c: td.Composition) -> None:
    a = td.Scalar().reads(c.input)
    td.Metric("foo").reads(neg().reads(a))
    c.output.reads(a)


def joined(c: td.Composition) -> None:
    first, second = td.GetItem(0).reads(c.input), td.GetItem(1).reads(c.input)
    c.output.reads(
        td.Scalar().reads(td.InputTransform(lambda x: 10 * x[0] + x[1]).reads(first, second))
    )


def constants(c: td.Composition) -> None:
    c.output.reads(td.FromTensor(array([1, 2])).reads(), td.Scalar().reads(c.input))


def first_input() -> td.Block:
    return (td.Scalar("int32"), td.Scalar()) >> wired(lambda c: c.output.reads(c.input[0]))


VALUES: Cases = {
    "connected": (connected, 5, 25.0, 2),
    "reading": (reading, 5, 25.0, 2),
    "reversed": (reversed_children, 1, 5.0, 3),
    "nested": (nested, 1, 5.0, 2),
    "scopes": (scopes, 1, 5.0, 2),
    "twice": (lambda: wired(twice), 3, (3, 3), 0),
    "identity": (lambda: td.Scalar() >> wired(lambda c: c.output.reads(c.input)), 3, 3.0, 0),
    "sliced": (lambda: wired(sliced), None, 4, 1),
    "first_input": (first_input, (42, 0.0), 42, 0),
    "metric": (lambda: wired(noted), 42, (42.0, {"foo": [-42.0]}), 2),
    "objects": (lambda: wired(joined), (1, 2), 12.0, 0),
    "constants": (lambda: wired(constants), 3, ([1.0, 2.0], 3.0), 0),
    "input_ignored": (lambda: wired(lambda c: c.output.reads(array(3))), None, 3.0, 0),
    "pipe_one": (lambda: td.Pipe(td.Scalar()), 3, 3.0, 0),
    "pipe_three": (lambda: td.Pipe(td.Scalar(), times(2), neg()), 3, -6.0, 2),
    "pipe_left": (lambda: (td.Scalar() >> times(2)) >> neg(), 3, -6.0, 2),
    "pipe_right": (lambda: td.Scalar() >> (times(2) >> neg()), 3, -6.0, 2),
    "pipe_none": (td.Pipe, 3, 3, 0),
    "pipe_tuple": (
        lambda: td.Scalar() >> td.AllOf(neg(), neg()) >> (neg(), neg()),
        3,
        (3.0, 3.0),
        2,
    ),
    "from_dict": (lambda: {"a": td.Scalar(), "b": td.Scalar()} >> add(), {"a": 1, "b": 2}, 3.0, 1),
}


@pytest.mark.parametrize("name", VALUES)
def test_value(name: str) -> None:
    hold(*VALUES[name])


def test_items_count_from_either_end() -> None:
    def wire(c: td.Composition) -> None:
        items = td.AllOf(td.Scalar(), td.OneHot(9), td.Scalar("int8")).reads(c.input)
        c.output.reads(items[-1], items[0])
        td.Void().reads(items)

    hold(lambda: wired(wire), 4, (4, 4.0), 0)


def test_an_item_that_is_not_read_is_no_fault() -> None:
    def wire(c: td.Composition) -> None:
        c.output.reads(td.AllOf(td.Scalar(), td.OneHot(9)).reads(c.input)[0])

    hold(lambda: wired(wire), 4, 4.0, 0)


def test_the_outer_scope_is_current_again_even_after_an_error() -> None:
    outer = td.Composition()
    with outer.scope():
        with pytest.raises(KeyError), td.Composition().scope():
            raise KeyError
        outer.output.reads(td.Scalar().reads(outer.input))
    hold(lambda: outer, 3, 3.0, 0)


def test_pipes_have_two_arguments() -> None:
    with pytest.raises(TypeError, match="nme"):
        td.Pipe(td.Scalar(), nme="x")  # type: ignore[call-arg]
    assert td.Pipe(td.Scalar(), neg(), name="x").name == "x"


def test_types_of_compositions() -> None:
    assert (connected().input_type, connected().output_type) == (P, scalar)
    assert wired(twice).output_type == td.convert_to_type(("int32", "int32"))
    assert td.Composition().set_input_type([3]).input.output_type == td.TensorType([3])


def circle() -> td.Block:
    f, g = times(2), times(3)
    composition = td.Composition([g, f]).set_input_type(V)
    composition.connect(f, g)
    composition.connect(g, composition.output)
    composition.connect(g, f)
    return composition


def own_reader() -> td.Block:
    f, composition = neg(), td.Composition()
    composition.connect(f, f)
    composition.connect(f, composition.output)
    return composition


def behind_a_scalar() -> td.Block:
    s, f, g = td.Scalar(), add(), neg()
    composition = td.Composition()
    composition.connect(composition.input, s)
    composition.connect((s, g), f)
    composition.connect(f, g)
    composition.connect(s, composition.output)
    return composition


@pytest.mark.parametrize("make", [circle, own_reader, behind_a_scalar])
def test_a_cycle_is_said_before_types_are_missed(make: Callable[[], td.Block]) -> None:
    text = "Composition cannot have cycles"
    goes_wrong((lambda: td.compile(make()), ValueError, text))
    goes_wrong((lambda: make().eval(None), ValueError, text))
    goes_wrong((lambda: td.compile(td.Map(make())), ValueError, text))
