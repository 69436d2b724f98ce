"""Characters of words: new words share codes with those that are spelt alike."""

from __future__ import annotations

import pytest

from graphfold.datasets.words.word_features import BUCKETS, NUM_CODES, character_codes, shape


def test_alike_words_share_the_codes_of_what_they_share():
    walking, talking, short, upper = character_codes(["walking", "talking", "is", "Walking"])
    assert len(walking) == NUM_CODES
    shared = (walking == talking).tolist()
    assert shared == [False] * 4 + [True] * 4 + [True]  # beginnings, ends, shape
    assert (short == -1).tolist() == [False, False, True, True] * 2 + [False]
    assert walking[:-1].tolist() == upper[:-1].tolist()
    assert walking[-1] != upper[-1]
    assert int(walking.max()) < BUCKETS


@pytest.mark.parametrize(
    ("word", "expected"),
    [("Covid-19", "Xx-d"), ("USA", "X"), ("...", "."), ("naïve", "x"), ("٣", "d"), ("", "")],
)
def test_the_shape_tells_capitals_digits_and_signs(word, expected):
    assert shape(word) == expected
