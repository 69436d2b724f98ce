"""FC and Embedding, as TensorFlow Fold's tests have them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from block_checks import array, goes_wrong
from torch import nn
from torch.nn import functional as F

from graphfold import blocks as td

T = td.TensorType
TABLE = np.array([[1, 2], [3, 4]])


def filled(value: float) -> Any:
    return lambda weight: nn.init.constant_(weight, value)


def of(layer: td.Layer, vectors: Any) -> Any:
    """The outputs of a layer for some vectors, in training."""
    return td.compile(td.Vector(len(vectors[0])) >> layer)(vectors).tolist()


def test_fc_without_an_activation() -> None:
    layer = td.FC(1, None, filled(2))
    assert of(layer, [[0, 0], [1, 0], [0, 1], [1, 1]]) == [[0.0], [2.0], [2.0], [4.0]]
    assert (layer.weight.shape, layer.bias.tolist()) == ((1, 2), [0.0])


def test_fc_is_a_relu_by_default() -> None:
    assert of(td.FC(2, initializer=filled(3)), [[-1], [0], [1]]) == [[0, 0], [0, 0], [3, 3]]


def test_fc_with_weights_of_a_length() -> None:
    layer = td.FC(1, None, filled(2), weight_norm=True)
    block = td.Vector(2) >> layer
    one = 2 / 8**0.5
    examples = [[0, 0], [1, 0], [0, 1], [1, 1]]
    want = torch.tensor([[0.0], [one], [one], [2 * one]])
    torch.testing.assert_close(td.compile(block)(examples), want)
    assert layer.scales is not None
    nn.init.constant_(layer.scales, 2)
    torch.testing.assert_close(td.compile(block)(examples), 2 * want)


def test_fc_normalises_before_the_activation_if_there_is_one() -> None:
    def halved(x: torch.Tensor) -> torch.Tensor:
        return x / 2

    vectors = [[-1], [0], [1]]
    assert of(td.FC(1, F.relu, filled(4), normalization_fn=halved), vectors) == [[0], [0], [2]]
    assert of(td.FC(1, None, filled(4), normalization_fn=halved), vectors) == [[-4], [0], [4]]


@pytest.mark.parametrize("side", ["input_keep_prob", "output_keep_prob"])
def test_fc_drops_numbers_in_training_alone(side: str) -> None:
    options: Any = {side: 1.0}, {side: 1e-9}
    kept = td.FC(1, None, filled(2), **options[0])
    assert of(kept, [[0], [1]]) == [[0.0], [2.0]]
    lost = td.FC(1, None, filled(2), **options[1])
    assert of(lost, [[0], [1]]) == [[0.0], [0.0]]
    model = td.compile(td.Vector(1) >> lost).eval()
    assert model([[0], [1]]).tolist() == [[0.0], [2.0]]


def test_layers_are_piped_like_blocks() -> None:
    two = td.Vector(1) >> (td.FC(1, None, filled(2)) >> td.FC(1, None, filled(3)))
    assert two.eval([1.0], tolist=True) == [6.0]
    constant = array([3]) >> td.FC(1, None, filled(2))
    assert constant.eval(None, tolist=True) == [6.0]
    tensor = torch.tensor([3.0]) >> td.FC(1, None, filled(2))
    assert tensor.eval(None, tolist=True) == [6.0]
    wrapped = td.Vector(1) >> td.Function(td.FC(1, None, filled(2)))
    assert wrapped.eval([3], tolist=True) == [6.0]
    mapped = td.Map(td.Vector(1) >> td.FC(1, None, filled(2))) >> td.Sum()
    assert td.compile(mapped)([[[1], [2]], []]).tolist() == [[6.0], [0.0]]


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "int64"])
def test_embedding_goes_round(dtype: str) -> None:
    model = td.compile(td.Scalar(dtype) >> td.Embedding(2, 2, TABLE))
    want = {0: [1.0, 2.0], 1: [3.0, 4.0], 7: [3.0, 4.0], -5: [3.0, 4.0], 4: [1.0, 2.0]}
    numbers = [n for n in want if n >= 0 or dtype != "uint8"]
    assert model(numbers).tolist() == [want[n] for n in numbers]


def test_embedding_starts_from_its_table() -> None:
    assert of_number(td.Embedding(2, 2, torch.tensor(TABLE)), 1) == [3.0, 4.0]
    assert of_number(td.Embedding(2, 3, filled(7)), 1) == [7.0] * 3
    fixed = td.Embedding(2, 2, TABLE, trainable=False)
    assert not fixed.weight.requires_grad
    learned = td.Embedding(2, 2, TABLE)
    td.compile(td.Scalar("int32") >> learned)([1, 1, 0]).sum().backward()
    assert learned.weight.grad is not None
    assert learned.weight.grad.tolist() == [[1.0, 1.0], [2.0, 2.0]]


def of_number(layer: td.Layer, number: int) -> Any:
    return (td.Scalar("int64") >> layer).eval(number, tolist=True)


def test_a_layer_has_one_input_type() -> None:
    layer = td.FC(2)
    td.Vector(2) >> layer
    goes_wrong((lambda: td.Vector(3) >> layer, TypeError, "Type mismatch between input type"))


def test_embedding_may_refuse_what_is_out_of_range() -> None:
    layer = td.Embedding(2, 2, mod_inputs=False)
    for number in (2, -1):
        text = f"Embedding_2_2 has vectors for 0 to 1, but is asked for {number}"
        goes_wrong((lambda number=number: of_number(layer, number), IndexError, text))  # type: ignore
        with pytest.raises(td.BlockIndexError, match=text):
            (td.Scalar("int64") >> layer).eval(number)


def test_a_layer_is_called_on_batches_before_it_is_connected() -> None:
    layer = td.FC(1, None, filled(2))
    assert layer(torch.tensor([[1.0, 1.0], [0.0, 3.0]])).tolist() == [[4.0], [6.0]]
    assert (layer.input_type, layer.output_size) == (T([2]), 1)
    assert (td.Vector(2) >> layer).eval([1, 2], tolist=True) == [6.0]
    assert td.Embedding(2, 2, TABLE)(torch.tensor([1, 2])).tolist() == [[3.0, 4.0], [1.0, 2.0]]


def test_a_layer_that_is_called_refuses_what_it_could_not_be_connected_to() -> None:
    layer = td.FC(2)
    goes_wrong((lambda: layer(torch.ones(3)), TypeError, "FC input shape must be 1D"))
    goes_wrong((lambda: layer(torch.ones(3, 2).long()), TypeError, "FC input dtype"))
    goes_wrong((lambda: layer(torch.ones(())), TypeError, "Add a dimension"))
    goes_wrong((lambda: layer([1.0, 2.0]), TypeError, "layers take batches of tensors"))
    layer(torch.ones(3, 4))
    text = r"Type mismatch between input type .*\(5,\).* and expected input type .*\(4,\)"
    goes_wrong((lambda: layer(torch.ones(3, 5)), TypeError, text))
    embedding = td.Embedding(2, 2)
    goes_wrong((lambda: embedding(torch.ones(3)), TypeError, "Embeddings take integer inputs"))
    with pytest.raises(RuntimeError, match="dtype"):  # shapes fit, so it is torch's to say
        layer(torch.ones(3, 4).double())


class Both(td.Layer):
    """A layer of two arguments, the second a pair."""

    def build(self, kind: td.ResultType) -> None:
        self.kind = kind

    def forward(self, x: Any, pair: Any) -> Any:
        return x + pair[0] @ pair[1]


def test_a_layer_of_several_arguments_takes_a_tuple() -> None:
    layer = Both()
    x, a, b = torch.ones(5, 2, 3), torch.ones(5, 2, 4), torch.ones(5, 4, 3)
    assert layer(x, (a, b)).shape == (5, 2, 3)
    assert layer.input_type == td.convert_to_type(([2, 3], ([2, 4], [4, 3])))
    goes_wrong((lambda: layer(x, (a, a)), TypeError, "Type mismatch"))
