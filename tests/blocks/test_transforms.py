"""Models of blocks within transforms of torch.func, before and after their first call."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.func import functional_call

from graphfold import blocks as td

EXAMPLES = [[[1.0, 2.0], [3.0, 4.0]], [[5.0, 6.0]]]


def model(way: str) -> td.CompiledModel:
    torch.manual_seed(0)
    rows = td.Map(td.Vector(2) >> td.FC(4)) >> td.Fold(td.Concat() >> td.FC(3), td.Zeros(3))
    return td.compile(rows, run=way)


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("way", ["auto", "eager", "reference"])
def test_gradients_of_a_transform_are_those_of_autograd(way: str, is_first: bool) -> None:
    made = model(way)
    parameters = dict(made.named_parameters())

    def loss(values: dict[str, Tensor]) -> Tensor:
        return functional_call(made, values, (EXAMPLES,)).square().sum()

    if not is_first:
        loss(parameters)
    actual = torch.func.grad(loss)(parameters)
    grads = torch.autograd.grad(loss(parameters), list(parameters.values()))
    torch.testing.assert_close(actual, dict(zip(parameters, grads, strict=True)))


def test_another_default_device() -> None:
    want = model("auto")(EXAMPLES)
    made = model("auto")
    with torch.device("meta"):  # as torch.set_default_device
        actual = made(EXAMPLES)
    torch.testing.assert_close(actual, want)
