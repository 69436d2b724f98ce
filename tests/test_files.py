"""Files are written whole or not at all."""

from __future__ import annotations

import errno
import math
import os
import stat
import threading
from pathlib import Path

import pytest

from graphfold.errors import ConfigError
from graphfold.files import LARGE_FILE, check_output, whole_file, write_json, write_text


def write_half(path: Path) -> None:
    with whole_file(path) as file:
        file.write(b"half")
        raise KeyboardInterrupt


def test_an_error_leaves_the_old_content_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    write_text(path, "old")
    with pytest.raises(KeyboardInterrupt):
        write_half(path)
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["x.txt"]


def test_an_error_of_the_disk_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fsync(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(OSError, match=r"No space left on device: '.*x\.txt'"):
        write_text(tmp_path / "x.txt", "lost")
    with pytest.raises(FileNotFoundError, match=r"directory: '.*missing.x\.txt'$"):
        write_text(tmp_path / "missing" / "x.txt", "lost")
    assert os.listdir(tmp_path) == []


def test_the_file_appears_only_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    with whole_file(path) as file:
        file.write(b"half")
        assert not path.exists()
    assert path.read_bytes() == b"half"


def test_a_large_file_is_replaced_and_let_go_of(tmp_path: Path) -> None:
    path, before = tmp_path / "x", set(threading.enumerate())
    open_files = list(Path("/proc/self/fd").glob("*"))
    for content in (b"old", b"new"):
        with whole_file(path) as file:
            file.write(content * LARGE_FILE)
        assert path.read_bytes() == content * LARGE_FILE
    for thread in set(threading.enumerate()) - before:
        thread.join()
    assert len(list(Path("/proc/self/fd").glob("*"))) == len(open_files)


def test_others_may_read_what_the_umask_allows(tmp_path: Path) -> None:
    old = os.umask(0o022)
    try:
        write_text(tmp_path / "x", "")
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "x").stat().st_mode) == 0o644


def test_json_never_holds_nan(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        write_json(tmp_path / "x.json", {"a": math.nan})
    assert os.listdir(tmp_path) == []


def test_an_output_is_checked_before_the_work(tmp_path: Path) -> None:
    check_output(None)
    check_output(tmp_path / "new.json")
    with pytest.raises(ConfigError, match="is a folder"):
        check_output(tmp_path)
    with pytest.raises(ConfigError, match="does not exist"):
        check_output(tmp_path / "no" / "x.json")
