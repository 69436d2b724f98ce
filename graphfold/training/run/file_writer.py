"""FileWriter: puts files on disk while training goes on."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from graphfold.files import write_bytes

#: So many files may wait for the disk: best.ckpt and last.ckpt of an epoch.
MOST_WAITING = 2


class FileWriter:
    """Writes whole files in a thread, one after another.

    The disk takes several times as long for a checkpoint as making its content does: 50 ms for 45
    megabytes, in which a Tree-LSTM learns from a batch.
    """

    def __init__(self) -> None:
        self._thread: ThreadPoolExecutor | None = None  # a process of its own makes its own
        self._waiting: deque[Future[None]] = deque()

    def write(self, path: Path, content: memoryview) -> None:
        """Will write a file, whole or not at all; nobody may change its content any more.

        Raises:
            OSError: if an earlier file could not be written.
        """
        while len(self._waiting) >= MOST_WAITING:
            self._waiting.popleft().result()
        if self._thread is None:
            self._thread = ThreadPoolExecutor(max_workers=1)
        self._waiting.append(self._thread.submit(write_bytes, path, content))

    def finish(self) -> None:
        """Returns when all files are there.

        Raises:
            OSError: if one could not be written.
        """
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.shutdown()
        while self._waiting:
            self._waiting.popleft().result()
