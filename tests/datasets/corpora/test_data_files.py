"""From settings to files, adapters and options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from postfix_adapter import NAME

from graphfold.datasets.corpora.corpus_makers import make_listops
from graphfold.datasets.corpora.data_files import DataSource
from graphfold.errors import ConfigError

NOWHERE = Path("nowhere")


def test_a_file_of_ones_own():
    source = DataSource(adapter=NAME, path="f.txt", options={"base": 8})
    (file,) = source.files(NOWHERE, NOWHERE)
    assert (file.path, file.part) == (Path("f.txt"), None)
    assert file.adapter.options == {"base": 8}


def test_a_path_is_read_as_the_files_of_its_corpus_would_be():
    source = DataSource(corpus="qm9", variant="hc", path="f.csv", options={"task": "regression"})
    (file,) = source.files(NOWHERE, NOWHERE)
    assert file.path == Path("f.csv")
    assert file.adapter.options["target_columns"] == ["heat_capacity"]


def test_an_unset_option_may_stand_in_any_config():
    assert DataSource(corpus="sick", options={"task": None}).spec.options == {}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, r"nothing to read\. Set data\.corpus, or both data\.adapter and data\.path"),
        ({"adapter": "smiles"}, r"nothing to read"),
        ({"corpus": "sst", "adapter": "conllu"}, r"corpus sst is read by the brackets adapter, no"),
        ({"corpus": "ss"}, r"Did you mean 'sst'"),
        ({"adapter": "smile", "path": "f"}, r"Did you mean 'smiles'"),
        ({"adapter": NAME, "path": {"tain": "f"}}, r"'tain'\. Did you mean 'train'\? The parts"),
        ({"corpus": "sst", "options": {"binarise": True}}, r"'binarise'\. Did you mean 'binarize'"),
        ({"corpus": "sst", "options": {"binarize": "yes"}}, r"'yes', but it must be true or false"),
        ({"corpus": "sst", "variant": "x"}, r"no variant 'x'"),
        ({"corpus": "listops_generated", "options": {"trian_size": 3}}, r"mean 'train_size'"),
        (
            {"corpus": "listops_generated", "options": {"train_size": "3"}},
            r"must be a whole number",
        ),
        ({"corpus": "listops", "options": {"train_size": 3}}, r"no option 'train_size'\. With the"),
        (
            {"corpus": "sst", "options": {"batchsize": 3}, "siblings": ["batch_size"]},
            r"data has no option 'batchsize'\. Did you mean 'batch_size'\?",
        ),
    ],
)
def test_faults(arguments, message):
    with pytest.raises(ConfigError, match=message):
        DataSource(**arguments)


def test_generated_files_are_kept(tmp_path):
    options: dict[str, Any] = {"train_size": 20, "val_size": 3, "test_size": 4, "pool": 30}
    source = DataSource(corpus="listops_generated", options=options)
    files = source.files(NOWHERE, tmp_path)
    assert [file.part for file in files] == ["train", "val", "test"]
    lines = [file.path.read_text().splitlines() for file in files]
    assert [len(part) for part in lines] == [20, 3, 4]
    expressions = [line.split("\t")[1] for part in lines for line in part]
    assert len(set(expressions)) == 27
    before = [file.path.stat().st_mtime_ns for file in files]
    again = source.files(NOWHERE, tmp_path)
    assert again == files
    assert [file.path.stat().st_mtime_ns for file in again] == before
    other = make_listops(tmp_path, **options, generator_seed=1)
    assert other[0][0].read_text() != files[0].path.read_text()
    with pytest.raises(ConfigError, match=r"data\.val_size is 0\. Give at least 1"):
        make_listops(tmp_path, val_size=0)
