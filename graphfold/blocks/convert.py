"""What is not a block and can be taken for one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from graphfold.blocks.errors import BlockTypeError

if TYPE_CHECKING:
    from graphfold.blocks.block import Block
    from graphfold.blocks.types import ResultType


def convert_to_block(block_like: Any) -> Block:
    """The block that `block_like` stands for.

    | given | block |
    |---|---|
    | a block | itself |
    | a tensor or a numpy array | a `FromTensor` of it |
    | a dict, a list of pairs, a tuple | a `Record` of it |
    | an `nn.Module` or another callable | a `Function` of it, which takes batches of tensors |

    Raises:
        BlockTypeError: if it stands for none.
    """
    from graphfold.blocks.block import Block
    from graphfold.blocks.constants import FromTensor
    from graphfold.blocks.function import Function
    from graphfold.blocks.record import Record

    if isinstance(block_like, Block):
        return block_like
    if isinstance(block_like, (torch.Tensor, np.ndarray)):
        return FromTensor(block_like)
    if isinstance(block_like, (dict, list, tuple)):
        return Record(block_like)
    if callable(block_like):
        return Function(block_like)
    raise BlockTypeError(
        f"{block_like!r} cannot be converted to a block. Give a block, a tensor, a module or "
        "function of tensors, or a dict, a list of pairs or a tuple of such."
    )


def convert_to_part(block_like: Any, takes: ResultType, place: str) -> Block:
    """The same, for a block that takes a type in the place that it has in another.

    Raises:
        BlockTypeError: if it stands for none, or for one that takes something else.
    """
    try:
        return convert_to_block(block_like).set_input_type(takes)
    except BlockTypeError as error:
        raise type(error)(f"{place}: {error.message}", whole=place) from error
