"""Vocabulary: the words of a string column that a model knows, and their ids."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

#: The id of a word that the vocabulary lacks, and of a missing value.
UNKNOWN = 0


@dataclass(frozen=True)
class Vocabulary:
    """Words with the ids 1, 2, ...; id 0 is for every other word and for a missing one.

    Args:
        words: the words in order of their ids.
        lowercase: whether words are looked up in lower case.
        known: the share of the values of the training part that are words of the vocabulary; None
            if it was not counted.
        held_out: the same share of the validation part; None without one.
    """

    words: tuple[str, ...]
    lowercase: bool = False
    known: float | None = None
    held_out: float | None = None

    def __len__(self) -> int:
        return len(self.words) + 1

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {word: number for number, word in enumerate(self.words, UNKNOWN + 1)}

    def ids(self, words: Sequence[str]) -> Tensor:
        """[num_words] the id of each word."""
        keys = (word.lower() for word in words) if self.lowercase else words
        return torch.tensor([self._ids.get(key, UNKNOWN) for key in keys], dtype=torch.int64)

    def encode(self, codes: Tensor, words: Sequence[str]) -> Tensor:
        """The ids of a dictionary-coded column: one look-up over the whole column.

        Args:
            codes: the column; -1 where a value is missing.
            words: the words of the codes.
        """
        return self.table(words)[codes]

    def table(self, words: Sequence[str]) -> Tensor:
        """[num_words + 1] the id of each word; code -1, a missing value, picks the last entry."""
        return torch.cat([self.ids(words), torch.tensor([UNKNOWN])])

    def with_words(self, words: Iterable[str]) -> Vocabulary:
        """Adds new words; their ids come last."""
        new = dict.fromkeys(word for word in words if word not in self._ids)
        return replace(self, words=(*self.words, *new))

    def to_dict(self) -> dict[str, Any]:
        """Plain lists and values, ready for JSON."""
        shares = {"known": self.known, "held_out": self.held_out}
        return {"words": list(self.words), "lowercase": self.lowercase, **shares}

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Vocabulary:
        """The vocabulary that `to_dict` describes."""
        shares = data.get("known"), data.get("held_out")
        return Vocabulary(tuple(data["words"]), data["lowercase"], *shares)


def fit_vocabulary(
    codes: Tensor,
    words: Sequence[str],
    min_count: int = 1,
    max_size: int | None = None,
    lowercase: bool = False,
) -> Vocabulary:
    """The words of a column, most frequent first; words of equal count in alphabetical order.

    Args:
        codes: the column of the training part; -1 where a value is missing.
        words: the words of the codes.
        min_count: how often a word must occur.
        max_size: the most words, the unknown one not counted; None for all.
        lowercase: count and look up words in lower case.
    """
    return vocabulary_of(count_codes(codes, len(words)), words, min_count, max_size, lowercase)


def vocabulary_of(
    counts: Tensor,
    words: Sequence[str],
    min_count: int = 1,
    max_size: int | None = None,
    lowercase: bool = False,
) -> Vocabulary:
    """The vocabulary of a column by the counts of its words.

    Args:
        counts: [num_words + 1] how often each word occurs, and missing values last.
        words, min_count, max_size, lowercase: as for `fit_vocabulary`.
    """
    count_of = _by_word(counts, words, lowercase)
    frequent = [word for word, count in count_of.items() if count >= min_count]
    frequent = sorted(frequent, key=lambda word: (-count_of[word], word))[:max_size]
    share = sum(count_of[word] for word in frequent) / max(int(counts.sum()), 1)
    return Vocabulary(tuple(frequent), lowercase, share)


def count_words(codes: Tensor, words: Sequence[str], lowercase: bool = False) -> Counter[str]:
    """The words of a column, with how often each occurs.

    Args:
        codes: the column; -1 where a value is missing.
        words: the words of the codes.
        lowercase: whether words are counted in lower case.
    """
    return _by_word(count_codes(codes, len(words)), words, lowercase)


def count_codes(codes: Tensor, num_words: int) -> Tensor:
    """[num_words + 1] how often each code occurs, and -1 last."""
    return torch.bincount(codes.reshape(-1) % (num_words + 1), minlength=num_words + 1)


def _by_word(counts: Tensor, words: Sequence[str], lowercase: bool) -> Counter[str]:
    counter: Counter[str] = Counter()
    for word, count in zip(words, counts[:-1].tolist(), strict=True):
        if count:
            counter[word.lower() if lowercase else word] += count
    return counter
