"""Words and their ids."""

from __future__ import annotations

import torch

from graphfold.datasets.features.vocabulary import (
    UNKNOWN,
    Vocabulary,
    count_words,
    fit_vocabulary,
)

WORDS = ("film", "Film", "rare", "the", "unused")
CODES = torch.tensor([3, 3, 3, 0, 0, 1, 2, -1])


def test_frequent_words_come_first_and_ties_in_alphabetical_order():
    assert fit_vocabulary(CODES, WORDS).words == ("the", "film", "Film", "rare")


def test_limits():
    assert fit_vocabulary(CODES, WORDS, min_count=2).words == ("the", "film")
    assert fit_vocabulary(CODES, WORDS, max_size=1).words == ("the",)
    assert fit_vocabulary(CODES, WORDS, lowercase=True).words == ("film", "the", "rare")
    assert fit_vocabulary(torch.tensor([-1]), ()).words == ()


def test_ids():
    vocabulary = fit_vocabulary(CODES, WORDS, min_count=2)
    assert len(vocabulary) == 3
    assert vocabulary.ids(["film", "the", "rare", "new"]).tolist() == [2, 1, UNKNOWN, UNKNOWN]
    assert Vocabulary(("a",), lowercase=True).ids(["A", "a", "b"]).tolist() == [1, 1, 0]


def test_encoding_a_column_coded_otherwise():
    vocabulary = fit_vocabulary(CODES, WORDS)
    codes = torch.tensor([[0, 2], [1, -1]])
    ids = vocabulary.encode(codes, ("new", "the", "film"))
    assert ids.tolist() == [[0, 2], [1, 0]]
    assert vocabulary.encode(torch.tensor([-1]), ()).tolist() == [UNKNOWN]


def test_further_words_come_last_and_once():
    vocabulary = Vocabulary(("the", "film"), lowercase=True).with_words(["new", "film", "new"])
    assert vocabulary == Vocabulary(("the", "film", "new"), lowercase=True)
    assert vocabulary.ids(["The", "new", "rare"]).tolist() == [1, 3, UNKNOWN]


def test_words_are_counted_as_they_are_looked_up():
    assert count_words(CODES, WORDS) == {"the": 3, "film": 2, "Film": 1, "rare": 1}
    assert count_words(CODES, WORDS, lowercase=True) == {"the": 3, "film": 3, "rare": 1}
