"""WordVectors: the vectors that the words of a corpus begin with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from graphfold.datasets.words.spelling import spellings
from graphfold.datasets.words.vector_file import FoundVectors, Vector, find_vectors
from graphfold.errors import DataError, count_of

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
