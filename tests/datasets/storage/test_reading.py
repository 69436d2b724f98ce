"""Reading in several processes gives what reading in one gives, errors included."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest
from postfix_adapter import PostfixAdapter, random_expressions, write_expressions
from processes import wait_until_gone

from graphfold.dag import GraphBuilder, collate
from graphfold.dag.compare import difference
from graphfold.datasets.adapter import Adapter, ReadResult, Record, read_records
from graphfold.datasets.storage import reading
from graphfold.datasets.storage.reading import CHUNK_SIZE, available_cores, cut_file, read_chunks
from graphfold.errors import DataError, RecordError


def read(adapter: Adapter, file: Path, on_error: str, workers: int) -> Iterator[ReadResult]:
    chunks = cut_file(adapter, file)
    return (result for _, result in read_chunks(chunks, on_error, workers))


class NotesProcess(PostfixAdapter):
    """Says in a skipped record which process has parsed it."""

    def parse(self, record: Record, graph: GraphBuilder) -> None:
        raise RecordError(str(os.getpid()))


def readers(file: Path, workers: int) -> set[int]:
    results = read(NotesProcess(), file, "skip", workers)
    return {int(error.fault) for result in results for error in result.skipped}


class BreaksOff(PostfixAdapter):
    """The file turns out to be damaged after three chunks."""

    def records(self, path: Path) -> Iterator[Record]:
        for number, record in enumerate(super().records(path)):
            if number == 3 * CHUNK_SIZE:
                raise DataError(f"{path}: is damaged. Get it again.")
            yield record


class Dies(PostfixAdapter):
    def parse(self, record: Record, graph: GraphBuilder) -> None:
        os._exit(3)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    lines = random_expressions(4 * CHUNK_SIZE + 7)
    lines[5], lines[600] = "1 +", "? 1"
    return write_expressions(tmp_path / "f.txt", lines)


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_the_result_does_not_depend_on_the_processes(file, workers):
    adapter = PostfixAdapter()
    results = list(read(adapter, file, "skip", workers))
    whole = read_records(adapter, file, adapter.records(file), "skip")
    assert len(results) == 5
    skipped = [error for result in results for error in result.skipped]
    assert [error.line for error in skipped] == [6, 601]
    assert [str(error) for error in skipped] == [str(error) for error in whole.skipped]
    joined = collate([result.dag for result in results])
    # Records are numbered within each chunk, which packing puts right.
    joined.origin[:, 2] = whole.dag.origin[:, 2]
    assert difference(joined, whole.dag) is None


def test_several_processes_read_what_is_not_small(file, tmp_path):
    assert os.getpid() not in readers(file, 2)
    small = write_expressions(tmp_path / "s.txt", random_expressions(CHUNK_SIZE))
    assert readers(small, 2) == {os.getpid()}


@pytest.mark.parametrize("workers", [0, 2])
def test_a_bad_record_comes_before_the_place_where_the_file_breaks_off(file, workers):
    with pytest.raises(RecordError, match="fewer than two operands"):
        list(read(BreaksOff(), file, "raise", workers))
    with pytest.raises(DataError, match=r"is damaged\. Get it again"):
        list(read(BreaksOff(), file, "skip", workers))


def test_a_worker_that_dies_is_reported(file):
    with pytest.raises(DataError, match=r"f\.txt: a process that was reading it died; it may have"):
        list(read(Dies(), file, "skip", 2))


class HoldsLambda(PostfixAdapter):
    """Cannot be pickled."""

    def __init__(self) -> None:
        super().__init__()
        self.shift = lambda number: number + 1


class LambdaRecords(PostfixAdapter):
    """Its records cannot be pickled from the third chunk on."""

    def records(self, path: Path) -> Iterator[Record]:
        for number, record in enumerate(super().records(path)):
            yield record if number < 2 * CHUNK_SIZE else Record(record.line, lambda: None)


@pytest.mark.parametrize("adapter", [HoldsLambda, LambdaRecords])
def test_what_cannot_be_pickled_is_reported(adapter, file):
    match = rf"f\.txt: {adapter.__name__} or its records cannot be sent to other processes .*lambda"
    with pytest.raises(DataError, match=match):
        list(read(adapter(), file, "skip", 2))


class CountsRecords(PostfixAdapter):
    """Remembers, in this process, which records were cut."""

    cut: ClassVar[list[int]] = []

    def records(self, path: Path) -> Iterator[Record]:
        for record in super().records(path):
            self.cut.append(record.line)
            yield record


def test_few_chunks_are_in_flight(tmp_path):
    file = write_expressions(tmp_path / "f.txt", ["1 2 +"] * (20 * CHUNK_SIZE))
    results = read(CountsRecords(), file, "skip", 1)
    next(results)
    assert len(CountsRecords.cut) <= 4 * CHUNK_SIZE
    assert len(list(results)) == 19


def test_workers_end_with_their_parent(file):
    code = f"""
import os, signal, sys
sys.path[:0] = {[str(Path(__file__).parents[k]) for k in (0, 2)]!r}
from pathlib import Path
from test_reading import NotesProcess, read
result = next(read(NotesProcess(), Path({str(file)!r}), "skip", 1))
print(result.skipped[0].fault, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=False)
    wait_until_gone(int(done.stdout))


@pytest.mark.parametrize(
    ("share", "cores"), [("max 100000", 8), ("150000 100000\n", 2), ("1000 100000", 1), ("", 8)]
)
def test_a_container_has_a_share_of_the_cores(share, cores, tmp_path, monkeypatch):
    (tmp_path / "cpu.max").write_text(share)
    monkeypatch.setattr(reading, "CPU_SHARE", tmp_path / "cpu.max")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    assert available_cores() == cores
