"""Scaling of graph inputs against scikit-learn; missing, constant and extreme values."""

from __future__ import annotations

import json

import pytest
import torch
from sklearn.preprocessing import StandardScaler

from graphfold.dag import Column, GraphBuilder, NodeType, Schema, TypedDAG
from graphfold.datasets.features import scalers
from graphfold.datasets.features.feature_spec import FeatureSpec
from graphfold.datasets.features.scalers import InputScaler, fit_input_scaler, missing_inputs
from graphfold.errors import SchemaError

NAN = float("nan")
SCHEMA = Schema(
    types=(NodeType("atom", 0),),
    graph_features=(
        Column("name", "string"),
        Column("number", "int64"),
        Column("heat"),
        Column("descriptors", "float32", (2,)),
        Column("counts", "uint8", (3,)),
    ),
)


def graphs(heats: list[float]) -> TypedDAG:
    builder = GraphBuilder(SCHEMA, "f")
    for number, heat in enumerate(heats):
        builder.output(builder.node("atom"))
        columns = {"number": number, "heat": heat, "descriptors": [heat, 1.0], "counts": [0, 7, 1]}
        builder.finish(columns={"name": "x", **columns})
    return builder.build()


def test_equals_scikit_learn():
    values = torch.randn(50, 4, generator=torch.Generator().manual_seed(0)) * 5 + 3
    scaled = fit_input_scaler(values).scale(values)
    want = StandardScaler().fit_transform(values.double().numpy())
    torch.testing.assert_close(scaled.double(), torch.from_numpy(want), rtol=1e-5, atol=1e-6)


def test_a_missing_value_is_the_mean_and_does_not_count_for_it():
    values = torch.tensor([1.0, NAN, 3.0])
    scaler = fit_input_scaler(values)
    assert scaler == InputScaler((2.0,), (1.0,))
    assert scaler.scale(values).tolist() == [-1.0, 0.0, 1.0]


@pytest.mark.parametrize("constant", [0.0, 0.1, 1e30, NAN])
def test_what_never_varies_is_never_used(constant):
    scaler = fit_input_scaler(torch.full((7, 1), constant))
    assert scaler.std == (0.0,)
    assert scaler.scale(torch.tensor([[constant], [5.0]])).tolist() == [[0.0], [0.0]]


def test_extremes_are_cut_off():
    scaler = InputScaler((0.0, 0.0), (1.0, 1e30))
    assert scaler.scale(torch.tensor([[9.0, -3e38]])).tolist() == [[6.0, -6.0]]


def test_the_spec_scales_floats_of_graphs_and_leaves_counts_and_codes():
    dag = graphs([1.0, 3.0])
    spec = FeatureSpec.from_dict(json.loads(json.dumps(FeatureSpec.fit(dag).to_dict())))
    encoded = spec.encode(dag).columns["graph"]
    assert encoded["heat"].tolist() == [-1.0, 1.0]
    assert encoded["descriptors"].tolist() == [[-1.0, 0.0], [1.0, 0.0]]
    assert encoded["counts"].tolist() == [[0, 7, 1]] * 2
    assert encoded["number"].tolist() == [0, 1]
    assert dag.columns["graph"]["heat"].tolist() == [1.0, 3.0]
    assert [column.name for column in SCHEMA.graph_inputs] == ["heat", "descriptors", "counts"]


def test_inputs_of_nodes_are_scaled_and_other_features_are_not():
    features = (Column("charge", role="input"), Column("mass"))
    schema = Schema(
        types=(NodeType("atom", 0, features),),
        graph_features=(Column("times", role="weight"),),
    )
    builder = GraphBuilder(schema)
    for times, charges in ((2.0, [1.0, 3.0]), (1.0, [5.0, 7.0])):
        builder.output(*builder.nodes("atom", 2, charge=charges, mass=charges))
        builder.finish(times=times)
    dag = builder.build()
    spec = FeatureSpec.from_dict(json.loads(json.dumps(FeatureSpec.fit(dag).to_dict())))
    assert FeatureSpec.learns_of_nodes(schema)
    encoded = spec.encode(dag).features("atom")
    weighed = torch.tensor([1.0, 3.0, 1.0, 3.0, 5.0, 7.0])  # a graph of weight 2 counts like two
    expected = (torch.tensor([1.0, 3.0, 5.0, 7.0]) - weighed.mean()) / weighed.std(correction=0)
    torch.testing.assert_close(encoded["charge"], expected)
    assert encoded["mass"].tolist() == [1.0, 3.0, 5.0, 7.0]


def test_many_rows_are_scaled_in_pieces(monkeypatch):
    values = torch.randn(50, 2, generator=torch.Generator().manual_seed(0))
    whole = fit_input_scaler(values)
    monkeypatch.setattr(scalers, "_PIECE", 7)
    pieces = fit_input_scaler(values)
    assert pieces.mean == pytest.approx(whole.mean)
    assert pieces.std == pytest.approx(whole.std)
    assert torch.equal(pieces.scale(values), whole.scale(values))
    assert fit_input_scaler(values[:0]).scale(values[:0]).shape == (0, 2)


def test_other_inputs_than_those_of_the_run_are_refused():
    spec = FeatureSpec.fit(graphs([1.0]))
    bare = Schema(types=SCHEMA.types)
    builder = GraphBuilder(bare)
    builder.output(builder.node("atom"))
    builder.finish()
    with pytest.raises(SchemaError, match=r"of whole graphs is absent in the data, but the model"):
        spec.encode(builder.build())


def test_missing_values_are_counted():
    assert missing_inputs(graphs([1.0, 2.0])) == []
    lines = missing_inputs(graphs([1.0, NAN]))
    assert (
        lines[0] == "heat: 1 value of 2 missing or not finite, taken as the mean of the "
        "training part"
    )
    assert lines[1].startswith("descriptors: 1 value of 4 missing")
