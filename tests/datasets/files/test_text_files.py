import errno
import gzip
import io
import os
import threading

import pytest
from datasets.tree_files import write
from hypothesis import given
from hypothesis import strategies as st

from graphfold.datasets.files import text_files
from graphfold.datasets.files.text_files import (
    open_bytes,
    read_lines,
    scan_lines,
    text_lines,
)
from graphfold.errors import DataError


def lines_of(path):
    return list(read_lines(path))


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"a\nb\n", [(1, "a"), (2, "b")]),
        (b"a\r\nb\r\n", [(1, "a"), (2, "b")]),
        (b"a\n\nb", [(1, "a"), (2, ""), (3, "b")]),
        (b"\xef\xbb\xbfa\nb\n", [(1, "a"), (2, "b")]),
        (b"a\rb\n", [(1, "a\rb")]),
        ("8\u00a01\u2028x\u0085y\x0bz\n".encode(), [(1, "8\u00a01\u2028x\u0085y\x0bz")]),
        (b"", []),
    ],
)
def test_lines_end_at_line_feeds_only(tmp_path, raw, expected):
    assert lines_of(write(tmp_path, raw)) == expected


@pytest.mark.parametrize("name", ["data.tsv.gz", "gzipped_without_saying_so.tsv"])
def test_gzip_is_told_by_its_content(tmp_path, name):
    path = write(tmp_path, gzip.compress(b"\xef\xbb\xbfeins\r\nzwei"), name)
    assert lines_of(path) == [(1, "eins"), (2, "zwei")]


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
@pytest.mark.parametrize("first", [1, 2, 5])
def test_a_pipe_loses_nothing(tmp_path, pack, first):
    """Neither what a first read took ahead, nor the beginning where it comes in small pieces."""
    fifo, content = tmp_path / "pipe", pack(b"".join(b"line %d\n" % k for k in range(5_000)))
    os.mkfifo(fifo)

    def write_in_pieces():
        with fifo.open("wb", buffering=0) as file:
            file.write(content[:first])
            file.write(content[first:])

    def read_at_once():
        with open_bytes(fifo) as file:
            return file.read().decode().splitlines()

    for read in (lambda: [line.text for line in scan_lines(fifo)], read_at_once):
        thread = threading.Thread(target=write_in_pieces)
        thread.start()
        lines = read()
        thread.join()
        assert lines == [f"line {k}" for k in range(5_000)]


def test_a_gzip_cut_short_names_the_file(tmp_path):
    whole = gzip.compress("\n".join(str(k * k) for k in range(100_000)).encode())
    path = write(tmp_path, whole[: len(whole) // 2], "cut.gz")
    with pytest.raises(DataError, match=r"cut\.gz: the gzip file ends too early, after \d{4,}"):
        lines_of(path)


def test_a_damaged_gzip_is_refused(tmp_path):
    whole = bytearray(gzip.compress(b"a line\n" * 100))
    whole[-8] ^= 0xFF  # the checksum
    with pytest.raises(DataError, match=r"bad\.gz: the gzip file is damaged"):
        lines_of(write(tmp_path, bytes(whole), "bad.gz"))


def test_text_named_gz_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"data\.gz: is named \.gz, but is not gzipped"):
        lines_of(write(tmp_path, b"plain\n", "data.gz"))


def test_text_that_is_not_utf8_names_the_line(tmp_path):
    path = write(tmp_path, "gut\ngrün\n".encode("latin-1"))
    with pytest.raises(DataError, match=r"data\.txt:2: byte 3 of the line \(0xfc\) is not UTF-8"):
        lines_of(path)


def test_a_line_that_is_not_utf8_does_not_hide_the_next(tmp_path):
    path = write(tmp_path, b"a\r\n\xe9b\nc")
    numbers, texts, faults = zip(*scan_lines(path), strict=True)
    assert (numbers, texts) == ((1, 2, 3), ("a", "\ufffdb", "c"))
    assert [fault and fault.fault for fault in faults] == [
        None,
        "byte 1 of the line (0xe9) is not UTF-8",
        None,
    ]


def test_utf16_is_named(tmp_path):
    with pytest.raises(DataError, match=r"data\.txt:1: is UTF-16\. Convert"):
        lines_of(write(tmp_path, "text\n".encode("utf-16")))


def test_what_is_no_file_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"absent: no such file"):
        lines_of(tmp_path / "absent")
    with pytest.raises(DataError, match=r"is a folder, not a file"):
        lines_of(tmp_path)


@given(text=st.text(st.sampled_from(["a", "é", " ", "\n", "\r", "\u2028", "\ufeff", "\x85"])))
def test_lines_of_a_text_are_those_of_a_file_with_it(tmp_path_factory, text):
    path = write(tmp_path_factory.mktemp("text"), text)
    assert list(text_lines(text)) == list(scan_lines(path))


def test_an_error_of_the_disk_names_the_file_and_the_line(tmp_path, monkeypatch):
    monkeypatch.setattr(text_files, "open_bytes", lambda _: Broken(io.BytesIO(b"x")))
    with pytest.raises(DataError, match=r"a.txt: cannot be read after line 0 \(Input/output error"):
        lines_of(tmp_path / "a.txt")


class Broken(io.BufferedReader):
    """A file on a disk that fails."""

    def readline(self, size=-1):
        raise OSError(errno.EIO, "Input/output error")
