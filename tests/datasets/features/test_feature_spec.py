"""Vocabularies and scalers: learnt from the training part, applied to any data."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from postfix_adapter import PostfixAdapter, write_expressions

from graphfold.dag import Column, GraphBuilder, NodeType, Schema, TypedDAG, select, validate
from graphfold.datasets.adapter import read_records
from graphfold.datasets.features.feature_spec import FeatureSpec
from graphfold.datasets.readers.smiles import SmilesAdapter
from graphfold.errors import SchemaError


def read(folder: Path, *lines: str) -> TypedDAG:
    path = write_expressions(folder / "f.txt", list(lines))
    adapter = PostfixAdapter()
    return read_records(adapter, path, adapter.records(path)).dag


def test_words_of_the_training_part_alone_are_known(tmp_path):
    dag = read(tmp_path, "1 1 +", "2 9 *", "1 2 +")
    spec = FeatureSpec.fit(select(dag, [0, 2]))
    encoded = spec.encode(dag)
    assert spec.vocabularies["type:number", "form"].words == ("1", "2")
    assert encoded.features("number")["form"].tolist() == [1, 1, 2, 0, 1, 2]
    assert encoded.features("operator")["form"].tolist() == [1, 0, 1]
    assert encoded.columns["inputs"]["side"].tolist() == [1, 0] * 3  # missing is unknown
    validate(encoded)


def test_the_schema_tells_the_size_of_each_vocabulary(tmp_path):
    spec = FeatureSpec.fit(read(tmp_path, "1 2 +", "3"))
    number, operator = spec.schema.types
    assert number.features == (Column("form", "int64", size=4), Column("size"))
    assert operator.features == (Column("form", "int64", size=2),)
    assert spec.schema.inputs.features == (Column("side", "int64", size=2),)
    assert spec.schema.graph_features == (Column("text", "string"),)
    assert spec.schema.relations == spec.source.relations
    assert spec.schema.graph_targets == spec.source.graph_targets


def test_scalers_see_measured_values_only(tmp_path):
    spec = FeatureSpec.fit(read(tmp_path, "1 2 +", "5", "99 99 *"))
    assert {name: found[:2] for name, found in spec.scalers.items()} == {"value": (4.0, 1.0)}


def test_json(tmp_path):
    dag = read(tmp_path, "1 1 +", "2 3 +")
    spec = FeatureSpec.fit(dag)
    back = FeatureSpec.from_dict(json.loads(json.dumps(spec.to_dict())))
    assert back.source == spec.source
    assert back.vocabularies == spec.vocabularies
    assert back.scalers == spec.scalers
    assert back.schema == spec.schema
    assert torch.equal(
        back.encode(dag).features("number")["form"], spec.encode(dag).features("number")["form"]
    )


def test_data_without_targets_can_be_encoded(tmp_path):
    path = tmp_path / "m.csv"
    path.write_text("smiles,y\nCC,1\nC=O,2\n")
    measured, bare = SmilesAdapter(target_columns=["y"]), SmilesAdapter()
    spec = FeatureSpec.fit(read_records(measured, path, measured.records(path)).dag)
    encoded = spec.encode(read_records(bare, path, bare.records(path)).dag)
    assert encoded.schema.graph_targets == ()
    assert encoded.schema.types == spec.schema.types


def test_two_measured_targets_of_one_name(tmp_path):
    schema = Schema((NodeType("a"),), node_targets=(Column("y"),), graph_targets=(Column("y"),))
    builder = GraphBuilder(schema)
    builder.output(builder.node("a", y=1.0))
    builder.finish(y=2.0)
    with pytest.raises(SchemaError, match=r"two targets are called 'y'\. Rename one of them"):
        FeatureSpec.fit(builder.build())
