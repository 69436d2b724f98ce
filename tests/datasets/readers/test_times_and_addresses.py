"""Times and addresses in records: read as Python reads them, with features that mean something."""

from __future__ import annotations

import ipaddress
import math
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphfold.dag import TypedDAG
from graphfold.datasets.adapter import read_records
from graphfold.datasets.readers.json_inference import (
    Address,
    Fields,
    Number,
    Text,
    Time,
    address_features,
    infer_positions,
    read_address,
    read_time,
    time_features,
    to_dict,
)
from graphfold.datasets.readers.json_nodes import number_features
from graphfold.datasets.readers.json_records import JsonAdapter


@given(st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1)), st.integers(-14 * 60, 14 * 60))
def test_times_are_those_of_python(time: datetime, minutes: int) -> None:
    zoned = time.replace(tzinfo=timezone(timedelta(minutes=minutes)))
    assert read_time(zoned.isoformat()) == pytest.approx(zoned.timestamp(), abs=1e-3)
    utc = time.replace(tzinfo=timezone.utc)
    assert read_time(time.isoformat(" ")) == pytest.approx(utc.timestamp(), abs=1e-3)
    assert read_time(time.isoformat() + "Z") == pytest.approx(utc.timestamp(), abs=1e-3)


def test_other_ways_to_write_a_time() -> None:
    noon = datetime(2026, 11, 25, 12, tzinfo=timezone.utc).timestamp()
    for text in ("2026-11-25T12:00Z", "2026-11-25 13:00:00+0100", "2026-11-25T12:00:00,000000000Z"):
        assert read_time(text) == noon
    assert read_time("2026-11-25") == noon - 43_200
    for text in ("2026-06-31", "25.11.2026", "12:00", "2026-11-25T25:00", "20261125", ""):
        assert read_time(text) is None


def test_features_of_a_time_say_the_hour_and_the_day() -> None:
    noon = datetime(2026, 11, 23, 12, tzinfo=timezone.utc).timestamp()  # a Monday
    features = time_features(noon, mean=noon - 20, std=10.0)
    assert features["value"] == pytest.approx(2.0)
    angle = 2 * math.pi * 0.5 / 7  # half a day after the week began
    expected = [math.sin(math.pi), math.cos(math.pi), math.sin(angle), math.cos(angle)]
    assert features["cycle"] == pytest.approx(expected, abs=1e-6)
    assert time_features(noon, 0.0, 1.0)["value"] == 10.0


@given(st.ip_addresses())
def test_bits_are_those_of_the_network(address: ipaddress.IPv4Address) -> None:
    read = read_address(str(address))
    assert read == address
    features = address_features(address)
    bits = int("".join(str(int(bit)) for bit in features["bits"]), 2)
    assert bits == (int(address) << 32 if address.version == 4 else int(address) >> 64)
    assert features["facts"][0] == (address.version == 6)
    assert features["facts"][1] == address.is_private


def read(records: list[object], **options: object) -> tuple[TypedDAG, JsonAdapter]:
    adapter = JsonAdapter(record_schema=to_dict(infer_positions(records)), **options)
    return read_records(adapter, Path(), map(adapter.record_of, records)).dag, adapter


def test_places_of_times_and_addresses_are_inferred() -> None:
    records = [
        {"at": f"2026-11-{day:02}T10:00:00Z", "ip": f"10.0.0.{day}", "name": f"10.0.0.{day}x"}
        for day in range(1, 6)
    ]
    root = infer_positions(records)
    assert isinstance(root, Fields)
    third = datetime(2026, 11, 3, 10, tzinfo=timezone.utc).timestamp()
    assert root.fields["at"] == Time(third, pytest.approx(86_400 * math.sqrt(2)))
    assert root.fields["ip"] == Address()
    assert root.fields["name"] == Text()
    dag, _ = read(list(records))
    values = dag.columns["type:$/at"]["value"]
    assert values.tolist() == pytest.approx([k / math.sqrt(2) for k in (-2, -1, 0, 1, 2)])
    assert dag.columns["type:$/ip"]["bits"].sum(1).tolist() == [3.0, 3.0, 4.0, 3.0, 4.0]
    repeated = infer_positions([{"ip": f"10.0.0.{k % 2}"} for k in range(8)])
    assert type(repeated.fields["ip"]).__name__ == "Category"  # few, and known by sight


def test_a_text_that_is_no_time_is_counted_and_absent() -> None:
    records = [{"at": f"2026-11-0{day}", "ip": f"::{day}"} for day in range(1, 5)]
    adapter = JsonAdapter(record_schema=to_dict(infer_positions(records)))
    new = [{"at": "soon", "ip": "::9"}, {"at": "2026-01-01", "ip": "::1:2:3:x"}]
    dag = read_records(adapter, Path(), map(adapter.record_of, new)).dag
    assert list(dag.num_nodes_by_type) == [2, 1, 1]  # records, times, addresses
    assert adapter.notes(dag) == [
        "without a place in the schema, and left out: 2 values in 2 records"
    ]


@pytest.mark.parametrize("outlier", [1e300, -(10**400), 1e9])
def test_one_huge_number_leaves_the_others_apart(outlier: float) -> None:
    numbers = [float(k) for k in range(100)]
    root = infer_positions([{"n": n} for n in [*numbers, outlier]])
    position = root.fields["n"]
    assert isinstance(position, Number)
    values = [number_features(position, n)["value"] for n in numbers]
    assert 1.0 < max(values) - min(values) < 5.0
    assert abs(number_features(position, outlier)["value"]) == 10.0


def test_few_values_beside_many_zeros_keep_their_size() -> None:
    position = infer_positions([0] * 90 + [1] * 9 + [1e300])
    assert isinstance(position, Number)
    apart = number_features(position, 1)["value"] - number_features(position, 0)["value"]
    assert 0.5 < apart < 5.0
    assert infer_positions([3, 3, 3]) == Number(3.0, 1.0)
