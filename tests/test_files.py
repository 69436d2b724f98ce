"""Files are written whole or not at all."""

from __future__ import annotations

import errno
import os
import stat
import threading
from pathlib import Path

import pytest

from graphfold.errors import ConfigError
from graphfold.files import (
    check_output,
    locked,
    whole_file,
    write_text,
)


def write_half(path: Path) -> None:
    with whole_file(path) as file:
        file.write(b"half")
        raise KeyboardInterrupt


def test_an_error_leaves_the_old_content_and_nothing_else(tmp_path):
    path = tmp_path / "x.txt"
    write_text(path, "old")
    with pytest.raises(KeyboardInterrupt):
        write_half(path)
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["x.txt"]


def test_an_error_of_the_disk_names_the_file(tmp_path, monkeypatch):
    def fsync(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(OSError, match=r"No space left on device: '.*x\.txt'"):
        write_text(tmp_path / "x.txt", "lost")
    with pytest.raises(FileNotFoundError, match=r"directory: '.*missing.x\.txt'$"):
        write_text(tmp_path / "missing" / "x.txt", "lost")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("mode", [0o600, 0o664, 0o444])
def test_a_file_that_is_written_over_keeps_its_permissions(mode, tmp_path):
    path = tmp_path / "x"
    path.write_text("old")
    path.chmod(mode)
    (tmp_path / "link").symlink_to(path)
    for name in ("x", "link"):
        write_text(tmp_path / name, name)
        assert path.read_text() == name
        assert stat.S_IMODE(path.stat().st_mode) == mode


def test_one_holds_a_lock_and_another_waits(tmp_path):
    path, order = tmp_path / "lock", []

    def wait() -> None:
        with locked(path) as has_lock:
            order.append(has_lock)

    with locked(path) as has_lock:
        assert has_lock
        thread = threading.Thread(target=wait)
        thread.start()
        thread.join(0.2)
        assert order == []
        with (
            pytest.raises(ConfigError, match=rf"^process {os.getpid()} on .* has it$"),
            locked(path, lambda owner: f"{owner} has it"),
        ):
            pass
    thread.join()
    assert order == [True]
    assert os.listdir(tmp_path) == []


def test_a_lock_is_not_written_through_a_link(tmp_path):
    mine, lock = tmp_path / "mine", tmp_path / "lock"
    mine.write_text("mine")
    for make in (lock.symlink_to, lock.hardlink_to):
        make(mine)
        with locked(lock):
            pass
        assert mine.read_text() == "mine"
        assert os.listdir(tmp_path) == ["mine"]


def test_an_output_is_checked_before_the_work(tmp_path):
    check_output(None)
    check_output(tmp_path / "new.json")
    with pytest.raises(ConfigError, match="is a folder"):
        check_output(tmp_path)
    with pytest.raises(ConfigError, match="does not exist"):
        check_output(tmp_path / "no" / "x.json")


def read_in_a_thread(fifo: Path) -> tuple[threading.Thread, list[str]]:
    texts: list[str] = []
    thread = threading.Thread(target=lambda: texts.append(fifo.read_text()))
    thread.start()
    return thread, texts


def test_a_pipe_is_written_to_and_stays(tmp_path):
    fifo = tmp_path / "pipe"
    os.mkfifo(fifo)
    check_output(fifo)
    (tmp_path / "link").symlink_to(fifo)
    for path in (fifo, tmp_path / "link"):
        thread, texts = read_in_a_thread(fifo)
        write_text(path, "all of it")
        thread.join()
        assert texts == ["all of it"]
    assert stat.S_ISFIFO(fifo.stat().st_mode)
    assert sorted(os.listdir(tmp_path)) == ["link", "pipe"]


def test_a_pipe_gets_nothing_of_what_breaks_off(tmp_path):
    fifo = tmp_path / "pipe"
    os.mkfifo(fifo)
    with pytest.raises(KeyboardInterrupt):
        write_half(fifo)  # nobody reads: to open it would wait for ever
    assert os.listdir(tmp_path) == ["pipe"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes devices")
def test_a_device_is_written_to_and_stays(tmp_path):
    device = tmp_path / "nothing"
    try:
        os.mknod(device, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        device.write_bytes(b"")
    except OSError:
        pytest.skip("no devices may be made or opened here")
    check_output(device)
    write_text(device, "gone")
    assert stat.S_ISCHR(device.stat().st_mode)
    assert os.listdir(tmp_path) == ["nothing"]


def test_a_link_stays_and_its_file_is_replaced(tmp_path):
    (tmp_path / "there").mkdir()
    link, target = tmp_path / "link", tmp_path / "there" / "x.txt"
    link.symlink_to(target)
    for text in ("made", "replaced"):
        check_output(link)
        write_text(link, text)
        assert target.read_text() == text
        assert link.is_symlink()
    assert os.listdir(tmp_path / "there") == ["x.txt"]
    (tmp_path / "broken").symlink_to(tmp_path / "no" / "x.txt")
    with pytest.raises(ConfigError, match="does not exist"):
        check_output(tmp_path / "broken")
