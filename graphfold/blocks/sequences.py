"""Blocks on the elements of sequences, and attention over them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import Any

import torch
from torch import Tensor

from graphfold.blocks.block import Block, convert_to_block
from graphfold.blocks.block_errors import BlockTypeError, BlockValueError
from graphfold.blocks.composition import compose
from graphfold.blocks.contexts import Context, Steps
from graphfold.blocks.function import Function
from graphfold.blocks.inference.types import (
    BroadcastSequenceType,
    PyObjectType,
    ResultType,
    SequenceType,
    TupleType,
    element_type_of,
)
from graphfold.blocks.reductions import Max, Sum
from graphfold.blocks.selection import elements_of


class Map(Block):
    """Applies a block to every element of a sequence, a tuple of equals or an iterable object.

    Args:
        elem_block: the block.
    """

    is_simple = False
    expected_input = (SequenceType, TupleType, PyObjectType)
    expected_output = (SequenceType, PyObjectType)

    def __init__(self, elem_block: Any, name: str | None = None) -> None:
        self.element_block = convert_to_block(elem_block)
        self._facts = {"element_block": self.element_block}
        super().__init__([self.element_block], name=name)

    def steps(self, context: Context, x: Any) -> Steps:
        block = self.element_block
        if isinstance(x, repeat):
            return repeat((yield block, next(x)))
        if block.is_simple:
            return [block.apply(context, item) for item in elements_of(x, self)]
        results = []
        for item in elements_of(x, self):
            result = yield block, item
            results.append(result)
        return results

    def always(self) -> Sequence[Block]:
        return ()

    def _infer_from_input(self, kind: ResultType) -> None:
        self.element_block.set_input_type(element_type_of(kind, self))
        self._give(self.element_block.output_type)

    def _infer_from_output(self, kind: ResultType) -> None:
        self.element_block.set_output_type(element_type_of(kind, self))

    def _infer_from_child(self, child: Block) -> None:
        if self.input_type is not None:
            child.set_input_type(element_type_of(self.input_type, self))
        if self.input_type is not None or self.output_type is None:
            self._give(child.output_type)

    def _give(self, element: ResultType | None) -> None:
        """Sets the output type to a sequence of these elements."""
        if element is not None:
            endless = isinstance(self.input_type, BroadcastSequenceType)
            self.set_output_type((BroadcastSequenceType if endless else SequenceType)(element))


class Broadcast(Block):
    """An endless sequence of the input, to be zipped with a finite one."""

    expected_output = (BroadcastSequenceType,)

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name=name)

    def apply(self, context: Context, x: Any) -> Any:
        return repeat(x)

    def _infer_from_input(self, kind: ResultType) -> None:
        self.set_output_type(BroadcastSequenceType(kind))


class Zip(Block):
    """A sequence of tuples from a tuple of sequences, as long as the shortest."""

    expected_input = (TupleType,)
    expected_output = (SequenceType,)

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name=name)

    def apply(self, context: Context, x: Any) -> Any:
        if isinstance(self.output_type, BroadcastSequenceType):
            return repeat(tuple(next(item) for item in x))
        return list(zip(*(elements_of(item, self) for item in x), strict=False))

    def _infer_from_input(self, kind: ResultType) -> None:
        assert isinstance(kind, TupleType)
        if not len(kind):
            raise BlockTypeError(f"{self}: zip requires at least one input sequence. Give it one.")
        for item in kind:
            if not isinstance(item, (SequenceType, PyObjectType)):
                raise BlockTypeError(
                    f"{self}: item types must be sequences: {item}. Use Broadcast for a single "
                    "value."
                )
        element = TupleType(*(element_type_of(item, self) for item in kind))
        endless = all(isinstance(item, BroadcastSequenceType) for item in kind)
        self.set_output_type((BroadcastSequenceType if endless else SequenceType)(element))


def ZipWith(elem_block: Any, name: str | None = None) -> Block:
    """`Zip() >> Map(elem_block)`.

    Args:
        elem_block: a block that takes a tuple.
        name: the name of the `Map`.
    """
    return Zip() >> Map(elem_block, name)


class NGrams(Block):
    """All runs of n neighbours in a sequence, as a sequence of tuples.

    Args:
        n: the length of a run.

    Raises:
        BlockTypeError: if n is no integer.
        BlockValueError: if n is less than 1.
    """

    expected_input = (SequenceType,)
    expected_output = (SequenceType,)

    def __init__(self, n: int, name: str | None = None) -> None:
        if not isinstance(n, int):
            raise BlockTypeError(f"n must be an integer: {n!r}. Say how many go together.")
        if n <= 0:
            raise BlockValueError(f"n must be positive: {n}. Give at least 1.")
        self.n = n
        self._facts = {"n": n}
        super().__init__(name=name)

    def apply(self, context: Context, x: Any) -> Any:
        if isinstance(x, repeat):
            return repeat((next(x),) * self.n)
        return [tuple(x[start : start + self.n]) for start in range(len(x) - self.n + 1)]

    def _infer_from_input(self, kind: ResultType) -> None:
        assert isinstance(kind, SequenceType)
        self.set_output_type(type(kind)(TupleType(*[kind.element_type] * self.n)))


def Attention(score: Any, name: str | None = None) -> Block:
    """The mean of a sequence's elements, weighted by the softmax of their scores; zeros of none.

    Feed-forward attention: Raffel and Ellis (2015), https://arxiv.org/abs/1512.08756, equations 2
    to 4; an example of composition in the paper of Fold (section 3.5). For attention that depends
    on something else, let the elements be tuples (`Zip` with a `Broadcast`) and use `attend`.

    Args:
        score: from an element to its score, a scalar or a vector of one number.
        name: its name; by default "attention".

    Raises:
        BlockTypeError: if the score is not one number.
    """
    scorer = convert_to_block(score)
    return compose(lambda x: attend(Map(scorer)(x), x), name or "attention")


def attend(scores: Any, values: Any) -> Any:
    """Within `compose`: the mean of `values`, weighted by the softmax of `scores`.

    Args:
        scores: a sequence of scores, each a scalar or a vector of one number.
        values: a sequence of tensors, as many.
    """
    largest = Broadcast()(Max()(scores))
    weights = Map(Function(_exp_difference, "exp"))(Zip()(scores, largest))
    weighted = Map(Function(_scaled, "scale"))(Zip()(weights, values))
    return Function(_divided, "divide")(Sum()(weighted), Sum()(weights))


def _exp_difference(score: Tensor, largest: Tensor) -> Tensor:
    # Without the largest score nothing overflows; it cancels, so it needs no gradient.
    return torch.exp(score - largest.detach())


def _scaled(weight: Tensor, value: Tensor) -> Tensor:
    return weight.reshape(-1, *[1] * (value.dim() - 1)) * value


def _divided(total: Tensor, weight: Tensor) -> Tensor:
    weight = weight.reshape(-1, *[1] * (total.dim() - 1))
    return total / torch.where(weight == 0, torch.ones_like(weight), weight)
