"""Finding the files of a corpus, and the message where they are absent."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from graphfold.datasets.corpora.corpus import Corpus, default_root, find_files, known_hashes
from graphfold.datasets.corpora.corpus_table import CORPORA, find_corpus
from graphfold.datasets.storage.cache import default_cache_dir
from graphfold.errors import ConfigError, DataError

ON_DISK = [corpus for corpus in CORPORA.values() if corpus.files]


def touch(root: Path, corpus: Corpus) -> None:
    for file in corpus.files:
        path = root / corpus.name / file.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


@pytest.mark.parametrize("corpus", ON_DISK, ids=lambda corpus: corpus.name)
def test_files_of_every_corpus_are_found_under_its_name(corpus, tmp_path):
    touch(tmp_path, corpus)
    files = find_files(corpus, tmp_path, every_variant=True)
    assert [file.path for file in files] == [
        tmp_path / corpus.name / file.name for file in corpus.files
    ]
    for file in files:
        assert file.adapter.make().schema.types


@pytest.mark.parametrize("corpus", ON_DISK, ids=lambda corpus: corpus.name)
def test_the_hash_of_every_file_is_known(corpus):
    for file in corpus.files:
        name = f"{corpus.name}/{file.name}"
        assert any(known == name or known.startswith(f"{name}/") for known in known_hashes())


def test_real_files_are_those_of_the_table(data_root):
    for name in ("sst/dev.txt", "esol/delaney-processed.csv"):
        digest = hashlib.sha256((data_root / name).read_bytes()).hexdigest()
        assert digest == known_hashes()[name]


def test_of_every_variant_those_are_found_that_are_there(tmp_path):
    corpus = find_corpus("listops")
    with pytest.raises(DataError, match=r"test_d20s\.tsv\.gz: no such file"):
        find_files(corpus, tmp_path, every_variant=True)
    (tmp_path / "listops").mkdir()
    (tmp_path / "listops" / "test_d20a.tsv").touch()
    files = find_files(corpus, tmp_path, every_variant=True)
    assert [file.path.name for file in files] == ["test_d20a.tsv"]


def test_a_file_may_be_gzipped_or_not(tmp_path):
    corpus = find_corpus("ud_chinese_gsdsimp")
    folder = tmp_path / corpus.name
    folder.mkdir()
    for name in ("zh_gsdsimp-ud-dev.conllu.gz", "zh_gsdsimp-ud-test.conllu"):
        (folder / name).touch()
    assert [file.path.name for file in find_files(corpus, tmp_path)] == [
        "zh_gsdsimp-ud-dev.conllu.gz",
        "zh_gsdsimp-ud-test.conllu",
    ]
    corpus = find_corpus("hiv")
    (tmp_path / "hiv").mkdir()
    (tmp_path / "hiv" / "HIV.csv").touch()
    assert find_files(corpus, tmp_path)[0].path.name == "HIV.csv"


def test_a_missing_file_is_named_with_where_to_get_it(tmp_path):
    message = (
        r"sst/train\.txt: no such file\. Get it from the folder data/sst of "
        r"https://github\.com/Ant-Bru/pyTreeLearn at commit a2b8ae4\w+; or set data\.root to the "
        r"folder that holds 'sst'\."
    )
    with pytest.raises(DataError, match=message) as caught:
        find_files(find_corpus("sst"), tmp_path)
    assert caught.value.facts["path"] == str(tmp_path / "sst" / "train.txt")


def test_variants(tmp_path):
    corpus = find_corpus("qm9")
    touch(tmp_path, corpus)
    (first,) = find_files(corpus, tmp_path)
    (other,) = find_files(corpus, tmp_path, "ip")
    assert first.path.name == "qm9_hlg.csv.gz"
    assert other.adapter.options["target_columns"] == ["isotropic_polarizability"]
    assert other.adapter.options["units"] == {"isotropic_polarizability": "bohr^3"}
    with pytest.raises(ConfigError, match=r"no variant 'pot'.* It has: hlg, hc, ip, potential\."):
        find_files(corpus, tmp_path, "pot")
    with pytest.raises(ConfigError, match=r"corpus sst has no variant 'hc'\. It has: none\."):
        find_corpus("sst").spec("hc")


def test_default_folders(monkeypatch, tmp_path):
    monkeypatch.setenv("GRAPHFOLD_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_root() == tmp_path
    assert default_cache_dir() == tmp_path / "graphfold"
    monkeypatch.delenv("GRAPHFOLD_DATA")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_root() == Path("data")
    assert default_cache_dir() == tmp_path / ".cache" / "graphfold"
