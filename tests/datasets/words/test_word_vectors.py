"""Words of a corpus and their vectors: spellings, the share found, and the vocabulary."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from graphfold.datasets.data_module import DataModule
from graphfold.datasets.words.vectors import read_vectors
from graphfold.errors import ConfigError, DataError

VECTORS = "the 1 0\nfilm 2 0\nbright 3 0\n( 4 0\nThe 5 0\nnew 6 0\nthe 9 9\n"
TREES = {
    "train": "(3 (2 The) (3 (3 odd) (2 FILM)))\n(2 (2 -LRB-) (2 odd))\n",
    "val": "(3 (3 bright) (2 film))\n",
    "test": "(3 (3 new) (2 strange))\n",
}


def write(folder: Path) -> dict[str, str]:
    (folder / "v.txt").write_text(VECTORS)
    for part, text in TREES.items():
        (folder / f"{part}.txt").write_text(text)
    return {part: str(folder / f"{part}.txt") for part in TREES}


def data(folder: Path, **settings: object) -> DataModule:
    paths = write(folder)
    made = DataModule(
        adapter="brackets",
        path=paths,
        num_classes=5,
        cache_dir=folder / "cache",
        vectors=folder / "v.txt",
        **settings,
    )
    made.prepare()
    return made


def test_words_in_lower_case_are_looked_up_as_they_are_written(tmp_path):
    path = tmp_path / "v.txt"
    path.write_text("Paris 1 0\nUS 2 0\nus 3 0\nthe 4 0\nThe 5 0\nfilm 6 0\n")
    written = {"Paris": 2, "us": 1, "US": 3, "the": 9, "The": 2, "FILM": 1}
    found = read_vectors(path, written, lowercase=True)
    assert {word: vector.tolist() for word, vector in found.vectors.items()} == {
        "paris": [1, 0],  # only with a capital in the file
        "us": [2, 0],  # more often US
        "the": [4, 0],
        "film": [6, 0],
    }
    assert "for 4 of 4 words (100.0%), which are 100.0% of the tokens" in found.note


def test_a_file_without_a_word_of_the_data_is_refused(tmp_path):
    path = tmp_path / "v.txt"
    path.write_text(VECTORS)
    with pytest.raises(DataError, match=r"none of the 2 words of the data is among its 7"):
        read_vectors(path, {"Wort": 1, "Satz": 1})


def test_the_vocabulary_is_training_words_and_all_words_with_a_vector(tmp_path):
    made = data(tmp_path)
    (vocabulary,) = made.spec.vocabularies.values()
    assert set(vocabulary.words) == {"The", "odd", "FILM", "-LRB-", "bright", "film", "new"}
    assert vocabulary.words[-3:] == ("bright", "film", "new")
    form = made.encoded("test").features("word")["form"]
    assert form.tolist() == [*vocabulary.ids(["new"]).tolist(), 0]  # `strange` is unknown
    vectors = made.word_vectors
    assert vectors is not None
    table = vectors.embeddings(vocabulary.words)
    assert torch.equal(
        table[vocabulary.ids(["new", "film", "-LRB-"])][:, 0], torch.tensor([6.0, 2, 4])
    )
    assert made.word_notes == [vectors.note]


def test_a_prepared_state_needs_no_file_until_vectors_are_asked_for(tmp_path):
    first = data(tmp_path)
    settings = {"num_classes": 5, "cache_dir": tmp_path / "cache", "vectors": tmp_path / "v.txt"}
    again = DataModule(adapter="brackets", path=write(tmp_path), **settings)
    (tmp_path / "v.txt").rename(tmp_path / "moved.txt")
    again.prepare(first.state_dict())
    assert again.spec.to_dict() == first.spec.to_dict()
    with pytest.raises(DataError, match="no such file"):
        _ = again.word_vectors
    (tmp_path / "moved.txt").rename(tmp_path / "v.txt")
    assert again.word_vectors is not None
    assert first.word_vectors is not None
    assert again.word_vectors.vectors.keys() == first.word_vectors.vectors.keys()


@pytest.mark.parametrize(
    ("adapter", "options"), [("listops", {}), ("conllu", {"features": ["lemma"]})]
)
def test_an_adapter_without_words_refuses_vectors(adapter, options, tmp_path):
    with pytest.raises(ConfigError, match=f"data.vectors is for words, .* the {adapter} adapter"):
        DataModule(adapter=adapter, path="f", vectors="v.txt", **options)


def test_words_without_a_vector_are_small_and_random(tmp_path):
    path = tmp_path / "v.txt"
    path.write_text(VECTORS)
    table = read_vectors(path, {"the": 1, "odd": 1}).embeddings(["odd", "the"])
    assert table[2].tolist() == [1, 0]
    assert (table[:2].abs() <= 0.05).all()
    assert (table[0] != table[1]).all()
