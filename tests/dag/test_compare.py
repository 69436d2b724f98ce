"""Equality of graphs: what they say counts, not how it is coded."""

from __future__ import annotations

from dataclasses import replace

import torch
from hypothesis import given
from strategies import dags

from graphfold.dag import Column, GraphBuilder, NodeType, Schema, TypedDAG, collate, recode, split
from graphfold.dag.compare import difference, equal

SCHEMA = Schema(
    (NodeType("word", features=(Column("form", "string"), Column("weight"))),),
    graph_targets=(Column("score"),),
)


def chain(forms: list[str | None], score: float | None = None, file: str = "f") -> TypedDAG:
    builder = GraphBuilder(SCHEMA, file)
    node = builder.node("word", form=forms[0], weight=1.0)
    for form in forms[1:]:
        node = builder.node("word", [node], form=form, weight=None)
    builder.output(node)
    builder.finish(line=1, score=score)
    return builder.build()


@given(dag=dags(absent=True, outputs="some"))
def test_graphs_equal_themselves_put_together_again(dag):
    assert equal(dag, collate(split(dag)))


def test_codes_of_strings_do_not_count():
    dag = chain(["a", "b", None])
    other = recode(dag, {("type:word", "form"): ("z", "b", "a")})
    assert not torch.equal(dag.features("word")["form"], other.features("word")["form"])
    assert equal(dag, other)


def test_difference_names_what_differs():
    dag = chain(["a", "b"], 1.0)
    assert difference(dag, chain(["a"], 1.0)) == "op_type"
    assert difference(dag, chain(["a", "c"], 1.0)) == "column 'form' of type:word"
    assert difference(dag, chain(["a", None], 1.0)) == "column 'form' of type:word"
    assert difference(dag, chain(["a", "b"])) == "column 'score' of graph"
    assert difference(dag, chain(["a", "b"], 1.0, file="g")) == "origin"
    assert difference(dag, replace(dag, span=dag.span + 1)) == "span"
    assert difference(dag, replace(dag, schema=Schema(()))) == "schema"
    assert difference(dag, collate([dag, dag])) == "num_graphs"
