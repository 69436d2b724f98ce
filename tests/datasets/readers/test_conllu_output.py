"""CoNLL-U, written back byte for byte but for what was predicted."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from datasets.tree_files import corpus_folder, write

from graphfold.datasets.readers.conllu import (
    COLUMN_OF,
    ConlluAdapter,
    with_columns,
    with_fault,
)

ROWS = b"1-2\tdu\t_\t_\t_\t_\t_\t_\t_\t_\n1\tde\t_\tADP\t_\t_\t2\tcase\t_\t_\n"
SENTENCE = (
    b"# a comment\n"
    + ROWS
    + b"2\tle\t_\tDET\t_\t_\t0\troot\t_\tX=1\n2.1\te\t_\t_\t_\t_\t_\t_\t_\t_"
)


def texts_of(path: Path) -> list[str]:
    adapter = ConlluAdapter()
    return [adapter.text_of(record) for record in adapter.records(path)]


@pytest.mark.parametrize(
    "name",
    ["ud_english_ewt/en_ewt-ud-test.conllu", "ud_french_sequoia/fr_sequoia-ud-train.conllu.gz"],
)
def test_the_columns_of_a_real_file_give_the_file(name, data_root):
    folder, _, file = name.partition("/")
    path = corpus_folder(data_root, folder) / file
    content = path.read_bytes()
    content = gzip.decompress(content) if path.suffix == ".gz" else content
    texts, given = [], []
    for text in texts_of(path):
        words = [
            cells
            for cells in (line.split("\t") for line in text.split("\n"))
            if cells[0].isdecimal()
        ]
        columns = {name: [word[place] for word in words] for name, place in COLUMN_OF.items()}
        given.append(with_columns(text, columns))
        texts.append(text)
    assert "".join(given).encode() == "".join(texts).encode() == content


def test_only_the_cells_of_words_change():
    text = SENTENCE.decode() + "\n\n"
    found = with_columns(text, {"upos": ["X", None], "deprel": ["a", "b"]})
    expected = text.replace("ADP\t_\t_\t2\tcase", "X\t_\t_\t2\ta").replace("root", "b")
    assert found == expected


@pytest.mark.parametrize(
    "content",
    [
        SENTENCE,
        b"\xef\xbb\xbf" + SENTENCE + b"\n",
        b"\n \t\n" + SENTENCE + b"\n\n\n" + SENTENCE + b"\n \n",
        SENTENCE.replace(b"\n", b"\r\n") + b"\r\n\r\n" + SENTENCE,
        SENTENCE + b"\n\n# \xff\xfe no text\n1\tb\xe9\n\n",
        b"# only a comment\n\n" + SENTENCE,
    ],
    ids=["no-end", "mark", "blank-lines", "crlf", "bytes", "comment"],
)
def test_every_byte_belongs_to_one_sentence(content, tmp_path):
    path = write(tmp_path, content)
    texts = texts_of(path)
    assert "".join(texts).encode("utf-8", "surrogateescape") == content


def test_a_fault_is_a_comment_before_the_sentence():
    comment = "# graphfold_error = no head\n"
    assert with_fault("1\ta\n\n", "no\nhead") == f"{comment}1\ta\n\n"
    assert with_fault("\ufeff\n# c\r\n", "no head") == f"\ufeff\n{comment[:-1]}\r\n# c\r\n"
