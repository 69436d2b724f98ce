"""Schemas of JSON records: inferred, written down, read again."""

import json
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphfold.datasets.readers.json_inference import (
    MOST_KEYS,
    Category,
    Entries,
    Fields,
    Items,
    Mixed,
    Number,
    Text,
    from_dict,
    infer_positions,
    to_dict,
    to_float,
)
from graphfold.datasets.readers.json_nodes import number_features, text_features
from graphfold.errors import ConfigError

VALUES = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.text() | st.integers(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)


def test_every_kind_is_inferred() -> None:
    records = [
        {"n": i, "c": "ab"[i % 2], "t": f"{i} {i}", "b": i > 3, "l": [i], "m": [i, "x"][i % 2]}
        for i in range(10)
    ]
    records.append({"n": None, "o": {"deep": {}}})
    root = infer_positions(records)
    assert isinstance(root, Fields)
    assert list(root.fields) == ["b", "c", "l", "m", "n", "o", "t"]
    assert root.fields["b"] == Category((False, True))
    assert root.fields["c"] == Category(("a", "b"))
    assert root.fields["l"] == Items(Number(4.5, pytest.approx(math.sqrt(8.25))))
    assert root.fields["m"] == Mixed((Number(4.0, pytest.approx(math.sqrt(8))), Category(("x",))))
    assert root.fields["o"] == Fields({"deep": Fields({})})
    assert root.fields["t"] == Text()


def test_objects_with_very_many_keys_are_maps() -> None:
    records = [{f"id{i}-{k}": {"x": i} for k in range(3)} for i in range(MOST_KEYS)]
    root = infer_positions(records)
    assert isinstance(root, Entries)
    assert isinstance(root.values, Fields)
    assert infer_positions([{"step 1": 3, "step 12": 4}]) == Entries(Number(3.5, 0.5))


@given(st.lists(VALUES, max_size=6), st.integers(0, 9))
def test_any_values_have_a_schema_that_survives_json(values: list[object], seed: int) -> None:
    root = infer_positions(values)
    assert from_dict(json.loads(json.dumps(to_dict(root)))) == root
    random.Random(seed).shuffle(values)
    again = infer_positions(values)
    assert json.dumps(to_dict(again))[:40] == json.dumps(to_dict(root))[:40]


@pytest.mark.parametrize(
    ("form", "fault"),
    [
        (3, r"has 3 at \$"),
        ({"kind": "numbr"}, "kind 'numbr'"),
        ({"kind": "number", "men": 3}, "the key 'men'"),
        ({"kind": "number", "std": 0}, "std 0"),
        ({"kind": "list"}, "a list without 'items'"),
        ({"kind": "object", "fields": {"a": {"kind": "category", "values": []}}}, r"\$\.a"),
        ({"kind": "object", "fields": [3]}, "as fields"),
        ({"kind": "list", "items": {"kind": "mixed", "kinds": 3}}, r"\$\[\*\]"),
        ({"kind": "number", "mean": math.nan}, "mean nan"),
        ({"kind": "number", "std": 10**400}, "std 1000"),
        (
            {"kind": "mixed", "kinds": [{"kind": "mixed", "kinds": [{"kind": "text"}]}]},
            "a mixed in a mixed",
        ),
    ],
)
def test_schemas_that_cannot_be_read(form: object, fault: str) -> None:
    with pytest.raises(ConfigError, match=fault):
        from_dict(form)


def test_features_of_leaves() -> None:
    assert to_float(10**400) == 1e30
    assert number_features(Number(10, 2), 14) == {"value": 2.0, "log": math.log1p(14)}
    assert number_features(Number(), -(10**400))["value"] == -10
    same, other = text_features("naïve"), text_features("naive")
    assert (same["trigrams"] ** 2).sum() == pytest.approx(1)
    assert (same["trigrams"] != other["trigrams"]).any()
    assert text_features("")["length"] == 0
    assert text_features("\ud800")["trigrams"].sum() > 0  # half a character, as JSON may escape it
