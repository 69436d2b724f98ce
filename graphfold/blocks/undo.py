"""What blocks learn of each other is all or nothing: a connection that is refused leaves no trace.

A type that does not fit is often noticed far from where it was said. By then blocks on the way have
learned types and parents, which would be in the way of whoever corrects the line and tries again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class _Log(threading.local):
    """How this thread takes back what it does, last things last; None while nothing can fail."""

    undo: list[Callable[[], object]] | None = None


_LOG = _Log()
_ABSENT: Any = object()


@contextmanager
def all_or_nothing() -> Iterator[None]:
    """If what is done within it fails, all that `put` and `append` changed is as it was."""
    if _LOG.undo is None:
        _LOG.undo = []
        try:
            with all_or_nothing():
                yield
        finally:
            _LOG.undo = None
        return
    undo = _LOG.undo
    done = len(undo)
    try:
        yield
    except BaseException:
        while len(undo) > done:
            undo.pop()()
        raise


def put(known: MutableMapping[Key, Value], key: Key, value: Value) -> None:
    """Sets an item; of `vars(block)`, an attribute."""
    if _LOG.undo is not None:
        old = known.get(key, _ABSENT)
        _LOG.undo.append(lambda: known.pop(key) if old is _ABSENT else known.update({key: old}))
    known[key] = value


def append(items: list[Value], item: Value) -> None:
    """Adds an item to a list."""
    if _LOG.undo is not None:
        _LOG.undo.append(items.pop)
    items.append(item)
