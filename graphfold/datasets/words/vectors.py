"""WordVectors: the vectors that the words of a corpus begin with, out of a file.

Files are those of GloVe, fastText (.vec) and word2vec as text, read as a stream. A word may have
several spellings in them.
"""

from __future__ import annotations

import gzip
import math
import zlib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from graphfold.datasets.files.text_files import open_bytes
from graphfold.errors import DataError, count_of

#: The Penn Treebank's names of characters that its own format needs, or that typewriters lack:
#: Bies et al. (1995), section 2.1.
ESCAPED = {
    "-LRB-": "(",
    "-RRB-": ")",
    "-LSB-": "[",
    "-RSB-": "]",
    "-LCB-": "{",
    "-RCB-": "}",
    "``": '"',
    "''": '"',
}


def unescaped(word: str) -> str:
    """The word as it stands in a text: `(` for the Penn Treebank's `-LRB-`, `/` for its `\\/`."""
    # `lowercase` comes before, so that an escape may have lost its capitals.
    return ESCAPED.get(word.upper(), word.replace("\\/", "/").replace("\\*", "*"))


def spellings(word: str) -> Iterator[str]:
    """The spellings under which a word is looked up, best first, each once.

    The word itself, the same without the Penn Treebank's escapes, and this in lower case.
    """
    plain = unescaped(word)
    yield from dict.fromkeys((word, plain, plain.lower()))


Vector = npt.NDArray[np.float32]

#: No line of a file of vectors is longer.
LONGEST_LINE = 1 << 20

#: The beginnings of files that are something else, and what to do about it.
_OTHER_KINDS = {
    b"\xba\x16\x4f\x2f": "is a fastText model (.bin). Give the .vec file that comes with it",
    b"PK\x03\x04": "is a ZIP archive. Unpack it, and give the file of vectors in it",
    b"\xff\xfe": "is UTF-16. Convert the file to UTF-8",
    b"\xfe\xff": "is UTF-16. Convert the file to UTF-8",
    b"\x89HDF": "is an HDF5 file. Save the vectors as text",
    b"\x93NUM": "is a NumPy array, which has no words. Save the vectors as text",
}


@dataclass
class FoundVectors:
    """The vectors of a file that were asked for.

    Args:
        size: how many numbers a vector has.
        vectors: word -> its vector.
        num_words: how many words the file has.
        num_repeated: how many of those asked for stand in it again; the first one counts.
        num_undecodable: how many words are not UTF-8, so that nobody can ask for them.
    """

    size: int
    vectors: dict[str, Vector] = field(default_factory=dict)
    num_words: int = 0
    num_repeated: int = 0
    num_undecodable: int = 0


def find_vectors(path: Path, words: Collection[str]) -> FoundVectors:
    """The vectors of some words, read in constant memory.

    A line is a word and its numbers between blanks. The first line may say how many words and
    numbers there are (fastText .vec, word2vec as text) or not (GloVe). The file may be gzipped. A
    word may hold blanks: its numbers are the last ones of the line.

    Args:
        path: the file.
        words: the words to look for.

    Raises:
        DataError: with the line or the word, if the file cannot be read, is of another kind, is cut
            off, or a vector has another size or something that is no number.
    """
    wanted = {word.encode(): word for word in words}
    with open_bytes(path) as file:
        try:
            return _find(path, file, wanted)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise _fault(path, "the gzip file is damaged or cut off. Download it again") from error


def _find(path: Path, file: IO[bytes], wanted: dict[bytes, str]) -> FoundVectors:
    first = file.readline(LONGEST_LINE)
    for magic, fault in _OTHER_KINDS.items():
        if first.startswith(magic):
            raise _fault(path, fault)
    first = first.removeprefix(b"\xef\xbb\xbf")
    header = _header(first)
    if header is None:
        lines = _Lines(path, file, _size_of(path, first), [first])
        return _collect(path, lines, wanted, None)
    count, size = header
    second = file.readline(LONGEST_LINE)
    if second and not _is_text(second, size):
        fault = f"promises vectors of {size} numbers, but its second line is no word with them"
        raise _fault(path, f"{fault}. Save the vectors as text, if they are binary", 2)
    return _collect(path, _Lines(path, file, size, [first, second], 1), wanted, count)


def _header(line: bytes) -> tuple[int, int] | None:
    """The number of words and of numbers in a first line that holds nothing else."""
    fields = line.split()
    if len(fields) == 2 and all(item.isdigit() and len(item) < 12 for item in fields):
        return int(fields[0]), int(fields[1])
    return None


def _size_of(path: Path, line: bytes) -> int:
    size = len(line.split()) - 1
    if size < 1 or not _is_text(line, size):
        raise _fault(path, "holds no word vectors: its first line is no word and numbers", 1)
    return size


def _is_text(line: bytes, size: int) -> bool:
    """True if a line is a word and so many numbers."""
    fields = line.rstrip().replace(b"\t", b" ").rsplit(b" ", size)
    try:
        return len(fields) == size + 1 and len([float(item) for item in fields[1:]]) == size
    except ValueError:
        return False


class _Lines:
    """The words of a file of text, with what is needed to read their vectors.

    Args:
        path: the file.
        file: the lines that are not read yet.
        size: how many numbers a line has.
        begun: the lines that are read already.
        skip: how many of these are no words.
    """

    def __init__(
        self, path: Path, file: IO[bytes], size: int, begun: list[bytes], skip: int = 0
    ) -> None:
        self.path, self.file, self.size, self.begun, self.number = path, file, size, begun, 0
        self.skip = skip

    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        """Each word with the bytes of its numbers."""
        for line in self._lines():
            self.number += 1
            if self.number <= self.skip or not line.strip():
                continue
            text = line.rstrip(b" \r\n").replace(b"\t", b" ")
            num_blanks = text.count(b" ")  # only ASCII ones: others may belong to a word
            if num_blanks < self.size:
                raise _fault(
                    self.path,
                    f"the line has {num_blanks} numbers after its word, but the first one has "
                    f"{self.size}. Correct the file",
                    self.number,
                )
            is_plain = num_blanks == self.size
            yield text.split(b" ", 1)[0] if is_plain else text.rsplit(b" ", self.size)[0], text

    def _lines(self) -> Iterator[bytes]:
        yield from self.begun
        while line := self.file.readline(LONGEST_LINE):
            yield line

    def vector(self, text: bytes) -> Vector:
        """The numbers of a line; raises DataError if they are none."""
        fields = text.rsplit(b" ", self.size)[1:]
        try:
            # Python would also take the underscore in 1_000.
            values = [math.nan if b"_" in item else float(item) for item in fields]
        except ValueError:
            values = [math.nan]
        with np.errstate(over="ignore"):
            vector = np.array(values, dtype=np.float32)
        if not np.isfinite(vector).all():
            fault = f"the line has something other than {self.size} finite numbers after its word"
            raise _fault(self.path, f"{fault}. Correct the file", self.number)
        return vector


def _collect(
    path: Path, entries: _Lines, wanted: dict[bytes, str], count: int | None
) -> FoundVectors:
    if not 0 < entries.size < LONGEST_LINE:
        raise _fault(path, f"promises vectors of {entries.size} numbers. Correct the file", 1)
    found = FoundVectors(entries.size)
    for key, data in entries:
        found.num_words += 1
        word = wanted.get(key)
        if word is not None and word in found.vectors:
            found.num_repeated += 1
        elif word is not None:
            found.vectors[word] = entries.vector(data)
        elif not key.isascii() and not _is_utf8(key):
            found.num_undecodable += 1
    if count is not None and found.num_words != count:
        fault = f"promises {count} words, but holds {found.num_words}"
        raise _fault(path, f"{fault}. It is cut off or damaged: download it again")
    return found


def _is_utf8(word: bytes) -> bool:
    try:
        word.decode()
    except UnicodeDecodeError:
        return False
    return True


def _fault(path: Path, fault: str, line: int | None = None) -> DataError:
    place = str(path) if line is None else f"{path}:{line}"
    return DataError(f"{place}: {fault}.", path=str(path), line=line)


#: Words without a vector begin anywhere from -0.05 to 0.05: Tai et al. (2015), section 5.2.
UNKNOWN_RANGE = 0.05

#: A remark about words whose capitals cost them a vector of their own.
MERGED = "that data.lowercase=true merges though the file tells their capitals apart"


@dataclass(frozen=True)
class WordVectors:
    """Vectors of some words out of a file.

    Args:
        path: the file.
        size: how many numbers a vector has.
        vectors: word, as the corpus has it -> its vector.
        note: what was found, for the user.
    """

    path: Path
    size: int
    vectors: Mapping[str, Vector]
    note: str

    def embeddings(self, words: Sequence[str]) -> Tensor:
        """[num_words + 1, size] an embedding for each id of a vocabulary; id 0 is unknown.

        A word that the file lacks, and the unknown one, has a random one, from torch's generator.

        Args:
            words: the words of the ids from 1 on.
        """
        table = torch.empty(len(words) + 1, self.size).uniform_(-UNKNOWN_RANGE, UNKNOWN_RANGE)
        for number, word in enumerate(words, 1):
            if word in self.vectors:
                table[number] = torch.from_numpy(self.vectors[word])
        return table


def read_vectors(path: Path, written: Mapping[str, int], lowercase: bool = False) -> WordVectors:
    """The vectors of the words of a corpus.

    A word is looked up as it is written, then without the Penn Treebank's escapes, then in lower
    case. Where words are one in lower case, the most frequent way to write them comes first.

    Args:
        path: a file as `find_vectors` reads it.
        written: word, as it is written -> how often the corpus has it.
        lowercase: whether the words of the result are in lower case.

    Raises:
        DataError: if the file cannot be used, or has none of the words.
    """
    found = find_vectors(path, {spelling for word in written for spelling in spellings(word)})
    ways: dict[str, list[str]] = {}  # of a word, the ways to write it, the most frequent first
    for way in sorted(written, key=lambda way: -written[way]):
        ways.setdefault(way.lower() if lowercase else way, []).append(way)
    counts = {word: sum(written[way] for way in own) for word, own in ways.items()}
    vectors, remarks = {}, Counter[str]()
    for word, own in ways.items():
        known = [s for way in own for s in spellings(way) if s in found.vectors]
        if known:
            vectors[word] = found.vectors[known[0]]
            remarks["found in another spelling"] += known[0] != word
            remarks[MERGED] += len({way for way in own if way in found.vectors}) > 1
    if not vectors:
        raise DataError(
            f"{path}: none of the {len(counts)} words of the data is among its {found.num_words}. "
            "Give vectors of the same language.",
            path=str(path),
        )
    remarks["given again, and the first one taken"] = found.num_repeated
    remarks["not UTF-8 in the file"] = found.num_undecodable
    return WordVectors(path, found.size, vectors, _note(path, found, vectors, counts, remarks))


def _note(
    path: Path,
    found: FoundVectors,
    vectors: Mapping[str, Vector],
    counts: Mapping[str, int],
    remarks: Mapping[str, int],
) -> str:
    tokens = sum(counts[word] for word in vectors) / max(sum(counts.values()), 1)
    text = (
        f"vectors of {found.size} numbers for {len(vectors)} of {count_of(len(counts), 'word')} "
        f"({len(vectors) / len(counts):.1%}), which are {tokens:.1%} of the tokens, from {path}"
    )
    told = [f"{count} {what}" for what, count in remarks.items() if count]
    return f"{text} ({', '.join(told)})" if told else text
