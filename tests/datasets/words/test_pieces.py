"""Pieces and windows: every piece is taken once, with context on both sides."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphfold.datasets.words.contextual import Pieces, windows
from graphfold.errors import DataError


class LetterTokenizer:
    """A tokenizer whose pieces are letters, between 1 and 2 where special pieces are asked for."""

    unk_token_id: int | None = 0
    mask_token_id: int | None = 9
    calls = 0

    def __call__(
        self, texts: list[list[str]], is_split_into_words: bool, add_special_tokens: bool
    ) -> dict[str, Any]:
        assert is_split_into_words
        self.calls += len(texts)
        ids = [[ord(c) for c in word if c.isprintable()] for (word,) in texts]
        return {"input_ids": [[1, *found, 2] if add_special_tokens else found for found in ids]}


def test_words_are_cut_once_and_none_is_lost() -> None:
    tokenizer = LetterTokenizer()
    pieces = Pieces(tokenizer, "folder")
    assert (pieces.before, pieces.after) == ([1], [2])
    found = pieces.of(["ab", None, "-LRB-", "\u200b", "ab"])
    assert found == [[97, 98], [9], [40], [0], [97, 98]]
    assert pieces.empty == {"\u200b"}
    before = tokenizer.calls
    pieces.of(["ab", "\u200b"])
    assert tokenizer.calls == before


def test_a_tokenizer_without_any_spare_piece_is_refused() -> None:
    tokenizer = LetterTokenizer()
    tokenizer.unk_token_id = tokenizer.mask_token_id = None
    with pytest.raises(DataError, match=r"folder: .* neither an unknown piece nor a mask"):
        Pieces(tokenizer, "folder").of([None])


@given(
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=30),
    longest=st.integers(1, 12),
    only_first=st.booleans(),
)
def test_every_piece_is_taken_from_one_window(
    lengths: list[int], longest: int, only_first: bool
) -> None:
    total = sum(lengths)
    numbers = iter(range(total))
    ids = [[next(numbers) for _ in range(length)] for length in lengths]
    rows = [10 + k for k in range(len(ids))]
    found = list(windows(ids, rows, longest, only_first))
    taken = [piece for w in found for piece in w.ids[w.start : w.stop]]
    assert taken == list(range(total))
    owner = [row for w in found for row in w.owner[w.start : w.stop]]
    whole = [
        [row] + [-1 if only_first else row] * (len(own) - 1)
        for row, own in zip(rows, ids, strict=True)
    ]
    assert owner == [row for own in whole for row in own]
    assert all(len(window.ids) <= longest for window in found)
    assert len(found) == 1 or all(len(window.ids) == longest for window in found)
    for window in found:
        before = window.start if window.ids[0] > 0 else longest
        after = len(window.ids) - window.stop if window.ids[-1] < total - 1 else longest
        assert min(before, after) >= (longest - longest // 2) // 2 - (longest < 2)
