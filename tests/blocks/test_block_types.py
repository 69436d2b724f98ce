"""Types: values that can be compared, printed, flattened and converted."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from block_checks import P, add, scalar
from torch._subclasses.fake_tensor import FakeTensor

from graphfold import blocks as td

T = td.TensorType


def test_types_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        scalar.shape = (3,)  # type: ignore[misc]


@pytest.mark.parametrize(
    ("function", "taken", "given"),
    [
        (torch.neg, [2, 3], [2, 3]),
        (lambda x: x.int(), [], "int32"),
        (lambda x, y: x @ y, ([3, 2], [2, 5]), [3, 5]),
        (lambda x: [x, x.long()], [3], ([3], [3, "int64"])),
        (lambda x: [x], [3], ([3],)),
        (lambda x: x // x, "int64", "int64"),
        (torch.nn.LazyLinear(4), [3], [4]),
    ],
)
def test_output_types_of_functions(function: object, taken: object, given: object) -> None:
    block = td.Function(function).set_input_type(taken)
    assert block.output_type == td.convert_to_type(given)


def test_inference_draws_no_random_numbers() -> None:
    before = torch.get_rng_state()
    norm = torch.nn.BatchNorm1d(3)
    block = td.Vector(3) >> norm >> torch.nn.Dropout(0.5)
    assert block.output_type == td.TensorType((3,))
    assert torch.equal(torch.get_rng_state(), before)
    assert norm.num_batches_tracked == 0


class Counting(torch.nn.Module):
    """Counts its calls, in evaluation too."""

    count: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count += 1
        return x


def test_inference_leaves_buffers_as_they_are() -> None:
    counting = Counting()
    assert (td.Vector(3) >> counting).output_type == td.TensorType((3,))
    assert counting.count == 0


def test_a_function_that_fails_on_zeros_has_an_output_type() -> None:
    block = td.Tensor((2, 2)) >> td.Function(torch.linalg.inv)
    assert block.output_type == td.TensorType((2, 2))
    assert block.eval([[2, 0], [0, 4]], tolist=True) == [[0.5, 0.0], [0.0, 0.25]]


def test_large_tensors_are_not_made() -> None:
    sizes = []

    def watched(x: torch.Tensor) -> torch.Tensor:
        sizes.append(isinstance(x, FakeTensor))
        return x.sum(1)

    small, large = td.Vector(10), td.Vector(10**9)
    assert [(v >> td.Function(watched)).output_type for v in (small, large)] == [
        td.TensorType([]),
        td.TensorType([]),
    ]
    assert sizes == [False, True]


@pytest.mark.slow
def test_inference_does_not_load_the_compiler() -> None:
    code = """
import sys, torch
from graphfold import blocks as td
model = td.compile(td.Map(td.Vector(3) >> td.FC(4) >> torch.tanh) >> td.Sum(), run="eager")
model([[[1, 2, 3]]]).sum().backward()
print("torch._dynamo" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_types_go_along_pipes_in_both_directions() -> None:
    forward = td.Identity() >> td.Identity() >> td.Identity()
    assert forward.set_input_type([3]).output_type == T((3,))
    backward = td.Identity() >> (td.Identity() >> td.Identity())
    assert backward.set_output_type([3, "int8"]).input_type == T((3,), "int8")
    mapped = td.Map(td.Identity()) >> td.Identity()
    mapped.set_output_type(td.SequenceType(scalar))
    assert mapped.children[0].children[0].output_type == scalar
    assert td.AllOf(td.Identity(), td.Identity()).set_input_type([2]).output_type == td.TupleType(
        T([2]), T([2])
    )
    record = td.Record((td.Identity(), td.Identity()))
    assert record.set_output_type(([2], [])).input_type == td.TupleType(T([2]), scalar)
    assert td.Fold(add(), td.Zeros([2])).output_type == T((2,))


def test_a_type_may_be_set_by_what_stands_for_it() -> None:
    block = td.Identity()
    assert block.set_input_type(None) is block
    assert block.input_type is None
    assert block.set_input_type([3]) is block
    assert block.output_type == T((3,))
    assert block.set_output_type([3]) is block
    assert td.Identity().set_input_type((P, P)).output_type == P


def test_two_blocks_may_be_of_the_same_types() -> None:
    one, other = td.Identity().set_input_type([2]), td.InputTransform(len)
    free, declared = td.Identity(), td.ForwardDeclaration()
    free.set_io_types(one)
    assert (free.input_type, free.output_type) == (T([2]), T([2]))
    other.set_io_types(declared)
    assert (declared.input_type, declared.output_type) == (P, P)
