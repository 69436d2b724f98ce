"""Forward declarations, as TensorFlow Fold's tests have them, and `recursive`, which is ours."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from block_checks import P, V, add, check_batched, goes_wrong, hold, neg, numbers, scalar

from graphfold import blocks as td


def lit(value: float) -> dict[str, Any]:
    return {"op": "lit", "val": value}


def plus(left: Any, right: Any) -> dict[str, Any]:
    return {"op": "add", "left": left, "right": right}


def operations(expression: Any) -> dict[str, Any]:
    """The cases of an expression, by what stands for one."""
    return {
        "lit": td.GetItem("val") >> td.Scalar(),
        "add": td.Record({"left": expression(), "right": expression()}) >> add(),
    }


def declared() -> td.Block:
    expression = td.ForwardDeclaration()
    block = td.OneOf(lambda x: x["op"], operations(expression))
    expression.resolve_to(block)
    return block


def recursive() -> td.Block:
    block: td.Block = td.recursive(
        lambda tree: td.OneOf(lambda x: x["op"], operations(lambda: tree))
    )
    return block


def orphan() -> td.Block:
    one = td.ForwardDeclaration(V, scalar)
    block = td.AllOf(one(), one()) >> td.Sum()
    one.resolve_to(td.FromTensor(torch.ones([])))
    return block


def nested_orphans() -> td.Block:
    start = td.ForwardDeclaration(V, scalar)
    total = td.ForwardDeclaration(td.SequenceType(scalar), scalar)
    block = numbers() >> total() >> neg()
    total.resolve_to(td.Fold(add(), start()))
    start.resolve_to(td.FromTensor(torch.tensor(1.0)))
    return block


def mutual() -> td.Block:
    """Lists in lists, where every other level is subtracted."""
    even = td.ForwardDeclaration(P, scalar, name="even")
    odd = td.ForwardDeclaration(P, scalar, name="odd")
    is_list = td.InputTransform(lambda x: isinstance(x, list))
    even_block = td.OneOf(is_list, (td.Scalar(), td.Map(odd()) >> td.Sum()))
    odd_block = td.OneOf(
        lambda x: isinstance(x, list), (td.Scalar(), td.Map(even()) >> td.Sum() >> neg())
    )
    even.resolve_to(even_block)
    odd.resolve_to(odd_block)
    return even_block


def child_sum() -> td.Block:
    block: td.Block = td.recursive(
        lambda tree: (
            td.AllOf(td.GetItem(0) >> td.Scalar(), td.Slice(start=1) >> td.Map(tree) >> td.Sum())
            >> add()
        ),
        output_type=[],
    )
    return block


SUM = plus(plus(lit(3), lit(5)), lit(2))

VALUES = {
    "declared": (declared, SUM, 10.0, 2),
    "recursive": (recursive, SUM, 10.0, 2),
    "orphan": (orphan, None, 2.0, 1),
    "nested_orphans": (nested_orphans, [3, 4], -8.0, 3),
    "mutual": (mutual, [1, [2, [3]], [4]], -8.0, None),
    "child_sum": (child_sum, [1, [2, [3]], [4]], 10.0, None),
}


@pytest.mark.parametrize("name", VALUES)
def test_value(name: str) -> None:
    hold(*VALUES[name])  # type: ignore[arg-type]


def test_expressions_of_many_shapes_in_one_batch() -> None:
    block = declared()
    examples = [SUM, lit(1), plus(lit(1), SUM), plus(SUM, SUM)]
    check_batched(block, examples)
    assert td.compile(block)(examples).tolist() == [10.0, 1.0, 11.0, 20.0]


def test_a_reference_learns_its_types_from_the_target() -> None:
    declaration = td.ForwardDeclaration()
    reference = declaration()
    assert (reference.input_type, reference.output_type) == (None, None)
    declaration.resolve_to(td.Vector(3))
    assert (reference.input_type, reference.output_type) == (P, td.TensorType([3]))
    assert (declaration.input_type, declaration.output_type) == (P, td.TensorType([3]))


def test_a_start_may_be_declared_and_learned() -> None:
    start = td.ForwardDeclaration()
    block = numbers() >> td.Fold(add(), start())
    weight = torch.nn.Parameter(torch.tensor(2.0))
    start.resolve_to(weight)
    model = td.compile(block)
    assert model([[1], []]).tolist() == [3.0, 2.0]
    model([[1], []]).sum().backward()
    assert weight.grad == 2.0


def itself() -> td.Block:
    declaration = td.ForwardDeclaration(P, [], "loop")
    reference = declaration()
    declaration.resolve_to(reference)
    return reference


def each_other() -> td.Block:
    first, second = td.ForwardDeclaration(P, [], "one"), td.ForwardDeclaration(P, [], "two")
    block = first()
    first.resolve_to(second() >> neg())
    second.resolve_to(td.Record((first_of(block), td.Scalar())) >> td.GetItem(0))
    return block


def first_of(block: td.Block) -> td.Block:
    return td.InputTransform(lambda x: x[0]) >> block


@pytest.mark.parametrize("make", [itself, each_other])
def test_endless_recursion_is_refused(make: Any) -> None:
    text = "contains itself whatever the example"
    goes_wrong((lambda: td.compile(make()), RecursionError, text))
    goes_wrong((lambda: make().eval(1), RecursionError, text))
    goes_wrong((lambda: make().max_depth(1), RecursionError, text))


def untyped() -> td.Block:
    declaration = td.ForwardDeclaration(name="loop")
    declaration.resolve_to(declaration())
    return declaration._references[0]


def test_endless_recursion_is_reported_before_missing_types() -> None:
    goes_wrong((lambda: td.compile(untyped()), RecursionError, "loop contains itself"))


def nested_sum() -> td.Block:
    items = td.ForwardDeclaration(P, [])
    cases = {False: td.Scalar(), True: td.Map(items()) >> td.Sum()}
    block = td.OneOf(lambda x: isinstance(x, list), cases)
    items.resolve_to(block)
    return block


def test_an_example_that_contains_itself_is_refused() -> None:
    x: list[Any] = [1]
    x.append([x])
    text = "again and again with the same object"
    goes_wrong((lambda: nested_sum().eval(x), RecursionError, text))
    goes_wrong((lambda: nested_sum().max_depth(x), RecursionError, text))
    goes_wrong((lambda: td.compile(nested_sum())([x]), RecursionError, text))


def test_recursion_over_the_same_object_is_refused() -> None:
    block = td.recursive(
        lambda me: td.OneOf(lambda n: n == 0, {True: td.Scalar(), False: me >> neg()})
    )
    assert block.eval(0, tolist=True) == 0.0
    goes_wrong((lambda: block.eval(1), RecursionError, "same object: 1"))


def test_an_object_may_come_often_and_a_tree_be_deep() -> None:
    block, leaf = nested_sum(), [1]
    x: list[Any] = [leaf] * 3000
    for _ in range(3000):
        x = [x]
    assert block.eval(x, tolist=True) == 3000.0
    assert td.compile(block)([x, x]).tolist() == [3000.0] * 2


def test_a_stream_is_read_by_a_block_that_contains_itself() -> None:
    block = td.recursive(
        lambda me: td.OneOf(
            next,
            {
                "1": td.InputTransform(lambda _: 1) >> td.Scalar(),
                "+": td.AllOf(me, me) >> add(),
            },
        )
    )
    signs = "+" * 3000 + "1" * 3001
    assert block.eval(iter(signs), tolist=True) == 3001.0
