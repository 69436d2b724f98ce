"""Options of the adapter of tables of records: which column is what, and what reads the records."""

from __future__ import annotations

import pytest
from effects.lab import counts
from effects.table import Rows

from graphfold.errors import ConfigError, DataError, RecordError

ROWS = row = Rows()

TABLE = """\
tree,smiles,y,kind,times,part
(S (A a) (B b) (C c)),CCO,1.5,no,1,train
(S (A a)),CC,,yes,2,test
(S (A b)),C,-3,no,0,val
"""


def of_trees(graphs, **options):
    base = {"records": "brackets", "record_column": "tree", "target_columns": ["y"]}
    return graphs("table", TABLE, "a.csv", **{**base, **options})


@row.changes(["table.records", "table.record_column"], "what the records are, and their column")
def _(graphs):
    assert counts(of_trees(graphs)) == {"word": 4, "phrase": 2}
    smiles = of_trees(graphs, records="smiles", record_column="smiles", target_columns=["times"])
    assert counts(smiles) == {"atom": 6}
    with pytest.raises(ConfigError, match="data.records is table, which is no kind of record"):
        of_trees(graphs, records="table")
    with pytest.raises(DataError, match="no column 'trees' .* Set data.record_column"):
        of_trees(graphs, record_column="trees")


@row.changes("table.options", "the adapter of the records has these options")
def _(graphs):
    plain, binary = (of_trees(graphs, options={"binarize": value}) for value in (False, True))
    assert (counts(plain)["phrase"], counts(binary)["phrase"]) == (2, 3)
    with pytest.raises(ConfigError, match="the brackets adapter has no option 'binarise'"):
        of_trees(graphs, options={"binarise": True})


@row.changes("table.target_columns", "which columns are learned; rows without any are left out")
def _(graphs):
    assert of_trees(graphs).graph_column("y").tolist() == [1.5, -3]
    both = of_trees(graphs, target_columns=["y", "times"])
    assert both.graph_column("times").tolist() == [1, 2, 0]


@row.changes("table.task", "targets are numbers, or classes")
def _(graphs):
    as_class = of_trees(graphs, target_columns=["kind"], task="classification")
    assert as_class.graph_column("kind").tolist() == [0, 1, 0]
    with pytest.raises(RecordError, match="'kind' is 'no', which is not a finite number"):
        of_trees(graphs, target_columns=["kind"])


@row.changes("table.num_classes", "how many classes numbers stand for")
def _(graphs):
    options = {"target_columns": ["times"], "task": "classification"}
    dag = of_trees(graphs, **options, num_classes=3)
    assert dag.graph_column("times").tolist() == [1, 2, 0]
    assert dag.schema.graph_targets[0].size == 3
    with pytest.raises(RecordError, match="'times' is '2', which is not one of the classes 0 .. 1"):
        of_trees(graphs, **options)


@row.changes("table.class_names", "the classes of a column of text, in order")
def _(graphs):
    names = {"kind": ["yes", "no"]}
    options = {"target_columns": ["kind"], "task": "classification"}
    dag = of_trees(graphs, **options, class_names=names)
    assert dag.graph_column("kind").tolist() == [1, 0, 1]
    with pytest.raises(ConfigError, match="class_names names 'z', which is no target"):
        of_trees(graphs, **options, class_names={"z": ["yes", "no"]})


@row.changes("table.weight_column", "the weight of each record in the loss")
def _(graphs):
    assert of_trees(graphs).weights() is None
    assert of_trees(graphs, weight_column="times").weights().tolist() == [1, 0]


@row.changes("table.split_column", "the part that each record is in")
def _(graphs):
    options = {"target_columns": ["times"], "split_column": "part"}
    dag = of_trees(graphs, **options)
    assert dag.strings("graph", "part of the split") == ["train", "test", "val"]
