"""Characters of words: new words share codes with those that are spelt alike."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphfold.datasets.data_module import DataModule
from graphfold.datasets.words.word_features import BUCKETS, NUM_CODES, character_codes, shape

CONLLU = "1\t{}\t_\tNOUN\t_\t_\t0\troot\t_\t_\n2\t{}\t_\tNOUN\t_\t_\t1\tdep\t_\t_\n\n"


def test_alike_words_share_the_codes_of_what_they_share() -> None:
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
def test_the_shape_tells_capitals_digits_and_signs(word: str, expected: str) -> None:
    assert shape(word) == expected


def test_words_of_any_part_have_their_characters(tmp_path: Path) -> None:
    texts = {"train": CONLLU.format("walking", "_"), "test": CONLLU.format("talking", "_")}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    paths = {"train": tmp_path / "train", "val": tmp_path / "test", "test": tmp_path / "test"}
    data = DataModule(
        adapter="conllu", path=paths, cache_dir=tmp_path / "cache", characters=True, min_count=1
    )
    data.prepare()
    encoded = data.encoded("test")
    assert encoded.features("word")["form"][0] == 0
    expected = character_codes(["talking", "_"])
    assert encoded.features("word")["characters"].tolist() == expected.tolist()
    (column,) = (c for c in encoded.schema.types[0].features if c.name == "characters")
    assert (column.shape, column.size) == ((NUM_CODES,), BUCKETS)
