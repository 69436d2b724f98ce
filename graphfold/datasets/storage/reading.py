"""Reads files through their adapters: chunk by chunk, in several processes."""

from __future__ import annotations

import gc
import math
import multiprocessing
import os
import pickle
import signal
import sys
import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

import torch

from graphfold.datasets.adapter import Adapter, ReadResult, Record, read_records
from graphfold.datasets.storage.store import from_arrays, to_arrays
from graphfold.errors import DataError, GraphfoldError

#: Records per chunk: small enough to share out a small corpus, large enough to be worth a trip.
CHUNK_SIZE = 256

#: The file of Linux with a container's share of the cores: "200000 100000" stands for two.
CPU_SHARE = Path("/sys/fs/cgroup/cpu.max")


@dataclass(frozen=True)
class Chunk:
    """Records of a file that are read together.

    Args:
        adapter: the adapter of the file.
        path: the file.
        records: the records.
    """

    adapter: Adapter
    path: Path
    records: list[Record]


def cut_file(adapter: Adapter, path: Path, size: int = CHUNK_SIZE) -> Iterator[Chunk]:
    """The chunks of a file; of a file without records one empty chunk.

    Args:
        adapter: the adapter of the file.
        path: the file.
        size: how many records a chunk has.
    """
    records = adapter.records(path)
    yield Chunk(adapter, path, list(islice(records, size)))
    while some := list(islice(records, size)):
        yield Chunk(adapter, path, some)


def read_chunks(
    chunks: Iterator[Chunk], on_error: str = "raise", num_workers: int | None = None
) -> Iterator[tuple[Chunk, ReadResult]]:
    """Parses chunks of records; the results come in their order.

    The parent cuts records, the workers parse them; only a few chunks are in flight at a time, so
    the memory needed does not grow with the file. The results do not depend on `num_workers`.

    Args:
        chunks: of one file or of several.
        on_error: "raise" stops at the first bad record; "skip" lists it and goes on.
        num_workers: processes that parse; None for one per core, 0 for none but this one. A single
            chunk is read in this process.

    Raises:
        DataError: if a file cannot be used, a worker process dies, or an adapter or its records
            cannot be pickled for the workers.
        RecordError: for a bad record under "raise".
    """
    workers = available_cores() if num_workers is None else num_workers
    # An error that ends the chunks is raised in its turn: after a bad record that stands before it.
    following = _with_error(chunks)
    ahead = list(islice(following, 2))
    every = chain(ahead, following)
    if workers == 0 or len(ahead) < 2:
        for chunk in every:
            if isinstance(chunk, GraphfoldError):
                raise chunk
            yield chunk, read_records(chunk.adapter, chunk.path, chunk.records, on_error)
        return
    context = multiprocessing.get_context(start_method())
    executor = ProcessPoolExecutor(workers, context, initializer=_start_worker)
    waiting: deque[tuple[Chunk, Future[tuple[Any, ...]]]] = deque()
    try:
        for chunk in every:
            while waiting and (isinstance(chunk, GraphfoldError) or len(waiting) > 2 * workers):
                yield _received(*waiting.popleft())
            if isinstance(chunk, GraphfoldError):
                raise chunk
            waiting.append((chunk, executor.submit(_read, _pickled(chunk, on_error))))
        while waiting:
            yield _received(*waiting.popleft())
    finally:  # after an error, chunks that have begun are not waited for
        executor.shutdown(wait=not waiting, cancel_futures=True)


def _with_error(chunks: Iterator[Chunk]) -> Iterator[Chunk | GraphfoldError]:
    """The chunks, and as the last item the error that ends them, if any."""
    try:
        yield from chunks
    except GraphfoldError as error:
        yield error


def _pickled(chunk: Chunk, on_error: str) -> bytes:
    """The input of a worker, without the cells and bytes of records, which it does not need.

    It is pickled here, since a failure in the executor's thread may stop the executor.

    Raises:
        DataError: if the adapter or a record cannot be pickled.
    """
    records = [replace(record, columns=(), cells=(), source=b"") for record in chunk.records]
    try:
        return pickle.dumps((chunk.adapter, chunk.path, records, on_error))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise DataError.in_file(
            chunk.path,
            f"{type(chunk.adapter).__name__} or its records cannot be sent to other "
            f"processes ({error}). Set data.num_workers=0, or keep lambdas, open files and locks "
            "out of them.",
        ) from error


def _read(pickled: bytes) -> tuple[Any, ...]:
    """The graphs of a chunk as arrays: torch would send each tensor as an open file."""
    result = read_records(*pickle.loads(pickled))
    dag = result.dag
    return to_arrays(dag), dag.dictionaries, dag.files, result.skipped, result.kept


def _received(chunk: Chunk, future: Future[tuple[Any, ...]]) -> tuple[Chunk, ReadResult]:
    try:
        arrays, dictionaries, files, skipped, positions = future.result()
    except BrokenProcessPool as error:
        raise DataError.in_file(
            chunk.path,
            "a process that was reading it died; it may have run out of memory. "
            "Free memory, or read it on fewer cores.",
        ) from error
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    dag = from_arrays(chunk.adapter.schema, tensors, dictionaries, files)
    return chunk, ReadResult(dag, skipped, positions)


def available_cores() -> int:
    """The number of cores that this process may use; in a container its share."""
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


def _start_worker() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):  # the parent answers them for all
        signal.signal(number, signal.SIG_IGN)
    torch.set_num_threads(1)
    gc.freeze()  # the collector passes over the parent's objects
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Ends this worker when its parent has ended, even by kill -9."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
