"""Forward declarations, as TensorFlow Fold's tests have them, and `recursive`, which is ours."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from block_checks import add, check_batched, neg
from fold_checks import Cases, Faults, P, V, goes_wrong, hold, numbers, scalar

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
    expression = td.ForwardDeclaration(P, scalar)
    block = td.OneOf(lambda x: x["op"], operations(expression))
    expression.resolve_to(block)
    return block


def undeclared() -> td.Block:
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

VALUES: Cases = {
    "literal": (declared, lit(7), 7.0, 0),
    "sum": (declared, SUM, 10.0, 2),
    "sum_undeclared": (undeclared, SUM, 10.0, 2),
    "sum_recursive": (recursive, SUM, 10.0, 2),
    "orphan": (orphan, None, 2.0, 1),
    "nested_orphans": (nested_orphans, [3, 4], -8.0, 3),
    "mutual": (mutual, [1, [2, [3]], [4]], -8.0, None),
    "child_sum": (child_sum, [1, [2, [3]], [4]], 10.0, None),
    "child_sum_leaf": (child_sum, [1], 1.0, 1),
    "not_recursive": (lambda: td.recursive(lambda tree: td.Scalar()), 3, 3.0, 0),
}


def unresolved() -> td.Block:
    return td.Map(td.ForwardDeclaration(P, scalar, name="missing")())


def resolved() -> td.ForwardDeclaration:
    declaration = td.ForwardDeclaration(name="done")
    declaration.resolve_to(td.Scalar())
    return declaration


def referred(target: td.Block) -> None:
    declaration = td.ForwardDeclaration()
    declaration() >> td.Function(torch.neg).set_input_type([2])
    declaration.resolve_to(target)


FAULTS: Faults = {
    "unresolved": (
        lambda: unresolved().eval([1]),
        TypeError,
        "Forward declaration missing was never resolved",
    ),
    "unresolved_compiled": (
        lambda: td.compile(unresolved() >> td.Sum()),
        TypeError,
        "Forward declaration missing was never resolved",
    ),
    "late": (lambda: resolved()(), ValueError, "Declaration .*has already been resolved"),
    "twice": (lambda: resolved().resolve_to(td.Scalar()), TypeError, "already been resolved"),
    "output": (
        lambda: td.ForwardDeclaration(P, [2]).resolve_to(td.Scalar()),
        TypeError,
        r"Type mismatch between output type .*\(\).*\(2,\).*ForwardDeclaration",
    ),
    "input": (
        lambda: td.ForwardDeclaration(V, []).resolve_to(td.Scalar()),
        TypeError,
        "Type mismatch between input type PyObjectType.*VoidType.*ForwardDeclaration",
    ),
    "reference": (
        lambda: referred(td.Scalar()),
        TypeError,
        r"Type mismatch between output type .*\(\).*\(2,\).*ForwardDeclaration",
    ),
    "number": (
        lambda: td.ForwardDeclaration().resolve_to(42),
        TypeError,
        "42 cannot be converted to a block",
    ),
    "name": (lambda: td.ForwardDeclaration(name=3), TypeError, "name must be a string"),  # type: ignore
}


@pytest.mark.parametrize("name", VALUES)
def test_value(name: str) -> None:
    hold(*VALUES[name])


@pytest.mark.parametrize("name", FAULTS)
def test_error(name: str) -> None:
    goes_wrong(FAULTS[name])


def test_expressions_of_many_shapes_in_one_batch() -> None:
    block = declared()
    examples = [SUM, lit(1), plus(lit(1), SUM), plus(SUM, SUM)]
    check_batched(block, examples)
    assert td.compile(block)(examples).tolist() == [10.0, 1.0, 11.0, 20.0]


def test_declarations_know_their_references() -> None:
    declaration = td.ForwardDeclaration(P, scalar, name="tree")
    reference = declaration()
    assert reference.is_forward_declaration_ref
    assert not td.Scalar().is_forward_declaration_ref
    assert (reference.input_type, reference.output_type) == (P, scalar)
    assert declaration.resolve_to(td.Scalar()) is None  # type: ignore[func-returns-value]


def test_a_reference_learns_its_types_from_the_target() -> None:
    declaration = td.ForwardDeclaration()
    reference = declaration()
    assert (reference.input_type, reference.output_type) == (None, None)
    declaration.resolve_to(td.Vector(3))
    assert (reference.input_type, reference.output_type) == (P, td.TensorType([3]))
    assert (declaration.input_type, declaration.output_type) == (P, td.TensorType([3]))


def test_a_decorator_makes_a_block_that_contains_itself() -> None:
    @td.recursive(output_type=[])  # type: ignore[untyped-decorator]
    def tree(tree: td.Block) -> td.Block:
        inner = td.Record((tree, tree)) >> add()
        return td.OneOf(len, {1: td.GetItem(0) >> td.Scalar(), 2: inner})

    hold(lambda: tree, (((1,), (2,)), (3,)), 6.0, 2)


def test_a_start_may_be_declared_and_learned() -> None:
    start = td.ForwardDeclaration()
    block = numbers() >> td.Fold(add(), start())
    weight = torch.nn.Parameter(torch.tensor(2.0))
    start.resolve_to(weight)
    model = td.compile(block)
    assert model([[1], []]).tolist() == [3.0, 2.0]
    model([[1], []]).sum().backward()
    assert weight.grad == 2.0
