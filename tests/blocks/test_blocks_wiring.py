"""Compositions: scopes, connections, outputs by number, order, and copies."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
import torch
from block_checks import same
from torch import nn

from graphfold import blocks as td


def test_an_lstm_cell_made_of_blocks() -> None:
    size = 3
    gates = [td.FC(size, f) for f in (torch.sigmoid, torch.sigmoid, torch.sigmoid, torch.tanh)]
    mul = td.Function(torch.mul)

    @td.compose
    def cell(x: Any) -> Any:
        known = td.Concat()(x[0], td.GetItem(0)(x[1]))
        i, f, o, u = (gate(known) for gate in map(td.Function, gates))
        c = td.Function(torch.add)(mul(i, u), mul(f, td.GetItem(1)(x[1])))
        h = mul(o, td.Function(torch.tanh)(c))
        return h, td.AllOf(td.GetItem(0), td.GetItem(1))(h, c)

    zeros = td.Zeros(([size], [size]))
    block = td.Map(td.Vector(2)) >> td.RNN(cell, zeros) >> td.GetItem(0) >> td.Sum()
    model = td.compile(block)
    examples = [[[1, 2], [3, 4]], [], [[5, 6]]]
    alone = torch.stack([block.eval(example) for example in examples])
    torch.testing.assert_close(model(examples), alone)
    assert td.verify(model, examples) < 1e-12


def test_copies_are_independent() -> None:
    linear = td.Function(nn.Linear(2, 2))
    block = td.Map(td.compose(lambda x: linear(td.Vector(2)(x)))) >> td.Sum()
    model = td.compile(block)
    twin = deepcopy(model)
    examples = [[[1, 2], [3, 4]], []]
    torch.testing.assert_close(twin(examples), model(examples))
    for parameter in twin.parameters():
        parameter.data.zero_()
    assert twin(examples).eq(0).all()
    assert not model(examples).eq(0).all()


def test_a_layer_is_called_like_a_block() -> None:
    layer = td.FC(2, None)

    @td.compose
    def twice(x: Any) -> Any:
        return layer(layer(x)), x >> layer >> layer

    first, second = (td.Vector(2) >> twice).eval([1, 2])
    same(first, layer(layer(torch.tensor([[1.0, 2.0]])))[0])
    same(first, second)
    assert len(list(td.compile(td.Vector(2) >> twice).parameters())) == 2
    with pytest.raises(AssertionError, match="outside of a Composition scope"):
        td.FC(2)(td.Vector(2))


class Doubled(nn.Module):
    def forward(self, x: Any) -> Any:
        return x.mul(2)


@pytest.mark.parametrize(
    ("call", "fault"),
    [
        (lambda x: nn.Linear(2, 3)(x), "torch's linear cannot compute"),
        (lambda x: nn.Dropout(0.5)(x[0]), "torch's dropout cannot compute"),
        (lambda x: torch.tanh(x), "torch's tanh cannot compute"),
        (lambda x: torch.cat([x[0], x[1]], 1), "torch's cat cannot compute"),
        (lambda x: torch.ones(2) * x, "operators cannot compute"),
        (lambda x: Doubled()(x), "it has no 'mul'"),
        (lambda x: nn.GRU(2, 2)(x), "it has no 'dim'"),
        (lambda x: x[0] + x[1], "operators cannot compute"),
        (lambda x: 1 - x, "operators cannot compute"),
        (lambda x: x if x else -x, "operators cannot compute"),
    ],
)
def test_computations_outside_of_a_function_are_refused(call: Any, fault: str) -> None:
    with pytest.raises(td.BlockTypeError, match=f"{fault}.*td.Function"):
        td.compose(call)


def test_a_wire_is_what_it_is() -> None:
    def shown(x: Any) -> Any:
        assert not hasattr(x, "shape")
        assert "Composition.input" in str(x)
        return x

    assert td.compose(shown).set_input_type([]).output_type == td.TensorType([])


def test_a_part_knows_the_block_that_it_belongs_to() -> None:
    part, declared = td.Scalar(), td.ForwardDeclaration()
    assert part.parent is None
    reference = declared()
    first = td.Map(part)
    td.Map(part)
    declared.resolve_to(first)
    assert (part.parent, first.parent, first.children) == (first, None, [part])
    assert reference.is_forward_declaration_ref


def test_a_constructor_may_be_named() -> None:
    block = td.Pipe(td.InputTransform(ord), td.Scalar()).set_constructor_name("Letter")
    assert (repr(block), block.eval("a", tolist=True)) == ("<Letter>", 97.0)


def test_a_block_is_drawn_as_a_tree_with_types() -> None:
    leaf = td.Vector(2) >> td.FC(3)
    tree = td.recursive(lambda tree: td.OneOf(len, {2: leaf, 3: td.Map(tree) >> td.Sum()}))
    tree.set_input_type(td.PyObjectType())
    assert tree.tree() == (
        "<OneOf> object -> float32[3]\n"
        "  <Pipe> object -> float32[3]\n"
        "    <Vector dtype='float32' size=2> object -> float32[2]\n"
        "    <Function fn=FC(2 -> 3, relu)> float32[2] -> float32[3]\n"
        "  <Pipe> object -> float32[3]\n"
        "    <Map> object -> [float32[3]]\n"
        "      <ForwardDeclaration()> object -> float32[3]\n"
        "        <OneOf> object -> float32[3] (see above)\n"
        "    <Sum> [float32[3]] -> float32[3]\n"
        "  <InputTransform py_fn='len'> object -> object"
    )
    assert (
        tree.tree(max_lines=2) == "<OneOf> object -> float32[3]\n  <Pipe> object -> float32[3]\n..."
    )
    assert td.Broadcast(name="x").tree() == "<Broadcast 'x'> ? -> ?"
    kinds = td.AllOf(td.Scalar() >> td.Broadcast(), td.Identity() >> td.Void())
    assert kinds.tree().splitlines()[0] == "<AllOf> object -> ([float32...], void)"


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
