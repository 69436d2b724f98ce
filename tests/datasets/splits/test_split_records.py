"""Splits by what graphs say: labels, scaffolds, files."""

from __future__ import annotations

import pytest
import torch
from postfix_adapter import PostfixAdapter, random_expressions, write_expressions

from graphfold.dag import TypedDAG
from graphfold.datasets.adapter import read_records
from graphfold.datasets.readers.smiles import SmilesAdapter
from graphfold.datasets.settings import DataSettings
from graphfold.datasets.splits.split_records import (
    Records,
    check_split,
    labels_of,
    split_records,
)
from graphfold.datasets.storage.store import GraphCorpus
from graphfold.errors import ConfigError


@pytest.fixture(scope="module")
def dag(tmp_path_factory: pytest.TempPathFactory) -> TypedDAG:
    path = tmp_path_factory.mktemp("data") / "f.txt"
    adapter = PostfixAdapter()
    write_expressions(path, random_expressions(60))
    return read_records(adapter, path, adapter.records(path)).dag


@pytest.fixture(scope="module")
def molecules(tmp_path_factory: pytest.TempPathFactory) -> TypedDAG:
    path = tmp_path_factory.mktemp("data") / "m.csv"
    rings = ["c1ccccc1", "C1CCCCC1", "c1ccncc1", "C1CC1", "c1ccoc1"]
    path.write_text("smiles\n" + "".join(f"{ring}{'C' * k}\n" for k in range(6) for ring in rings))
    adapter = SmilesAdapter()
    return read_records(adapter, path, adapter.records(path)).dag


def test_given_is_the_default_where_there_is_a_train_part(dag):
    assert (
        split_records(
            Records(GraphCorpus([dag]), ["train", "val"], [50, 10]), DataSettings()
        ).method
        == "given"
    )
    assert (
        split_records(Records(GraphCorpus([dag]), ["val", "test"], [50, 10]), DataSettings()).method
        == "random"
    )
    assert (
        split_records(Records(GraphCorpus([dag]), [None], [60]), DataSettings()).method == "random"
    )


def test_labels_of_graphs_and_of_roots(dag):
    assert torch.equal(labels_of(dag, "digits"), dag.graph_column("digits"))
    roots = labels_of(dag, "parity")
    assert roots.shape == (60,)
    single = dag.node_ptr.diff() == 1
    assert torch.equal(roots[single], dag.node_targets["parity"][dag.node_ptr[:-1][single]])
    assert torch.equal(labels_of(dag, "text"), dag.graph_column("text"))


def test_labels_that_cannot_be_used(dag, molecules):
    with pytest.raises(ConfigError, match=r"'digit', which no record has\. Did you mean 'digits'"):
        labels_of(dag, "digit")
    with pytest.raises(ConfigError, match=r"targets with labels are: digits, parity\. Set data"):
        labels_of(dag, None)
    with pytest.raises(ConfigError, match=r"targets with labels are: none"):
        labels_of(molecules, None)


def test_measurements_are_no_labels(tmp_path):
    path = tmp_path / "m.csv"
    path.write_text("smiles,y,z\nC,1.5,0\nCC,2,1\nCCC,,1\n")
    adapter = SmilesAdapter(target_columns=["y", "z"])
    dag = read_records(adapter, path, adapter.records(path)).dag
    assert labels_of(dag, "z").tolist() == [0, 1, 1]
    with pytest.raises(ConfigError, match=r"stratify_by=y holds measurements, not labels\. Name a"):
        labels_of(dag, "y")


def test_groups_that_cannot_be(dag):
    with pytest.raises(ConfigError, match=r"data\.groups is 'scafold'\. Did you mean 'scaffold'"):
        check_split(DataSettings(groups="scafold"))
    with pytest.raises(
        ConfigError, match=r"groups=scaffold is not read with data\.split=stratified\. Set data"
    ):
        check_split(DataSettings(split="stratified", groups="scaffold"))
    given = DataSettings(groups="molecule")
    with pytest.raises(ConfigError, match=r"not read with data\.split=given\. Set data\.sp"):
        split_records(Records(GraphCorpus([dag]), ["train", "val"], [50, 10]), given)
    with pytest.raises(ConfigError, match=r"data\.groups=molecule needs molecules with a SMILES"):
        split_records(Records(GraphCorpus([dag]), [None], [60]), given)
