"""Texts that blocks print: as in TensorFlow Fold's tests, without the prefix `td.`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from block_checks import add
from torch import nn

from graphfold import blocks as td

Blocks = td.Block
SCALAR = "<Scalar dtype='float32'>"


def composition() -> td.Composition:
    return td.Composition(name="x")


# Fold prints the combine block of a sum, too; here a sum is one node and has none.
PRINTED: dict[str, Callable[[], Any]] = {
    "<Tensor dtype='float32' shape=()>": lambda: td.Tensor([]),
    "<Tensor 'foo' dtype='int32' shape=(1, 2)>": lambda: td.Tensor([1, 2], "int32", name="foo"),
    "<Scalar dtype='int64'>": lambda: td.Scalar("int64"),
    "<Scalar 'foo' dtype='float32'>": lambda: td.Scalar(name="foo"),
    "<Vector dtype='float32' size=42>": lambda: td.Vector(42),
    "<Function 'foo' fn='neg'>": lambda: td.Function(torch.neg, name="foo"),
    "<Function fn='add'>": lambda: td.Function(partial(torch.add, alpha=2)),
    "<Identity>": td.Identity,
    "<Identity 'foo'>": lambda: td.Identity("foo"),
    "<InputTransform py_fn='ord'>": lambda: td.InputTransform(ord),
    "<InputTransform 'foo' py_fn='ord'>": lambda: td.InputTransform(ord, "foo"),
    "<GetItem 'mu' key=3>": lambda: td.GetItem(3, "mu"),
    "<Length dtype='float32'>": td.Length,
    "<Slice key=slice(None, 2, None)>": lambda: td.Slice(stop=2),
    "<ForwardDeclaration() 'foo'>": lambda: td.ForwardDeclaration(name="foo")(),
    "<Composition 'x'>": composition,
    "<Composition.input 'x'>": lambda: composition().input,
    "<Composition.output 'x'>": lambda: composition().output,
    "<Pipe>": lambda: td.Pipe(td.Scalar(), td.Identity()),
    "<Pipe 'x'>": lambda: td.Pipe(td.Scalar(), td.Identity(), name="x"),
    "<Record 'x' ordered=False>": lambda: td.Record({}, name="x"),
    "<Record ordered=True>": lambda: td.Record((td.Scalar(),)),
    "<AllOf>": td.AllOf,
    "<AllOf 'x'>": lambda: td.AllOf(td.Scalar(), td.Scalar(), name="x"),
    "<FromTensor 'x'>": lambda: td.FromTensor(np.ones(2), "x"),
    f"<Map 'x' element_block={SCALAR}>": lambda: td.Map(td.Scalar(), name="x"),
    "<Fold 'x' combine_block=<Function fn='add'> start_block=<Zeros>>": lambda: td.Fold(
        add(), td.Zeros([]), name="x"
    ),
    "<RNN 'x'>": lambda: td.RNN(td.RNNCell(nn.GRUCell(2, 2)), name="x"),
    "<Reduce 'foo' combine_block=<Function fn='add'>>": lambda: td.Reduce(add(), name="foo"),
    "<Sum 'foo'>": lambda: td.Sum("foo"),
    "<Min 'foo'>": lambda: td.Min("foo"),
    "<Max 'foo'>": lambda: td.Max("foo"),
    "<Mean 'foo'>": lambda: td.Mean("foo"),
    "<OneOf 'x'>": lambda: td.OneOf(len, (td.Scalar(),), name="x"),
    f"<Optional 'foo' some_case_block={SCALAR}>": lambda: td.Optional(td.Scalar(), name="foo"),
    "<Concat 'x' concat_dim=1 flatten=True>": lambda: td.Concat(1, True, "x"),
    "<Broadcast 'x'>": lambda: td.Broadcast("x"),
    "<Zip 'x'>": lambda: td.Zip("x"),
    "<Nth 'x'>": lambda: td.Nth("x"),
    "<Void 'x'>": lambda: td.Void("x"),
    "<Zeros 'x'>": lambda: td.Zeros(([], [2]), "x"),
    "<NGrams 'x' n=42>": lambda: td.NGrams(42, "x"),
    "<OneHot dtype='float32' start=2 stop=3>": lambda: td.OneHot(2, 3),
    "<OneHot dtype='float32' start=0 stop=3>": lambda: td.OneHot(3),
    "<OneHotFromList>": lambda: td.OneHotFromList([1]),
    "<OneHotFromList 'x'>": lambda: td.OneHotFromList([1], name="x"),
    "<Metric 'foo'>": lambda: td.Metric("foo"),
}


@pytest.mark.parametrize("text", PRINTED)
def test_blocks_print_what_they_were_made_of(text: str) -> None:
    assert repr(PRINTED[text]()) == str(PRINTED[text]()) == text


@pytest.mark.parametrize("make", [td.Pipe, lambda: td.Pipe(td.Identity())])
def test_the_empty_pipe_is_the_identity(make: Callable[[], Blocks]) -> None:
    assert str(make()) == "<Identity>"


def test_names_are_those_of_fold() -> None:
    """Every public name of Fold's blocks is one of ours."""
    folds = (
        "Tensor Scalar Vector InputTransform OneHot OneHotFromList Optional Composition Pipe",
        "Record AllOf FromTensor Function Concat Zeros Map Fold RNN Reduce Sum Min Max Mean",
        "Broadcast Zip ZipWith NGrams Nth GetItem Length Slice ForwardDeclaration OneOf Metric",
        "Identity Void FC Embedding TensorType VoidType PyObjectType TupleType SequenceType",
        "BroadcastSequenceType convert_to_block convert_to_type canonicalize_type Block Layer",
    )
    names = [name for line in folds for name in line.split()]
    assert {*names} <= {*td.__all__}
    assert all(hasattr(td, name) for name in td.__all__)
