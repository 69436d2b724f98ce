"""RNN, as TensorFlow Fold's tests have it, and recurrent cells of torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from block_checks import array, check_batched, hold, numbers, squares
from torch import Tensor, nn

from graphfold import blocks as td

T = td.TensorType


def from_input() -> td.Block:
    cell = td.Function(squares)
    return (numbers(), td.Vector(2)) >> td.RNN(cell, initial_state_from_input=True)


def from_value() -> td.Block:
    return numbers() >> td.RNN(td.Function(squares), array([1, 2]))


def from_zeros() -> td.Block:
    return numbers() >> td.RNN(td.Function(squares).set_output_type(([], [2])))


def two_states(x: Tensor, state: Any) -> Any:
    return x + state[0], (state[1], x)


def of_pairs() -> td.Block:
    return numbers() >> td.RNN(td.Function(two_states), td.Zeros(([], [])))


@pytest.mark.parametrize(
    ("make", "example", "expected", "depth"),
    [
        (from_input, ([1, 2, 3, 4], [0, 0]), ([1.0, 4.0, 9.0, 16.0], [10.0, 10.0]), 4),
        (from_input, ([], [5, 6]), ([], [5.0, 6.0]), 0),
        (from_value, [1, 2], ([1.0, 4.0], [4.0, 5.0]), 2),
        (from_zeros, [3], ([9.0], [3.0, 3.0]), 1),
        (of_pairs, [1, 2, 3], ([1.0, 2.0, 4.0], (2.0, 3.0)), 3),
    ],
)
def test_outputs_and_last_state(
    make: Callable[[], td.Block], example: Any, expected: Any, depth: int
) -> None:
    hold(make, example, expected, depth)


@pytest.mark.parametrize("kind", ["GRU", "LSTM", "RNN"])
def test_cells_of_torch_run_like_the_layers_of_torch(kind: str) -> None:
    cell, layer = getattr(nn, f"{kind}Cell")(2, 3), getattr(nn, kind)(2, 3)
    layer.load_state_dict({f"{name}_l0": value for name, value in cell.state_dict().items()})
    values = torch.randn(5, 2)
    outputs, state = layer(values)
    block = td.Map(td.Vector(2)) >> td.RNN(cell)
    got, last = block.eval(values.tolist())
    torch.testing.assert_close(torch.stack(got), outputs)
    torch.testing.assert_close(last, tuple(s[0] for s in state) if kind == "LSTM" else state[0])
    pair = td.TupleType(T([3]), T([3])) if kind == "LSTM" else T([3])
    assert block.output_type == td.TupleType(td.SequenceType(T([3])), pair)
    check_batched(block, [values.tolist(), []])


@pytest.mark.parametrize("wrap", [td.Function, td.RNNCell])
def test_a_cell_of_torch_may_be_wrapped(wrap: Any) -> None:
    cell = nn.LSTMCell(2, 3)
    plain, wrapped = (td.Map(td.Vector(2)) >> td.RNN(c) for c in (cell, wrap(cell)))
    torch.testing.assert_close(wrapped.eval([[1, 2], [3, 4]]), plain.eval([[1, 2], [3, 4]]))


def test_a_cell_of_torch_takes_a_state_from_the_input() -> None:
    rnn = td.RNN(nn.GRUCell(2, 3), initial_state_from_input=True)
    block = (td.Map(td.Vector(2)), td.Vector(3)) >> rnn
    assert block.eval(([], [1, 2, 3]), tolist=True) == ([], [1.0, 2.0, 3.0])
    given = td.Map(td.Vector(2)) >> td.RNN(nn.GRUCell(2, 3), torch.ones(3))
    assert given.eval([], tolist=True) == ([], [1.0] * 3)
