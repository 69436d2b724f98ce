"""Reads a whole file through its adapter: chunk by chunk, in several processes."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch

from graphfold.datasets.adapter import Adapter, ReadResult, Record, read_records
from graphfold.errors import DataError, GraphfoldError

Result = TypeVar("Result")

#: Records per chunk: small enough to share out a small corpus, large enough to be worth a trip.
CHUNK_SIZE = 256


@dataclass(frozen=True)
class Job(Generic[Result]):
    """The reading of the records of a file, whichever process does it."""

    adapter: Adapter
    path: Path
    on_error: str
    finish: Callable[[ReadResult], Result]

    def read(self, records: list[Record]) -> Result:
        """Parses a chunk of records and applies `finish`."""
        return self.finish(read_records(self.adapter, self.path, records, self.on_error))


def read_chunks(
    adapter: Adapter,
    path: Path,
    finish: Callable[[ReadResult], Result],
    on_error: str = "raise",
    num_workers: int | None = None,
    chunk_size: int = CHUNK_SIZE,
) -> Iterator[Result]:
    """The records of a file, `chunk_size` at a time, in file order; see `read_beside_records`."""
    records = adapter.records(path)
    for _, result in read_beside_records(
        adapter, path, records, finish, on_error, num_workers, chunk_size
    ):
        yield result


def read_beside_records(
    adapter: Adapter,
    path: Path,
    records: Iterator[Record],
    finish: Callable[[ReadResult], Result],
    on_error: str = "raise",
    num_workers: int | None = None,
    chunk_size: int = CHUNK_SIZE,
) -> Iterator[tuple[list[Record], Result]]:
    """Chunks of records, each with what was read of it, in order.

    The parent cuts records, the workers parse them; only a few chunks are in flight at a time, so
    the memory needed does not grow with the file. The results do not depend on `num_workers`.

    Args:
        adapter: what understands the records.
        path: the file that they are cut from.
        records: the records.
        finish: applied to each `ReadResult` in the process that made it, so that what travels
            between processes may be small; a function of a module.
        on_error: "raise" stops at the first bad record; "skip" lists it and goes on.
        num_workers: processes that parse; None for one per core, 0 for none but this one. A file
            of one chunk is read in this process.
        chunk_size: how many records are parsed together.

    Raises:
        DataError: if the file cannot be used, a worker process dies, or the adapter or its records
            cannot be pickled for the workers.
        RecordError: for a bad record under "raise".
    """
    job = Job(adapter, path, on_error, finish)
    chunks = _cut(records, chunk_size)
    first = list(islice(chunks, 2))
    workers = available_cores() if num_workers is None else num_workers
    if workers == 0 or len(first) < 2:
        yield from ((chunk, job.read(chunk)) for chunk in chain(first, chunks))
    else:
        yield from _read_in_parallel(job, chain(first, chunks), workers)


def available_cores() -> int:
    """The number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def start_method() -> str:
    """The start method of workers: "fork" on Linux, where it needs no importable main module."""
    return "fork" if sys.platform == "linux" else "spawn"


def _cut(records: Iterator[Record], size: int) -> Iterator[list[Record]]:
    while chunk := list(islice(records, size)):
        yield chunk


def _read_in_parallel(
    job: Job[Result], chunks: Iterator[list[Record]], workers: int
) -> Iterator[tuple[list[Record], Result]]:
    executor = ProcessPoolExecutor(
        workers,
        multiprocessing.get_context(start_method()),
        initializer=_start_worker,
        initargs=(os.getpid(),),
    )
    waiting: deque[tuple[list[Record], Future[Result]]] = deque()
    is_done = False
    try:
        for chunk in _until_it_breaks_off(chunks):
            if isinstance(chunk, GraphfoldError):
                # A bad record before the place where the file breaks off is reported first.
                yield from ((records, future.result()) for records, future in waiting)
                raise chunk
            waiting.append((chunk, executor.submit(_read_pickled, _pickled(job, chunk))))
            if len(waiting) > 2 * workers:
                records, future = waiting.popleft()
                yield records, future.result()
        yield from ((records, future.result()) for records, future in waiting)
        is_done = True
    except BrokenProcessPool as error:
        raise DataError(
            f"{job.path}: a process that was reading it died; it may have run out of memory. "
            "Free memory, or read it on fewer cores.",
            path=str(job.path),
        ) from error
    finally:
        # An error is reported at once, whatever the workers are still busy with.
        executor.shutdown(wait=is_done, cancel_futures=True)


def _pickled(job: Job[Result], records: list[Record]) -> bytes:
    """A worker's input, pickled here: a failure in the executor's own thread may stop it.

    Cells of rows and bytes of the file are left out: they are written back here.

    Raises:
        DataError: if the adapter or a record cannot be pickled.
    """
    parsed = [Record(record.line, record.content, record.fault) for record in records]
    try:
        return pickle.dumps((job, parsed))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise DataError(
            f"{job.path}: {type(job.adapter).__name__} or its records cannot be sent to other "
            f"processes ({error}). Set data.num_workers=0, or keep lambdas, open files and locks "
            "out of them.",
            path=str(job.path),
        ) from error


def _read_pickled(job_and_records: bytes) -> Any:
    """Calls `Job.read` in a worker."""
    job, records = pickle.loads(job_and_records)
    return job.read(records)


def _until_it_breaks_off(
    chunks: Iterator[list[Record]],
) -> Iterator[list[Record] | GraphfoldError]:
    """The chunks, and at the end the error, if it is an error that ends them."""
    try:
        yield from chunks
    except GraphfoldError as error:
        yield error


def _start_worker(parent: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent answers Ctrl-C for all
    torch.set_num_threads(1)
    threading.Thread(target=_die_with, args=(parent,), daemon=True).start()


def _die_with(parent: int) -> None:
    """Ends this process when its parent is gone, even by kill -9."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)
