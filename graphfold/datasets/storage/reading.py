"""Reads a whole file through its adapter: chunk by chunk, in several processes."""

from __future__ import annotations

import math
import multiprocessing
import os
import pickle
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from itertools import chain, islice
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch

from graphfold.datasets.adapter import Adapter, ReadResult, Record, read_records
from graphfold.errors import DataError, GraphfoldError

Item = TypeVar("Item")
Result = TypeVar("Result")

#: Records per chunk: small enough to share out a small corpus, large enough to be worth a trip.
CHUNK_SIZE = 256

#: Where Linux says how much time on cores a container has: "200000 100000" is that of two cores.
CPU_SHARE = Path("/sys/fs/cgroup/cpu.max")

#: Held by a worker while it makes no call, and set when it is to make no more.
_OUTSIDE, _STOPPING = threading.Lock(), threading.Event()


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
    """The number of cores that this process may use: in a container, its share of them."""
    if not hasattr(os, "sched_getaffinity"):
        return os.cpu_count() or 1
    cores = len(os.sched_getaffinity(0))
    try:
        share, _, period = CPU_SHARE.read_text(encoding="ascii").strip().partition(" ")
        return min(cores, max(1, math.ceil(int(share) / int(period))))
    except (OSError, ValueError, ZeroDivisionError):  # no container, or one without a limit: "max"
        return cores


def start_method() -> str:
    """The start method of workers: "fork" on Linux, where it needs no importable main module."""
    return "fork" if sys.platform == "linux" else "spawn"


def _cut(records: Iterator[Record], size: int) -> Iterator[list[Record]]:
    while chunk := list(islice(records, size)):
        yield chunk


def _read_in_parallel(
    job: Job[Result], chunks: Iterator[list[Record]], workers: int
) -> Iterator[tuple[list[Record], Result]]:
    def pickled() -> Iterator[tuple[list[Record], bytes] | GraphfoldError]:
        for chunk in _until_it_breaks_off(chunks):
            yield chunk if isinstance(chunk, GraphfoldError) else (chunk, _pickled(job, chunk))

    return in_processes(pickled(), workers, lambda _: job.path)


def in_processes(
    calls: Iterator[tuple[Item, bytes] | GraphfoldError],
    workers: int,
    path_of: Callable[[Item], Path],
) -> Iterator[tuple[Item, Any]]:
    """Makes calls in several processes; their results come in order, a few of them ahead.

    Args:
        calls: an item, and the call that is made for it, pickled: a function and its arguments. An
            error among them is raised in its turn.
        workers: how many processes there are.
        path_of: the file that an item is about, for messages.

    Raises:
        DataError: if a process dies.
        Exception: that of a call; the processes end then, whatever they are busy with.
    """
    context = multiprocessing.get_context(start_method())
    # Of an event the one who sets it would wait for a waiting process that died.
    stop, stopping = context.Pipe(duplex=False)
    executor = ProcessPoolExecutor(
        workers, context, initializer=_start_worker, initargs=(os.getpid(), stop)
    )
    waiting: deque[tuple[Item, Future[Any]]] = deque()

    def first() -> tuple[Item, Any]:
        item, future = waiting.popleft()
        try:
            return item, future.result()
        except BrokenProcessPool as error:
            raise DataError(
                f"{path_of(item)}: a process that was reading it died; it may have run out of "
                "memory. Free memory, or read it on fewer cores.",
                path=str(path_of(item)),
            ) from error

    is_done = False
    try:
        for call in calls:
            if isinstance(call, GraphfoldError):
                # A bad record before the place where the file breaks off is reported first.
                while waiting:
                    yield first()
                raise call
            item, function_and_arguments = call
            waiting.append((item, executor.submit(_call, function_and_arguments)))
            if len(waiting) > 2 * workers:
                yield first()
        while waiting:
            yield first()
        is_done = True
    finally:
        if not is_done:
            stopping.send(True)  # nobody reads it, so all see it
        executor.shutdown(wait=is_done, cancel_futures=True)


def _pickled(job: Job[Result], records: list[Record]) -> bytes:
    """A worker's input, pickled here: a failure in the executor's own thread may stop it.

    Cells of rows and bytes of the file are left out: they are written back here.

    Raises:
        DataError: if the adapter or a record cannot be pickled.
    """
    parsed = [Record(record.line, record.content, record.fault) for record in records]
    return pickled_call(job.adapter, job.path, job.read, parsed)


def pickled_call(adapter: Adapter, path: Path, function: Callable[..., Any], *given: Any) -> bytes:
    """A call for `in_processes`.

    Args:
        adapter: the adapter in it, for the message.
        path: the file that it reads.
        function: of a module, or a method of what can be pickled.
        *given: its arguments.

    Raises:
        DataError: if it cannot be pickled.
    """
    try:
        return pickle.dumps((function, given))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise DataError(
            f"{path}: {type(adapter).__name__} or its records cannot be sent to other "
            f"processes ({error}). Set data.num_workers=0, or keep lambdas, open files and locks "
            "out of them.",
            path=str(path),
        ) from error


def _call(function_and_arguments: bytes) -> Any:
    """Makes a call in a worker."""
    function, arguments = pickle.loads(function_and_arguments)
    if _STOPPING.is_set():
        os._exit(1)
    _OUTSIDE.release()
    try:
        return function(*arguments)
    finally:
        _OUTSIDE.acquire()


def _until_it_breaks_off(
    chunks: Iterator[list[Record]],
) -> Iterator[list[Record] | GraphfoldError]:
    """The chunks, and at the end the error, if it is an error that ends them."""
    try:
        yield from chunks
    except GraphfoldError as error:
        yield error


def _start_worker(parent: int, stop: Connection) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):  # the parent answers them for all
        signal.signal(number, signal.SIG_IGN)
    torch.set_num_threads(1)
    _OUTSIDE.acquire()
    threading.Thread(target=_die_with, args=(parent, stop), daemon=True).start()


def _die_with(parent: int, stop: Connection) -> None:
    """Ends this process when it is to stop, or its parent is gone, even by kill -9.

    What it sends it may send whole, for which a second is long: of a result that is cut off, the
    parent would wait for the rest, for ever.
    """
    while os.getppid() == parent:
        if stop.poll(1):
            _STOPPING.set()
            _OUTSIDE.acquire(timeout=1)
            break
    os._exit(1)
