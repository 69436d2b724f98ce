"""Adapters by name, by entry point and by dotted path; faults of their options."""

from __future__ import annotations

import pickle
from importlib.metadata import EntryPoint, EntryPoints
from typing import Any

import pytest
from postfix_adapter import NAME, PostfixAdapter

from graphfold import registry
from graphfold.datasets.readers.spec import make_adapter
from graphfold.errors import ConfigError
from graphfold.registry import ADAPTERS

#: Adapter -> the options that it cannot do without.
NEEDED: dict[str, dict[str, Any]] = {"table": {"records": "brackets"}}


@pytest.mark.parametrize("name", sorted(ADAPTERS.paths))
def test_every_adapter_goes_to_other_processes(name):
    adapter = make_adapter(name, **NEEDED.get(name, {}))
    assert pickle.loads(pickle.dumps(adapter)).schema == adapter.schema


def test_a_dotted_path_names_a_class():
    assert isinstance(make_adapter(NAME, base=8), PostfixAdapter)


def test_another_package_adds_an_adapter(monkeypatch):
    point = EntryPoint("postfix", "postfix_adapter:PostfixAdapter", "graphfold.adapters")
    monkeypatch.setattr(registry, "entry_points", lambda group: EntryPoints([point]))
    monkeypatch.setattr(registry, "_entry_points", registry._entry_points.__wrapped__)
    assert "postfix" in ADAPTERS.names()
    assert ADAPTERS.package("postfix") == "postfix_adapter"
    assert isinstance(make_adapter("postfix"), PostfixAdapter)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("bracket", r"no adapter 'bracket'\. Did you mean 'brackets'\? Use one of brackets, con"),
        ("nowhere.Adapter", r"no module 'nowhere'\. Correct the path, or install the package"),
        (
            "postfix_adapter.Postfix",
            r"postfix_adapter has no 'Postfix'\. Did you mean 'PostfixAdapter'\? Correct the path",
        ),
        ("graphfold.datasets.adapter.Adapter", r"Adapter lacks parse, records\. Write them"),
        ("postfix_adapter.Path", r"Path does not derive from Adapter\. Name a class"),
    ],
)
def test_unknown_adapter(name, message):
    with pytest.raises(ConfigError, match=message):
        make_adapter(name)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_clases": 5}, r"no option 'num_clases'\. Did you mean 'num_classes'\? It has: num_c"),
        (
            {"num_classes": "five"},
            r"'num_classes' .* is 'five', but it must be a whole number or nul",
        ),
        (
            {"binarize": 1},
            r"option 'binarize' of the brackets adapter is 1, but it must be true",
        ),
    ],
)
def test_faults_of_options(options, message):
    with pytest.raises(ConfigError, match=message):
        make_adapter("brackets", **options)


def test_all_faults_come_together():
    with pytest.raises(ConfigError) as caught:
        make_adapter("brackets", num_classes=1.5, wrong=1)
    assert len(str(caught.value).splitlines()) == 2
