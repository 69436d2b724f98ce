"""Pieces: the words of a sentence as an encoder cuts them, and the windows that it can read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from graphfold.datasets.words.spelling import unescaped
from graphfold.errors import DataError


class Window(NamedTuple):
    """A stretch of the pieces of a sentence that an encoder reads at once.

    Args:
        ids: the pieces.
        owner: the row of the word that each piece counts for; -1 for none.
        start: the first of those that are taken from it; others are context.
        stop: the one after the last.
    """

    ids: list[int]
    owner: list[int]
    start: int
    stop: int


class Pieces:
    """Cuts words into the pieces of a tokenizer, each word once.

    A word that is missing is the tokenizer's mask, if it has one. A word that the tokenizer leaves
    nothing of, such as a zero-width blank, is its unknown piece.

    Args:
        tokenizer: of Hugging Face.
        folder: where it is from, for messages.

    Attributes:
        before, after: the pieces that the encoder expects around a sentence.
        empty: the words that nothing was left of.
    """

    def __init__(self, tokenizer: Any, folder: str) -> None:
        self.tokenizer = tokenizer
        self.folder = folder
        self.known: dict[str | None, list[int]] = {}
        self.empty: set[str] = set()
        self.before, self.after = self._surroundings()

    def of(self, words: Sequence[str | None]) -> list[list[int]]:
        """The pieces of each word; at least one."""
        new = [word for word in dict.fromkeys(words) if word not in self.known]
        written = [word for word in new if word is not None]
        cut = self._cut([unescaped(word) for word in written]) if written else []
        for word, ids in zip(written, cut, strict=True):
            if not ids:
                self.empty.add(word)
            self.known[word] = ids or [self._spare("unk_token_id", "a word without a piece")]
        if None in new:
            self.known[None] = [self._spare("mask_token_id", "a missing word")]
        return [self.known[word] for word in words]

    def _cut(self, words: Sequence[str], special: bool = False) -> list[list[int]]:
        """The pieces of words, each in a text of its own."""
        # A text of one word that is split already: it is then cut as it would be inside of a text.
        texts = [[word] for word in words]
        cut = self.tokenizer(texts, is_split_into_words=True, add_special_tokens=special)
        return [list(map(int, ids)) for ids in cut["input_ids"]]

    def _surroundings(self) -> tuple[list[int], list[int]]:
        """The special pieces before and after a text, seen around one of a word."""
        (bare,), (whole,) = self._cut(["a"]), self._cut(["a"], special=True)
        for start in range(len(whole) - len(bare) + 1):
            if bare and whole[start : start + len(bare)] == bare:
                return whole[:start], whole[start + len(bare) :]
        return [], []

    def _spare(self, name: str, what: str) -> int:
        for item in (name, "unk_token_id"):
            if (number := getattr(self.tokenizer, item, None)) is not None:
                return int(number)
        raise DataError(
            f"{self.folder}: its tokenizer has neither an unknown piece nor a mask for {what}. "
            "Correct the data, or give another encoder."
        )


def windows(
    ids: Sequence[Sequence[int]], rows: Sequence[int], length: int, only_first: bool = False
) -> Iterator[Window]:
    """The windows of a sentence: one if it is short enough, else overlapping ones.

    Neighbours share half of their pieces; each piece is taken from the window in whose middle it
    is, so that it has at least a quarter of a window around it on both sides.

    Args:
        ids: the pieces of each word.
        rows: the row of each word.
        length: the most pieces of a window.
        only_first: whether a word's first piece alone counts for it.
    """
    pieces = [piece for word in ids for piece in word]
    owner = [
        -1 if only_first and place else row
        for row, word in zip(rows, ids, strict=True)
        for place in range(len(word))
    ]
    total, step = len(pieces), max(length // 2, 1)
    starts = [0] if total <= length else [*range(0, total - length, step), total - length]
    taken = 0
    for number, start in enumerate(starts):
        stop = start + length
        is_last = number == len(starts) - 1
        # Up to the middle of what this window shares with the next one.
        end = total if is_last else (starts[number + 1] + stop + 1) // 2
        yield Window(pieces[start:stop], owner[start:stop], taken - start, end - start)
        taken = end
