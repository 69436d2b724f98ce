"""Tables from Python: read by their columns, given back with the columns of predictions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import torch

import graphfold
from graphfold.errors import DataError
from graphfold.inference.predictor import Predictor

pd = pytest.importorskip("pandas")

#: A column called `C`, which is methane, and a molecule that cannot be read.
SMILES = ["CCO", "c1ccccc1", "C1CC", "CC"]
NAMES = ["a b_pred", "a b_limit", "c_pred", "c_limit", "reason"]


@pytest.fixture(scope="module")
def model(numbers: Path) -> Predictor:
    return graphfold.load(numbers)


@pytest.fixture(scope="module")
def expected(model: Predictor) -> list[dict[str, Any]]:
    return model.predict(SMILES)


def check_columns(columns: dict[str, list[Any]], expected: list[dict[str, Any]]) -> None:
    """Compares the added columns with the predictions for a list."""
    assert [*columns][-5:] == NAMES
    for row, told in enumerate(expected):
        assert columns["reason"][row] == told["reason"]
        for target in ("a b", "c"):
            value = columns[f"{target}_pred"][row]
            if told["reason"]:
                assert value is None or value != value
            else:
                assert value == told["prediction"][target]


def test_a_data_frame_is_read_by_its_columns(model, expected):
    frame = pd.DataFrame({"C": [1, 2, 3, 4], "smiles": SMILES}, index=list("wxyz"))
    before = frame.copy()
    found = model.predict(frame)
    assert isinstance(found, pd.DataFrame)
    assert [*found.columns] == ["C", "smiles", *NAMES]
    assert [*found.index] == list("wxyz")
    assert found["c_pred"].dtype == "float64"
    check_columns({name: found[name].tolist() for name in found}, expected)
    pd.testing.assert_frame_equal(frame, before)


def test_other_tables_come_back_as_they_are(model, expected):
    columns = {"C": [1, 2, 3, 4], "smiles": SMILES}
    table = pa.table(columns)
    for given in (table, table.to_batches()[0], Exported(table)):
        found = model.predict(given)
        assert isinstance(found, pa.Table)
        check_columns(found.to_pydict(), expected)
    found = model.predict(columns)
    assert isinstance(found, dict)
    assert [*found] == ["C", "smiles", *NAMES]
    check_columns(found, expected)


class Exported:
    """A table of a library that gives its own to Arrow, as polars does."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table
        self.columns = table.column_names

    def __iter__(self) -> Any:
        return iter(self.columns)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._table.__arrow_c_stream__(requested_schema)


def test_a_column_alone_is_a_list(model, expected):
    for column in (pd.Series(SMILES, index=list("wxyz")), pa.array(SMILES), tuple(SMILES)):
        assert model.predict(column) == expected
    assert model.predict(iter(SMILES)) == expected
    missing = model.predict(pd.Series(["CC", None]))
    assert missing[1]["reason"] == "None is no molecule"


def test_names_that_are_taken_are_numbered(model):
    found = model.predict(pd.DataFrame({"smiles": ["CC"], "reason": ["mine"], "c_pred": [1]}))
    assert [*found.columns[:3]] == ["smiles", "reason", "c_pred"]
    assert {"c_pred_2", "reason_2"} < {*found.columns[3:]}
    assert found["reason"].tolist() == ["mine"]
    assert found["reason_2"].tolist() == [""]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (lambda: pd.DataFrame({"C": ["CC"]}), r"no column 'smiles' among 'C'"),
        (lambda: pd.DataFrame({"Smiles": ["CC"]}), r"Did you mean 'Smiles'\?.*smiles_column="),
        (lambda: pd.DataFrame([["CC", "C"]], columns=["smiles"] * 2), "'smiles' twice"),
        (lambda: {"smiles": "CC"}, r"not one record. Write predict\(\[\{'smiles': 'CC'\}\]\)"),
        (lambda: {"smiles": ["CC"], "C": [1, 2]}, "'smiles' has 1 values, 'C' has 2 values"),
        (lambda: {"CC": 1}, "not one record"),
        (lambda: {"CC", "C"}, "a set has no order"),
        (lambda: pd.DataFrame({"smiles": ["CC"]}).groupby("smiles"), "gives names, not records"),
        (lambda: "CC", r"predict\(\['CC'\]\)"),
        (lambda: bytearray(b"CC"), "not one record"),
    ],
)
def test_what_is_no_list_of_records_is_refused(model, data, message):
    with pytest.raises(DataError, match=message):
        model.predict(data())


def test_a_table_of_trees_is_its_only_column(trees):
    model = graphfold.load(trees)
    texts = ["(3 (2 the) (4 film))", "(3"]
    good, bad = model.predict(texts)
    found = model.predict(pd.DataFrame({"text": texts}))
    assert found["label_pred"][0] == [node["prediction"] for node in good["nodes"]]
    assert found["label_pred"][1] is None
    assert found["reason"].tolist() == ["", bad["reason"]]
    with pytest.raises(DataError, match="has 2 columns.*Name its column with"):
        model.predict(pd.DataFrame({"text": texts, "id": [1, 2]}))


def test_embeddings_are_those_of_the_column(model):
    frame = pd.DataFrame({"C": [1, 2, 3, 4], "smiles": SMILES})
    torch.testing.assert_close(model.embed(frame), model.embed(SMILES), equal_nan=True)
    with pytest.raises(DataError, match=r"Write embed\(\['CC'\]\)"):
        model.embed("CC")
