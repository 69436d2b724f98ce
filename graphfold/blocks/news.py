"""News of types: who must hear of a type that was found, told one after another."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from graphfold.blocks.block import Block


class _Queue(threading.local):
    """What this thread has still to tell; None while nothing is being told."""

    pairs: deque[tuple[Block, Block]] | None = None


_QUEUE = _Queue()


def tell(parents: Iterable[Block], child: Block) -> None:
    """Lets blocks draw conclusions from the types of a child.

    What they find out is news in turn. It waits in a queue for its turn, so that types find their
    way through any number of blocks.
    """
    news = [(parent, child) for parent in parents]
    if _QUEUE.pairs is not None:
        _QUEUE.pairs.extend(news)
        return
    _QUEUE.pairs = deque(news)
    try:
        while _QUEUE.pairs:
            parent, child = _QUEUE.pairs.popleft()
            parent._conclude(parent._child_found, child)
    finally:
        _QUEUE.pairs = None
