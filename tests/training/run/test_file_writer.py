"""Files are written behind one's back, but all of them, and errors are told."""

from __future__ import annotations

import threading
from pathlib import Path
from queue import SimpleQueue

import pytest

from graphfold.training.run import file_writer
from graphfold.training.run.file_writer import MOST_WAITING, FileWriter


def test_all_files_are_there_in_the_end(tmp_path: Path) -> None:
    writer = FileWriter()
    for number in range(3 * MOST_WAITING):
        writer.write(tmp_path / f"{number}", memoryview(b"%d" % number))
        writer.write(tmp_path / "same", memoryview(b"%d" % number))
    writer.finish()
    found = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    own = {str(number): b"%d" % number for number in range(3 * MOST_WAITING)}
    assert found == {**own, "same": b"%d" % (3 * MOST_WAITING - 1)}


def test_it_can_be_used_again(tmp_path: Path) -> None:
    writer = FileWriter()
    writer.finish()
    for content in (b"one", b"two"):
        writer.write(tmp_path / "x", memoryview(content))
        writer.finish()
        assert (tmp_path / "x").read_bytes() == content


def test_the_end_tells_what_went_wrong(tmp_path: Path) -> None:
    writer = FileWriter()
    writer.write(tmp_path / "missing" / "x", memoryview(b"lost"))
    writer.write(tmp_path / "y", memoryview(b"kept"))
    with pytest.raises(FileNotFoundError, match="missing"):
        writer.finish()
    assert (tmp_path / "y").read_bytes() == b"kept"


def test_later_files_tell_what_went_wrong(tmp_path: Path) -> None:
    writer = FileWriter()
    writer.write(tmp_path / "missing" / "x", memoryview(b"lost"))
    for _ in range(MOST_WAITING - 1):
        writer.write(tmp_path / "y", memoryview(b"kept"))
    with pytest.raises(FileNotFoundError, match="missing"):
        writer.write(tmp_path / "y", memoryview(b"kept"))
    writer.finish()


def test_few_contents_wait_in_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    disk_is_free, accepted = threading.Event(), SimpleQueue[int]()

    def write_slowly(path: Path, content: memoryview) -> None:
        assert disk_is_free.wait(60)

    def ask() -> None:
        for number in range(MOST_WAITING + 1):
            writer.write(tmp_path / f"{number}", memoryview(b""))
            accepted.put(number)

    monkeypatch.setattr(file_writer, "write_bytes", write_slowly)
    writer = FileWriter()
    thread = threading.Thread(target=ask)
    thread.start()
    assert [accepted.get(timeout=60) for _ in range(MOST_WAITING)] == list(range(MOST_WAITING))
    thread.join(0.2)
    assert thread.is_alive()
    assert accepted.empty()
    disk_is_free.set()
    assert accepted.get(timeout=60) == MOST_WAITING
    writer.finish()
