"""Whether a list of examples was given, or a single one where a list was meant."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from graphfold.blocks.block import Block
from graphfold.blocks.context import run
from graphfold.blocks.errors import BlockTypeError
from graphfold.blocks.evaluate import Depth
from graphfold.errors import GraphfoldError, shortened


def require_several(examples: Iterable[Any]) -> None:
    """Raises BlockTypeError for a string, a dict, and what has no items: a single example."""
    if isinstance(examples, (str, bytes, Mapping)) or not has_items(examples):
        raise single_example(examples)


def has_items(value: object) -> bool:
    """Whether it can be iterated; numbers cannot, nor can arrays without dimensions."""
    try:
        iter(value)  # type: ignore[call-overload]
    except TypeError:
        return False
    return True


def is_single(root: Block, examples: Any) -> bool:
    """Whether a sequence is an example of the root itself, and its first item is none."""
    is_sequence = isinstance(examples, (Sequence, Tensor, np.ndarray)) and len(examples) > 0
    return is_sequence and not _fits(root, examples[0]) and _fits(root, examples)


def single_example(example: Any) -> BlockTypeError:
    """The error that says so."""
    return BlockTypeError(
        "a compiled model takes a batch of examples, not a single example: "
        f"{shortened(reprlib.repr(example))}. Put it into a list."
    )


def _fits(root: Block, example: Any) -> bool:
    try:
        run(root, Depth(), example)
    except GraphfoldError:
        return False
    return True
