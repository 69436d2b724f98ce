"""Options of corpora that are made on the spot: what they change in the files that are made."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from effects.lab import Lab
from effects.table import Rows

from graphfold.datasets.corpora.corpus_table import find_corpus
from graphfold.errors import ConfigError

ROWS = row = Rows()

#: Small sizes of every corpus, and a pool of expressions that is drawn in no time.
SMALL: Mapping[str, Mapping[str, Any]] = {
    "listops_generated": {"train_size": 12, "val_size": 5, "test_size": 4, "pool": 60},
    "listops_d20s": {"train_size": 12, "val_size": 5, "pool": 60},
}


def make(lab: Lab, corpus: str, **options: Any) -> dict[str, list[str]]:
    """The lines of each part of a corpus, made with `SMALL` and these options."""
    module, _, name = str(find_corpus(corpus).maker).partition(":")
    places = {"root": _sources(lab)} if corpus == "listops_d20s" else {}
    maker = getattr(import_module(module), name)
    files = maker(lab.folder / "cache", **places, **{**SMALL[corpus], **options})
    return {str(part): _lines(path) for path, part in files}


def _sources(lab: Lab) -> Path:
    """The published test set that `listops_d20s` has beside what it makes."""
    lab.write("sources/listops/test_d20s.tsv", "3\t3\n4\t( ( ( [MAX 2 ) 4 ) ] )\n")
    return lab.folder / "sources"


def _lines(path: Path) -> list[str]:
    lines = path.read_text(encoding="utf-8").splitlines()
    return lines[1:] if path.suffix == ".csv" else lines


def _ids(*names: str) -> list[str]:
    return [
        f"{corpus}.{name}" for corpus, known in SMALL.items() for name in names if name in known
    ]


@row.changes(
    _ids("train_size", "val_size", "test_size"), "the number of records of that part alone"
)
def _(lab, option):
    corpus, _, name = option.partition(".")
    part = name.partition("_")[0]
    sizes = {key: len(lines) for key, lines in make(lab, corpus).items()}
    changed = {key: len(lines) for key, lines in make(lab, corpus, **{name: 7}).items()}
    assert changed == {**sizes, part: 7} != sizes


@row.changes(
    [f"{corpus}.generator_seed" for corpus in SMALL],
    "other records; the same seed gives the same ones",
)
def _(lab, option):
    corpus, _, name = option.partition(".")
    first, again, other = (make(lab, corpus, **{name: seed}) for seed in (0, 0, 1))
    assert first == again
    assert all(first[part] != other[part] for part in ("train", "val"))


@row.changes(
    "listops_generated.operator_probability", "how often there is an operation: never at 0"
)
def _(lab):
    options = {"train_size": 4, "val_size": 3, "test_size": 2}
    digits = make(lab, "listops_generated", operator_probability=0, **options)
    assert {len(line.split()) for lines in digits.values() for line in lines} == {2}
    few, many = (
        _mean_length(make(lab, "listops_generated", operator_probability=p, max_length=60))
        for p in (0.1, 0.4)
    )
    assert few < many


@row.changes("listops_generated.max_arguments", "no operation has more arguments")
def _(lab):
    lines = make(lab, "listops_generated", max_arguments=2, max_depth=2)["train"]
    assert max(len(_tokens(line)) for line in lines) == 4  # [MAX 1 2 ]
    lines = make(lab, "listops_generated", max_arguments=4, max_depth=2, train_size=40)["train"]
    assert 4 < max(len(_tokens(line)) for line in lines) <= 6


@row.changes("listops_generated.max_depth", "so many operations less one are inside one another")
def _(lab):
    options = {"operator_probability": 0.4, "train_size": 40, "max_length": 60}
    for depth in (2, 3):
        lines = make(lab, "listops_generated", max_depth=depth, **options)["train"]
        assert max(map(_depth, lines)) == depth - 1


@row.changes("listops_generated.max_length", "no expression has more tokens")
def _(lab):
    lengths = [len(_tokens(line)) for line in make(lab, "listops_generated", max_length=6)["train"]]
    assert max(lengths) <= 6 < max(len(_tokens(e)) for e in make(lab, "listops_generated")["train"])


@row.changes(
    ["listops_generated.pool", "listops_d20s.pool"],
    "a larger pool of different expressions has longer ones",
)
def _(lab, option):
    corpus = option.partition(".")[0]
    small, large = (_mean_length(make(lab, corpus, pool=pool)) for pool in (20, 3000))
    assert small < large


@row.refused(_ids("train_size", "val_size", "test_size"), "a part without records")
def _(lab, option):
    corpus, _, name = option.partition(".")
    with pytest.raises(ConfigError, match=f"data.{name} is 0. Give at least 1"):
        make(lab, corpus, **{name: 0})


def _tokens(line: str) -> list[str]:
    return [word for word in line.partition("\t")[2].split() if word not in "()"]


def _depth(line: str) -> int:
    """The most operations inside one another."""
    depth = deepest = 0
    for token in _tokens(line):
        depth += token.startswith("[") - (token == "]")
        deepest = max(deepest, depth)
    return deepest


def _mean_length(parts: dict[str, list[str]]) -> float:
    lengths = [len(_tokens(line)) for part in ("train", "val") for line in parts[part]]
    return sum(lengths) / len(lengths)
