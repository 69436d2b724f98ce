"""Faults that blocks once had: parameters without a gradient, costs that grow too fast."""

from __future__ import annotations

import functools
import sys
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from block_checks import WAYS, neg
from torch import Tensor, nn
from torch.utils.data import DataLoader, Subset

from graphfold import blocks as td
from graphfold.errors import EngineError


def scaled(weight: Tensor, x: Tensor) -> Tensor:
    return x * weight


class Holder:
    """Keeps a module out of torch's sight."""

    def __init__(self, layer: nn.Module) -> None:
        self.layer = layer

    def call(self, x: Tensor) -> Tensor:
        result: Tensor = self.layer(x)
        return result


class Hidden(nn.Module):
    """Has a module in a plain list."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layers = [layer]

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.layers[0](x)
        return result


#: From a layer to a function that captures it.
CAPTURES: dict[str, Callable[[nn.Linear], Callable[..., Any]]] = {
    "lambda": lambda layer: lambda x: x * layer.weight[0],
    "partial": lambda layer: functools.partial(scaled, layer.weight[0]),
    "method": lambda layer: Holder(layer).call,
    "call": lambda layer: lambda x: layer(x),
    "list": Hidden,
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("inner", [False, True])
@pytest.mark.parametrize("name", CAPTURES)
def test_a_parameter_that_nobody_would_learn_is_refused(name: str, inner: bool, way: str) -> None:
    function = td.Function(CAPTURES[name](nn.Linear(2, 2)))
    model = td.compile(td.Vector(2) >> neg() >> function if inner else td.Vector(2) >> function)
    model.run = way
    with pytest.raises(EngineError, match="requires a gradient|neither an argument"):
        model([[1, 2]])
    with torch.no_grad():
        assert model([[1, 2]]).shape == (1, 2)


def test_the_function_that_captures_is_named_also_in_training_alone() -> None:
    weight = nn.Parameter(torch.ones(2))

    class Sometimes(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * weight if self.training else x

    model = td.compile(td.Vector(2) >> Sometimes()).eval()
    assert model([[1, 2]]).tolist() == [[1, 2]]
    with pytest.raises(EngineError, match=r"<Function fn=Sometimes\(\)> reads .* shape \[2\]"):
        model.train()([[1, 2]])


def test_a_leaf_may_read_weights_of_another_module() -> None:
    layer = nn.Linear(2, 2)
    both = td.AllOf(td.Vector(2) >> layer, td.Vector(2) >> td.Function(lambda x: x @ layer.weight))
    first, second = td.compile(both)([[1, 2]])
    (first.sum() + second.sum()).backward()
    assert layer.weight.grad is not None


def calls(number: int, make: Callable[[int], Any]) -> int:
    """How many functions of Python are called by `make(number)`."""
    count = 0

    def note(frame: Any, event: str, arg: Any) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        make(number)
    finally:
        sys.setprofile(before)
    return count


def from_left(number: int) -> td.Block:
    block = td.Scalar()
    for _ in range(number):
        block = block >> neg()
    return block


def before_the_types(number: int) -> td.Block:
    block = td.Identity()
    for _ in range(number):
        block = block >> neg()
    return td.Scalar() >> block


def from_right(number: int) -> td.Block:
    block = neg()
    for _ in range(number - 1):
        block = neg() >> block
    return td.Scalar() >> block


@pytest.mark.parametrize("pipe", [from_left, before_the_types, from_right])
def test_a_row_of_blocks_costs_in_proportion_to_its_length(pipe: Callable[[int], td.Block]) -> None:
    def evaluate(number: int) -> None:
        block = pipe(number)
        assert block.eval(3, tolist=True) == 3 * (-1) ** number
        assert block.max_depth(3) == number

    evaluate(10)
    assert calls(400, evaluate) < 2.2 * calls(200, evaluate)
    evaluate(800)


def cases(number: int) -> td.Block:
    return td.OneOf(lambda x: 1, {key: td.Scalar() for key in range(number)})


def items(number: int) -> td.Block:
    return td.InputTransform(lambda x: [x] * number) >> td.Record((td.Scalar(),) * number)


def steps(number: int) -> td.Block:
    def wire(x: Any) -> Any:
        for _ in range(number):
            x = neg()(x)
        return x

    return td.Scalar() >> td.compose(wire)


@pytest.mark.parametrize("make", [cases, items, steps])
def test_wiring_costs_in_proportion_to_the_parts(make: Callable[[int], td.Block]) -> None:
    def evaluate(number: int) -> None:
        make(number).eval(1)

    evaluate(10)
    assert calls(400, evaluate) < 2.2 * calls(200, evaluate)


@pytest.mark.parametrize("make", [td.OneHot, lambda size: td.OneHotFromList(range(size))])
def test_places_take_memory_in_proportion_to_their_number(
    make: Callable[[int], td.Block],
) -> None:
    tracemalloc.start()
    try:
        block = make(4000)
        assert block.eval(3).argmax() == 3
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8_000_000  # an identity matrix has 64 MB


def test_numbers_beyond_the_examples_are_refused() -> None:
    model = td.compile(td.Scalar())
    data = td.BlockDataset(model, [1, 2, 3])
    for number in (3, -1):
        with pytest.raises(td.BlockIndexError, match=f"no example {number} among 3"):
            data[[0, number]]
    with pytest.raises(td.BlockValueError, match="num_workers is -1"):
        model.lower([1, 2], num_workers=-1)


MODEL = td.compile(td.Map(td.Scalar() >> neg()) >> td.Sum())
DATA = td.BlockDataset(MODEL, [[n] * n for n in range(7)])
WANT = [-float(n * n) for n in range(7)]


@pytest.mark.parametrize(
    "numbers",
    [
        3,
        -1,
        np.int64(2),
        torch.tensor(4),
        slice(None),
        slice(1, 6, 2),
        slice(-2, None),
        slice(5, 2),
        [],
        (3, 0, 3),
        range(2, 4),
        np.array([6, 1]),
        torch.tensor([6, 1], dtype=torch.int32),
    ],
)
def test_a_dataset_is_a_sequence_of_batches(numbers: Any) -> None:
    index = numbers if isinstance(numbers, slice) else np.asarray(numbers, np.int64)
    assert MODEL(DATA[numbers]).tolist() == np.array(WANT)[index].reshape(-1).tolist()


@pytest.mark.parametrize(
    "numbers", ["1", None, 1.0, [0.5], [True, False], [[0, 1]], [[0], [1, 2]], {"a": 1}]
)
def test_a_dataset_takes_numbers_only(numbers: Any) -> None:
    with pytest.raises(td.BlockTypeError, match="examples by number, not by .* a slice, or a list"):
        DATA[numbers]


def test_a_dataset_is_iterated_over_and_ends() -> None:
    assert [MODEL(batch).item() for batch in DATA] == WANT
    for number in (7, -8):
        with pytest.raises(td.BlockIndexError, match=f"no example {number} among 7"):
            DATA[number]


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_loader_of_torch_makes_batches_of_a_dataset(num_workers: int) -> None:
    loader = DataLoader(DATA, batch_size=3, num_workers=num_workers)
    assert [MODEL(batch).tolist() for batch in loader] == [WANT[:3], WANT[3:6], WANT[6:]]


@pytest.mark.parametrize("share", [False, True])
def test_a_loader_of_torch_takes_parts_of_datasets(share: bool) -> None:
    data = td.BlockDataset(td.compile(MODEL.root, share=share), [[n] * n for n in range(7)])
    part, other = Subset(data, [5, 0, 2]), Subset(data, [1, 1, 6])
    for dataset, want in ((part, [5, 0, 2]), (part + other, [5, 0, 2, 1, 1, 6])):
        (batch,) = DataLoader(dataset, batch_size=9)
        assert batch.schedule.is_shared == share
        assert MODEL(batch).tolist() == [WANT[number] for number in want]
    shuffled = [MODEL(batch) for batch in DataLoader(data, batch_size=2, shuffle=True)]
    assert sorted(torch.cat(shuffled).tolist()) == sorted(WANT)


@dataclass
class Pair:
    """A tree as an object of one's own."""

    left: Any
    right: Any


def deep(kind: Callable[[Any, Any], Any], leaf: Any, depth: int = 2000) -> Any:
    tree = leaf
    for _ in range(depth):
        tree = kind(tree, 1)
    return tree


def as_tuple(left: Any, right: Any) -> Any:
    return (left, right)


def as_list(left: Any, right: Any) -> Any:
    return [left, right]


@pytest.mark.parametrize("kind", [Pair, as_tuple, as_list])
def test_an_error_deep_in_an_example_is_that_of_the_block(kind: Callable[[Any, Any], Any]) -> None:
    def sides(tree: Any) -> Any:
        return (tree.left, tree.right) if isinstance(tree, Pair) else tree

    def is_leaf(tree: Any) -> bool:
        return not isinstance(tree, (Pair, tuple, list))

    @td.recursive(output_type=[])
    def tree(tree: td.Block) -> Any:
        pair = td.InputTransform(sides) >> td.Record((tree, tree)) >> td.Function(torch.add)
        return td.OneOf(is_leaf, {True: td.Scalar(), False: pair})

    model = td.compile(tree)
    assert model([deep(kind, 0)]).item() == 2000
    with pytest.raises(td.BlockValueError, match="cannot make 'bad' a tensor"):
        model([deep(kind, "bad")])


#: name -> a block that refuses a whole tree, and what it says.
WHOLES: dict[str, tuple[Callable[[], td.Block], str]] = {
    "tensor": (td.Scalar, "cannot make .* a tensor|has the shape"),
    "key": (lambda: td.GetItem("k") >> td.Scalar(), "cannot be asked for 'k'"),
    "length": (lambda: td.InputTransform(iter) >> td.Length(), "cannot tell the length"),
    "one_hot": (lambda: td.OneHot(3), "no place for"),
    "case": (lambda: td.OneOf(lambda x: x, {0: td.Scalar()}), "no case for the key"),
}


@pytest.mark.parametrize("kind", [Pair, as_list])
@pytest.mark.parametrize("name", WHOLES)
def test_an_error_shows_a_deep_example_in_a_line(
    name: str, kind: Callable[[Any, Any], Any]
) -> None:
    make, text = WHOLES[name]
    if name == "length" and kind is Pair:
        pytest.skip("a pair has no iterator")
    with pytest.raises((td.BlockTypeError, td.BlockValueError, td.BlockKeyError), match=text) as e:
        td.compile(make())([deep(kind, 0)])
    assert len(str(e.value)) < 400
