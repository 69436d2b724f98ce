"""The errors of blocks; each is Python's own kind as well as one of ours.

Every `GraphfoldError` is a `ValueError`, so each of these is one too.
"""

from __future__ import annotations

import reprlib

from graphfold.errors import GraphfoldError, shortened


class BlockTypeError(GraphfoldError, TypeError):
    """Blocks whose types do not fit, or that are wired in a way that cannot run."""


class BlockValueError(GraphfoldError):
    """A value that a block cannot take, such as an input connected twice."""


class BlockKeyError(GraphfoldError, KeyError):
    """A key that neither an example nor a block has."""

    __str__ = Exception.__str__  # KeyError would show the message in quotes


class BlockIndexError(GraphfoldError, IndexError):
    """A position that a sequence or a range does not have."""


class BlockItemError(BlockTypeError, BlockIndexError):
    """A position that a tuple does not have, which its type says before anything runs."""


class BlockAttributeError(BlockTypeError, AttributeError):
    """An attribute of tensors, asked of a wire."""


class BlockOrderError(BlockTypeError, RuntimeError):
    """Ordered input for a record whose own order is not given."""


class BlockDuplicateError(BlockValueError, AssertionError):
    """Elements that should differ."""


class BlockScopeError(BlockValueError, AssertionError):
    """Wiring where no composition is being wired."""


class BlockRecursionError(BlockValueError, RecursionError):
    """A block that contains itself and never comes to an end."""


class BlockDeclarationError(BlockTypeError):
    """A declaration that is resolved twice, or used once that is too late."""


def quoted(value: object) -> str:
    """A value as messages show it: its repr, shortened.

    Of an object that is nested more deeply than Python can print, only the outer levels are shown.
    """
    try:
        return shortened(repr(value))
    except RecursionError:
        return shortened(reprlib.repr(value))
