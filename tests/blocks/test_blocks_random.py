"""Random nested inputs: evaluated, batched and by the reference, with gradients."""

from __future__ import annotations

from typing import Any

import torch
from block_checks import WAYS, same
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from graphfold import blocks as td

numbers = st.floats(-2, 2, width=32)
words = st.lists(st.integers(-9, 9), max_size=4)
trees = st.recursive(
    st.tuples(st.integers(0, 5)), lambda inner: st.lists(inner, max_size=3), max_leaves=8
)
records = st.fixed_dictionaries(
    {
        "tree": trees,
        "words": st.lists(words, max_size=4),
        "pair": st.tuples(numbers, st.lists(numbers, min_size=3, max_size=3)),
        "maybe": st.none() | st.lists(st.tuples(numbers, st.integers(0, 3)), max_size=4),
    }
)


class Cell(nn.Module):
    """Two states into one."""

    def __init__(self) -> None:
        super().__init__()
        self.left = nn.Linear(4, 8)
        self.right = nn.Linear(4, 8)

    def forward(self, a: Any, b: Any) -> tuple[Tensor, Tensor]:
        (ha, ca), (hb, cb) = a, b
        gate, new = (self.left(ha) + self.right(hb)).chunk(2, 1)
        c = torch.sigmoid(gate) * (ca + cb) + torch.tanh(new)
        return torch.tanh(c), c


def model() -> td.Block:
    """Nearly every block, over nested data."""
    torch.manual_seed(0)
    cell = td.Function(Cell())
    vector = td.GetItem(0) >> td.Scalar("int64") >> td.Embedding(6, 4)
    leaf = vector >> td.AllOf(nn.Tanh(), nn.Linear(4, 4))
    start = nn.Parameter(torch.randn(4))
    tree = td.recursive(
        lambda tree: td.OneOf(
            lambda x: isinstance(x, tuple),
            {True: leaf, False: td.Map(tree) >> td.Reduce(cell, td.AllOf(start, start))},
        ),
        output_type=([4], [4]),
    )
    word = td.Map(td.Scalar("int32") >> td.Embedding(5, 4)) >> td.RNN(td.RNNCell(nn.LSTMCell(4, 4)))
    sentence = td.Map(word >> td.GetItem(1) >> td.GetItem(0)) >> td.AllOf(
        td.Attention(td.FC(1, None)), td.Mean(), td.Max(), td.Min(), td.Sum()
    )
    scored = (td.Scalar(), td.OneHot(4)) >> td.Concat() >> td.FC(4, torch.tanh)
    maybe = td.Optional(
        td.Map(scored)
        >> td.AllOf(
            td.NGrams(2) >> td.Map(td.Function(torch.sub)) >> td.Sum(),
            td.Fold(td.Function(torch.sub), td.FromTensor(start)),
            td.Length() >> td.AllOf(td.Identity()) >> td.Concat(),
        )
    )
    return td.Record(
        [
            ("tree", tree),
            ("words", sentence),
            ("pair", (td.Scalar(), td.Vector(3)) >> td.Concat() >> td.FC(4)),
            ("maybe", maybe),
            ("words", td.Map(td.Map(td.Scalar("int64")) >> td.Sum()) >> td.Max()),
        ]
    )


ROOT = model()
MODEL = td.compile(ROOT).double()


def tensors(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    return [tensor for item in value for tensor in tensors(item)]


def gradients(outputs: list[Tensor]) -> list[Tensor]:
    parameters = list(MODEL.parameters())
    loss = sum((t.double().square().sum() for t in outputs), torch.zeros((), dtype=torch.float64))
    grads = torch.autograd.grad(loss, parameters, allow_unused=True)
    return [torch.zeros_like(p) if g is None else g for p, g in zip(parameters, grads, strict=True)]


@settings(max_examples=5)
@given(examples=st.lists(records, min_size=1, max_size=4))
def test_eval_is_batched_is_reference(examples: list[Any]) -> None:
    alone = [ROOT.eval(example) for example in examples]
    want = gradients(tensors(alone))
    for way in WAYS:
        MODEL.run = way
        output = MODEL(examples)
        for number, value in enumerate(alone):
            same(_pick(output, number), value)
        for got, expected in zip(gradients(tensors(output)), want, strict=True):
            torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-9)


def _pick(batched: Any, number: int) -> Any:
    if isinstance(batched, tuple):
        return tuple(_pick(item, number) for item in batched)
    return batched[number]


@given(example=records)
def test_order_of_examples_only_reorders_outputs(example: Any) -> None:
    other = {"tree": (1,), "words": [], "pair": (0, [1, 2, 3]), "maybe": None}
    MODEL.run = "auto"
    first, second = MODEL([example, other]), MODEL([other, example])
    for a, b in zip(tensors(first), tensors(second), strict=True):
        torch.testing.assert_close(a, b.flip(0))


@given(batch=st.lists(st.lists(st.lists(numbers, max_size=3), max_size=3), min_size=1, max_size=3))
def test_ragged_outputs(batch: list[Any]) -> None:
    block = td.Map(td.Map(td.Scalar() >> td.AllOf(td.Function(torch.exp), td.Metric("m"))))
    output = td.compile(block, ragged=True)(batch)
    for got, example in zip(output, batch, strict=True):
        assert len(got) == len(example)
        for row, numbers_of_row in zip(got, example, strict=True):
            assert all(nothing is None for _, nothing in row)
            values = torch.tensor([value for value, _ in row])
            torch.testing.assert_close(values, torch.tensor(numbers_of_row).exp())


@given(batch=st.lists(st.lists(st.lists(numbers, max_size=3), max_size=3), max_size=3))
def test_a_ragged_output_is_what_eval_gives(batch: list[Any]) -> None:
    element = td.AllOf(td.Scalar(), td.AllOf(td.Scalar() >> td.Function(torch.exp), td.Zeros(())))
    inside = td.Map(element) >> td.AllOf(td.NGrams(2), td.Length(), td.Map(td.GetItem(0)))
    block = td.AllOf(td.Map(inside), td.Map(td.Map(element)), td.Map(td.Void()))
    columns = td.compile(block, ragged=True)(batch)
    for number, example in enumerate(batch):
        got = _listed(tuple(column[number] for column in columns))
        assert got == _listed(block.eval(example))


def _listed(value: Any) -> Any:
    """Turns tensors into numbers, also within lists and tuples."""
    if isinstance(value, (list, tuple)):
        return type(value)(map(_listed, value))
    return value if value is None else value.tolist()
