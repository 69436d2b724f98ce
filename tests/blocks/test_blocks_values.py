"""What wiring, recursion and sharing give; `test_fold_*` have the values of every block."""

from __future__ import annotations

from itertools import repeat
from typing import Any

from block_checks import add, check, neg, times
from torch import nn

from graphfold import blocks as td


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
