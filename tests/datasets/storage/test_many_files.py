"""Many files: each has a stored copy and is read once, also after a kill or in two processes."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from postfix_adapter import PostfixAdapter, random_expressions, write_expressions

from graphfold.datasets.adapter import Record
from graphfold.datasets.readers.spec import AdapterSpec
from graphfold.datasets.storage.packing import PackedCorpus, pack_files
from graphfold.datasets.storage.reading import start_method
from graphfold.errors import RecordError

NUM_FILES = 6


class Noting(PostfixAdapter):
    """Notes in the folder of its files which one is read."""

    seconds = 0.0

    def records(self, path: Path) -> Iterator[Record]:
        with (path.parent / "log").open("a") as log:
            log.write(f"{path.name}\n")
        time.sleep(self.seconds)
        yield from super().records(path)


class Slow(Noting):
    seconds = 0.4


QUICK, SLOW = (AdapterSpec(f"{__name__}.{name}") for name in ("Noting", "Slow"))


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    return [
        write_expressions(tmp_path / f"f{number}.txt", random_expressions(20 + number, number))
        for number in range(NUM_FILES)
    ]


def pack_all(
    files: list[Path], spec: AdapterSpec = QUICK, workers: int = 2, on_error: str = "raise"
) -> list[PackedCorpus]:
    folder = files[0].parent / "cache"
    return pack_files([(spec, file) for file in files], folder, on_error, workers)


def read(files: list[Path]) -> Counter[str]:
    """File -> how often it was read since the last call."""
    log = files[0].parent / "log"
    lines = log.read_text().splitlines() if log.exists() else []
    log.unlink(missing_ok=True)
    return Counter(lines)


def test_only_what_is_new_is_read(files, tmp_path):
    pack_all(files)
    read(files)
    pack_all(files)
    assert read(files) == {}
    write_expressions(files[2], ["1 2 +"])
    added = write_expressions(tmp_path / "added.txt", ["1"])
    packed = pack_all([added, *reversed(files)])
    assert read(files) == {"f2.txt": 1, "added.txt": 1}
    assert [corpus.dag.num_graphs for corpus in packed] == [1, 25, 24, 23, 1, 21, 20]


def test_the_first_bad_record_is_raised_and_whole_files_stay(files):
    for number in (3, 5):
        write_expressions(files[number], ["1", "x"])
    with pytest.raises(RecordError, match=r"f3\.txt:2: 'x' is no number"):
        pack_all(files)
    read(files)
    write_expressions(files[3], ["1"])
    packed = pack_all(files, on_error="skip")
    assert not {"f0.txt", "f1.txt"} & read(files).keys()
    assert [len(corpus.skipped) for corpus in packed] == [0, 0, 0, 0, 0, 1]


def test_a_killed_packing_goes_on(files, tmp_path):
    context = multiprocessing.get_context(start_method())
    process = context.Process(target=pack_all, args=(files, SLOW, 0))
    process.start()
    while len(list(tmp_path.glob("cache/*.graphs"))) < 2:
        time.sleep(0.02)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    whole = {path.stem[:2] for path in tmp_path.glob("cache/*.graphs")}
    assert 2 <= len(whole) < NUM_FILES
    read(files)
    pack_all(files, SLOW, 0)
    assert read(files) == {file.name: 1 for file in files if file.stem not in whole}
    assert not [*tmp_path.glob("cache/.packing*")]  # what the killed one left is gone, too


def test_processes_that_pack_the_same_files_share_the_work(files):
    context = multiprocessing.get_context(start_method())
    both = [context.Process(target=pack_all, args=(files, SLOW, k)) for k in (0, 2)]
    for process in both:
        process.start()
    for process in both:
        process.join()
    assert [process.exitcode for process in both] == [0, 0]
    assert read(files) == {file.name: 1 for file in files}
