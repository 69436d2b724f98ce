"""Loading what a command needs."""

from __future__ import annotations

import atexit
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def loading() -> Iterator[None]:
    """Imports within go without Python's collector, and later passes of it go without them.

    A module holds thousands of objects that stay, and the collector looks through all of them again
    and again while the next are loaded: a third of the time that torch and the others take. It does
    so once more when the process ends, over all that came later, too.
    """
    atexit.register(gc.freeze)
    loaded, was_enabled = len(sys.modules), gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if len(sys.modules) > loaded:
            gc.freeze()
        if was_enabled:
            gc.enable()
