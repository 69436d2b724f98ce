"""Files of word vectors: every format gives the same vectors; broken files are named."""

from __future__ import annotations

import gzip
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from graphfold.datasets.words.vectors import find_vectors
from graphfold.errors import DataError

WORDS = ("the", "Film", "naïve", "中文", "no-break\u00a0space", ". . .")
VALUES = np.arange(18, dtype=np.float32).reshape(6, 3) / 4 - 1


def lines(end: str = "\n", between: str = " ") -> str:
    rows = (between.join([word, *map(str, row)]) for word, row in zip(WORDS, VALUES, strict=True))
    return "".join(row + end for row in rows)


FORMATS = {
    "glove": lines().encode(),
    "fasttext": ("6 3\n" + lines(" \n")).encode(),
    "word2vec text": ("6 3\n" + lines()).encode(),
    "crlf and tabs": lines("\r\n", "\t").encode(),
    "byte order mark": b"\xef\xbb\xbf" + lines().encode(),
}


def write(folder: Path, content: bytes, name: str = "v.txt") -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("is_gzipped", [False, True])
@pytest.mark.parametrize("name", FORMATS)
def test_every_format_gives_the_same_vectors(name, is_gzipped, tmp_path):
    content = FORMATS[name]
    path = write(tmp_path, gzip.compress(content) if is_gzipped else content)
    found = find_vectors(path, {"the", "Film", "naïve", "中文", "no-break\u00a0space", "absent"})
    assert found.size == 3
    assert found.num_words == 6
    assert set(found.vectors) == set(WORDS[:5])
    for word, row in zip(WORDS[:5], VALUES[:5], strict=True):
        assert found.vectors[word].dtype == np.float32
        np.testing.assert_array_equal(found.vectors[word], row)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a 1 2 3\nb 1 2\n", r"v.txt:2: the line has 2 numbers after its word, and not 3"),
        (b"a 1 2\nb 1 x\n", r"v.txt:2: the line has something other than 2 finite numbers"),
        (b"a 1 2\nb 1 nan\n", r"v.txt:2: the line has something other than 2 finite numbers"),
        (b"a 1 2\nb 1 1e39\n", r"v.txt:2: the line has something other than 2 finite numbers"),
        (b"a\nb 1\n", r"v.txt:1: holds no word vectors"),
        (b"", r"v.txt:1: holds no word vectors"),
        (b"3 2\na 1 2\nb 3 4\n", "promises 3 words, but holds 2. It is cut off"),
        (
            b"9 3\nthe " + struct.pack("<3f", 1, 2, 3),
            r"v.txt:2: the line has 1 numbers .* save it as text",
        ),
        (b"PK\x03\x04" + b"\x0c" * 99, "holds no word vectors"),
        (gzip.compress(lines().encode())[:-12], "gzip file is damaged or cut off"),
    ],
)
def test_a_broken_file_is_refused_with_its_place(content, message, tmp_path):
    with pytest.raises(DataError, match=message):
        find_vectors(write(tmp_path, content), {"a", "b", "the"})


def test_a_large_file_does_not_fill_memory(tmp_path):
    """A file of 12 MB is read within a third of that."""
    row = b"w%d " + b"0.5 " * 200 + b"\n"
    count = 15_000
    path = tmp_path / "v.txt"
    with path.open("wb") as file:
        file.write(b"%d 200\n" % count)
        for number in range(count):
            file.write(row.replace(b"%d", b"%d" % number))
    assert path.stat().st_size > 12e6
    tracemalloc.start()
    try:
        found = find_vectors(path, {"w7", "w14999"})
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found.num_words == count
    assert found.vectors["w14999"].tolist() == [0.5] * 200
    assert peak < 4e6
