"""FeatureEncoder: one vector per node, type by type."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from strategies import MIXED_SCHEMA, dags, empty

from graphfold.errors import ConfigError
from graphfold.layers import FeatureEncoder


@given(dag=dags())
def test_each_type_gets_one_row_per_node(dag):
    encoder = FeatureEncoder(MIXED_SCHEMA, 6).double()
    x = encoder(dag)
    assert encoder.widths == {"word": 6, "phrase": 0, "pair": 6}
    for node_type, count in zip(MIXED_SCHEMA.types, dag.num_nodes_by_type, strict=True):
        assert x[node_type.name].shape == (count, encoder.widths[node_type.name])
        assert x[node_type.name].dtype == torch.float64
    forms = dag.features("word")["form"]
    torch.testing.assert_close(x["word"], encoder.encoders["word"].table[forms])


@given(dag=dags())
def test_only_the_named_columns_are_read(dag):
    encoder = FeatureEncoder(MIXED_SCHEMA, 6, features={"pair": ["flag"], "word": []})
    assert encoder.widths == {"word": 0, "phrase": 0, "pair": 6}
    weight = encoder.encoders["pair"].linear.weight
    want = dag.features("pair")["flag"].float().unsqueeze(1) @ weight.T
    torch.testing.assert_close(encoder(dag)["pair"], want)


def test_dropout_is_off_in_evaluation():
    dag = empty(MIXED_SCHEMA)
    encoder = FeatureEncoder(MIXED_SCHEMA, 1000, dropout=0.5)
    assert encoder(dag)["word"].shape == (0, 1000)
    assert encoder.dropout.p == 0.5
    assert not encoder.eval().dropout.training


def test_unknown_types_and_columns_are_named_together():
    match = (
        "type 'wrod'.* mean 'word'.*column 'form', which type 'pair' lacks. It has: weight, flag"
    )
    with pytest.raises(ConfigError, match=match):
        FeatureEncoder(MIXED_SCHEMA, 6, features={"wrod": [], "pair": ["form"]})
