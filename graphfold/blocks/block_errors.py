"""The errors of blocks; each is also an error of Python, such as TypeError or KeyError.

Every `GraphfoldError` is a `ValueError`, so each of these is one too.
"""

from __future__ import annotations

import reprlib

from graphfold.errors import GraphfoldError, shortened


class BlockTypeError(GraphfoldError, TypeError):
    """Types that do not fit, or wiring that cannot run."""


class BlockValueError(GraphfoldError):
    """A value that a block cannot take, such as an input connected twice."""


class BlockKeyError(GraphfoldError, KeyError):
    """A key that neither an example nor a block has."""

    __str__ = Exception.__str__  # KeyError would show the message in quotes


class BlockIndexError(GraphfoldError, IndexError):
    """A position that a sequence or a range does not have."""


class BlockItemError(BlockTypeError, BlockIndexError):
    """A position that a tuple type does not have; found before an example runs."""


class BlockAttributeError(BlockTypeError, AttributeError):
    """An attribute of tensors, read from a wire."""


class BlockOrderError(BlockTypeError, RuntimeError):
    """Ordered input for a record of an unordered dict."""


class BlockDuplicateError(BlockValueError, AssertionError):
    """Elements that should differ."""


class BlockScopeError(BlockValueError, AssertionError):
    """Wiring outside of a composition's scope."""


class BlockRecursionError(BlockValueError, RecursionError):
    """A block that contains itself and never ends."""


class BlockDeclarationError(BlockTypeError):
    """A declaration that is resolved twice, or used after it was resolved."""


def quoted(value: object) -> str:
    """The repr of a value, shortened; only the outer levels of one nested too deep for Python."""
    try:
        return shortened(repr(value))
    except RecursionError:
        return shortened(reprlib.repr(value))
