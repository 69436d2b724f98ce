"""Collating, selecting and splitting keep every column."""

from __future__ import annotations

import pickle

import pytest
import torch
from engine_cells import SCHEMA, chain, random_dag
from torch.utils._python_dispatch import TorchDispatchMode

from graphfold.dag import (
    Column,
    GraphBuilder,
    NodeType,
    Schema,
    collate,
    select,
    split,
    validate,
)
from graphfold.dag.compare import equal
from graphfold.errors import SchemaError


@pytest.mark.parametrize("seed", range(6))
def test_split_then_collate_is_the_identity(seed):
    dag = random_dag(5, seed)
    assert equal(collate(split(dag)), dag)


@pytest.mark.parametrize("seed", range(6))
def test_split_gives_the_graphs_that_select_gives(seed):
    dag = select(random_dag(5, seed), [4, 1, 1, 0])
    parts = split(dag)
    assert len(parts) == 4
    for number, part in enumerate(parts):
        validate(part)
        assert equal(part, select(dag, [number]))
        assert torch.equal(part.batch, torch.zeros(part.num_nodes, dtype=torch.int64))
    assert split(select(dag, [])) == []


class Counting(TorchDispatchMode):
    """Counts operations of torch."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += 1
        return func(*args, **(kwargs or {}))


def test_graphs_are_split_off_by_as_many_operations_as_there_are_tensors():
    counts = []
    for num_graphs in (5, 60):
        dag = random_dag(num_graphs, 0)
        split(dag)  # pointers are computed once
        with Counting() as counting:
            assert len(split.__wrapped__(dag)) == num_graphs
        counts.append(counting.count)
    assert counts[0] == counts[1] > 0


def test_a_graph_that_was_split_off_shares_no_memory():
    """Neither are the others stored with it, nor does a change of it reach them."""
    dag = random_dag(50, 0)
    part = split(dag)[0]
    assert len(pickle.dumps(part)) < 1.1 * len(pickle.dumps(select(dag, [0])))
    before = select(dag, [0])
    for tensor in (part.op_type, part.input_index, part.span, part.output_index):
        tensor += 1
    assert equal(select(dag, [0]), before)


@pytest.mark.parametrize("seed", range(6))
def test_select_takes_graphs_in_the_given_order(seed):
    dag = random_dag(5, seed)
    parts = split(dag)
    chosen = select(dag, [3, 0, 3])
    validate(chosen)
    assert equal(chosen, collate([parts[3], parts[0], parts[3]]))
    assert equal(select(dag, range(5)), dag)
    assert select(dag, []).num_graphs == 0


def worded(*forms: str, file: str) -> object:
    builder = GraphBuilder(Schema((NodeType("word", 0, (Column("form", "string"),)),)), file)
    builder.output(*[builder.node("word", form=form) for form in forms])
    builder.finish(line=1)
    return builder.build()


def test_collate_shares_dictionaries_and_files():
    dag = collate([worded("b", "a", file="x"), worded("c", "a", file="y"), worded("b", file="x")])
    assert dag.strings("type:word", "form") == ["b", "a", "c", "a", "b"]
    assert [dag.place(i)[0] for i in range(3)] == ["x", "y", "x"]


def test_different_schemas_do_not_collate():
    with pytest.raises(SchemaError, match="different schemas"):
        collate([random_dag(1, 0), worded("a", file="x")])
    with pytest.raises(SchemaError, match="nothing to collate"):
        collate([])


def test_deep_and_wide_graphs_pickle_print_and_validate():
    deep = chain(10_000)
    builder = GraphBuilder(SCHEMA)
    words = list(builder.nodes("word", 10_000))
    builder.output(builder.node("phrase", words))
    builder.finish()
    for dag in (deep, builder.build()):
        validate(dag)
        assert equal(pickle.loads(pickle.dumps(dag)), dag)
        assert "1 graphs" in repr(dag)
    assert int(deep.depth.max()) == 10_000
