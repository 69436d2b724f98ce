"""RNN, as TensorFlow Fold's tests have it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from block_checks import add, check_batched
from fold_checks import Cases, Faults, array, goes_wrong, hold, numbers
from torch import Tensor, nn

from graphfold import blocks as td

T = td.TensorType


def squares(x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    return x * x, state + x[:, None]


def from_input() -> td.Block:
    cell = td.Function(squares)
    return (numbers(), td.Vector(2)) >> td.RNN(cell, initial_state_from_input=True)


def two_states(x: Tensor, state: Any) -> Any:
    return x + state[0], (state[1], x)


def letters() -> td.Block:
    return td.Map(td.InputTransform(ord) >> td.Scalar("int32") >> td.Embedding(256, 8))


VALUES: Cases = {
    "empty": (from_input, ([], [0, 0]), ([], [0.0, 0.0]), 0),
    "four": (from_input, ([1, 2, 3, 4], [0, 0]), ([1.0, 4.0, 9.0, 16.0], [10.0, 10.0]), 4),
    "state": (from_input, ([], [5, 6]), ([], [5.0, 6.0]), 0),
    "given": (
        lambda: numbers() >> td.RNN(td.Function(squares), array([1, 2])),
        [1, 2],
        ([1.0, 4.0], [4.0, 5.0]),
        2,
    ),
    "given_empty": (
        lambda: numbers() >> td.RNN(td.Function(squares), initial_state=torch.ones(2)),
        [],
        ([], [1.0, 1.0]),
        0,
    ),
    "zeros": (
        lambda: numbers() >> td.RNN(td.Function(squares).set_output_type(([], [2]))),
        [3],
        ([9.0], [3.0, 3.0]),
        1,
    ),
    "tuple": (
        lambda: numbers() >> td.RNN(td.Function(two_states), td.Zeros(([], []))),
        [1, 2, 3],
        ([1.0, 2.0, 4.0], (2.0, 3.0)),
        3,
    ),
    "last": (
        lambda: numbers() >> td.RNN(td.Function(squares), array([0])) >> td.GetItem(1),
        [1, 2],
        [3.0],
        2,
    ),
}

FAULTS: Faults = {
    "both": (
        lambda: td.RNN(td.Function(squares), array([0, 0]), initial_state_from_input=True),
        ValueError,
        "Cannot specify initial_state if initial_state_from_input is True.",
    ),
    "unknown": (
        lambda: td.RNN(td.Function(squares)),
        TypeError,
        "cannot infer initial_state type from cell",
    ),
    "no_tuple": (lambda: td.RNN(td.FC(3)), TypeError, r"a two-tuple of \(output_elem, state\)"),
    "three": (
        lambda: td.RNN(td.Function(squares).set_output_type(([], [], []))),
        TypeError,
        r"expected a two-tuple of \(output_elem, state\)",
    ),
    "vector": (
        lambda: td.Vector(2) >> td.RNN(td.Function(squares), array([0])),
        TypeError,
        "First RNN input must be a sequence: TensorType",
    ),
    "pair": (
        lambda: (td.Scalar(), td.Scalar()) >> td.RNN(td.Function(squares), array([0])),
        TypeError,
        "First RNN input must be a sequence: TupleType",
    ),
    "endless": (
        lambda: td.Scalar() >> td.Broadcast() >> td.RNN(td.Function(squares), array([0])),
        TypeError,
        "cannot run an RNN on an infinite sequence",
    ),
    "state": (
        lambda: numbers() >> td.RNN(td.Function(lambda x, s: (x, x)), array([0])),
        TypeError,
        "RNN cell input and output state types don't match",
    ),
    "input": (
        lambda: (numbers(), td.Scalar(), td.Scalar()) >> td.RNN(add(), None, True),
        TypeError,
        r"expected a two-tuple of \(input_sequence, state\)",
    ),
    "cell_input": (
        lambda: td.RNN(td.Function(torch.neg).set_input_type([2]), None, True),
        TypeError,
        r"expected a two-tuple of \(input_elem, state\)",
    ),
    "cell_inputs": (
        lambda: td.RNN(td.Identity().set_input_type(([], [], [])), None, True),
        TypeError,
        r"expected a two-tuple of \(input_elem, state\)",
    ),
    "cell_output": (
        lambda: numbers() >> td.RNN(add(), torch.zeros([])),
        TypeError,
        r"expected a two-tuple of \(output_elem, state\)",
    ),
    "no_cell": (lambda: td.RNNCell(nn.Linear(2, 2)), TypeError, "no recurrent cell"),  # type: ignore
}


@pytest.mark.parametrize("name", VALUES)
def test_value(name: str) -> None:
    hold(*VALUES[name])


@pytest.mark.parametrize("name", FAULTS)
def test_error(name: str) -> None:
    goes_wrong(FAULTS[name])


@pytest.mark.parametrize("state", [None, torch.ones(4), td.FromTensor(torch.ones(4))])
def test_gru_from_any_state(state: Any) -> None:
    block = letters() >> td.RNN(td.RNNCell(nn.GRUCell(8, 4)), initial_state=state)
    assert block.output_type == td.TupleType(td.SequenceType(T([4])), T([4]))
    outputs, last = block.eval("foo")
    assert len(outputs) == 3
    torch.testing.assert_close(outputs[-1], last)
    assert block.eval("", tolist=True) == ([], [0.0 if state is None else 1.0] * 4)
    check_batched(block, ["foo", "", "a"])


def test_an_lstm_has_two_states() -> None:
    block = letters() >> td.RNN(td.RNNCell(nn.LSTMCell(8, 4)))
    assert block.output_type == td.TupleType(td.SequenceType(T([4])), td.TupleType(T([4]), T([4])))
    outputs, (h, c) = block.eval("foo")
    torch.testing.assert_close(outputs[-1], h)
    assert not torch.equal(h, c)
    check_batched(block, ["foo", ""])


def test_words_of_letters() -> None:
    word = letters() >> td.RNN(td.RNNCell(nn.LSTMCell(8, 4))) >> td.GetItem(1) >> td.GetItem(1)
    sentence = td.Map(word) >> td.RNN(td.RNNCell(nn.LSTMCell(4, 3)))
    assert sentence.max_depth(["the", "cat", "sat"]) == 1 + 3 + 3
    check_batched(sentence, [["the", "cat"], [], ["a"]])


def lstm(size: int) -> td.Block:
    """An LSTM cell wired of four layers; its state is (c, y)."""
    cell = td.Composition(name="lstm")
    with cell.scope():
        state = td.Identity().reads(cell.input[1])
        both = td.Concat().reads(cell.input[0], state[1])
        parts = [torch.sigmoid, torch.tanh, torch.sigmoid, torch.sigmoid]
        into, new, forget, out = (td.Function(td.FC(size, f)).reads(both) for f in parts)
        kept = td.Function(torch.mul).reads(forget, state[0])
        c = add().reads(kept, td.Function(torch.mul).reads(into, new))
        y = td.Function(torch.mul).reads(out, td.Function(torch.tanh).reads(c))
        cell.output.reads(y, td.AllOf(td.GetItem(0), td.GetItem(1)).reads(c, y))
    return cell


def test_a_cell_may_be_a_composition() -> None:
    start = td.AllOf(td.Zeros(4), td.Zeros(4))
    block = td.Map(td.Vector(2)) >> td.RNN(lstm(4), initial_state=start)
    assert block.eval([], tolist=True) == ([], ([0.0] * 4, [0.0] * 4))
    assert block.output_type == td.TupleType(td.SequenceType(T([4])), td.TupleType(T([4]), T([4])))
    check_batched(block, [[[1, 2], [3, 4], [5, 6]], [], [[1, 2]]])


@pytest.mark.parametrize("wrap", [lambda cell: cell, td.Function, td.RNNCell])
@pytest.mark.parametrize("cell", [nn.GRUCell(2, 3), nn.LSTMCell(2, 3), nn.RNNCell(2, 3)])
def test_a_cell_of_torch_is_used_as_it_is(wrap: Any, cell: Any) -> None:
    block = td.Map(td.Vector(2)) >> td.RNN(wrap(cell)) >> td.GetItem(1)
    state = td.TupleType(T([3]), T([3])) if isinstance(cell, nn.LSTMCell) else T([3])
    assert block.output_type == state
    h: Any = None
    for row in torch.eye(2):
        h = cell(row[None], h)
    got = block.eval(torch.eye(2).tolist())
    got = got if isinstance(got, tuple) else (got,)
    torch.testing.assert_close(torch.stack(got), torch.cat(h if isinstance(h, tuple) else (h,)))
    check_batched(block, [torch.eye(2).tolist(), []])


def test_a_cell_of_torch_takes_a_state_from_the_input() -> None:
    rnn = td.RNN(nn.GRUCell(2, 3), initial_state_from_input=True)
    block = (td.Map(td.Vector(2)), td.Vector(3)) >> rnn
    assert block.eval(([], [1, 2, 3]), tolist=True) == ([], [1.0, 2.0, 3.0])
    given = td.Map(td.Vector(2)) >> td.RNN(nn.GRUCell(2, 3), torch.ones(3))
    assert given.eval([], tolist=True) == ([], [1.0] * 3)
