"""docs/benchmarks.md out of JSON files."""

from __future__ import annotations

import json
import re
from importlib import import_module
from inspect import cleandoc
from pathlib import Path
from typing import Any

import pytest
from training.tiny_runs import run

from graphfold.bench.results import INTRODUCTION, render
from graphfold.bench.run import BENCHMARKS

FACTS = {
    "cpu": "a CPU",
    "device": "cpu",
    "isa": "avx2",
    "torch": "2.9",
    "threads": 1,
    "spread": 0.0,
    "computes": "every node",
}


def row(variant: str, speed: float, benchmark: str = "treefc", **more: Any) -> dict[str, Any]:
    setting = {"shape": "random", "batch_size": 32, "hidden_size": 256, "phase": "inference"}
    figures = {"variant": variant, "examples_per_second": speed, "ratio": 1.0}
    return {"benchmark": benchmark, **setting, **figures, **FACTS, **more}


def write(path: Path, content: Any) -> Path:
    path.write_text(json.dumps(content))
    return path


def lines(page: str) -> list[str]:
    """The lines of its tables."""
    return [line for line in page.splitlines() if line.startswith("|")]


def test_a_line_per_setting_and_variant(tmp_path: Path) -> None:
    rows = [row("graphfold", 1500.4), row("product_floor", 2000, phase="train")]
    page = render([write(tmp_path / "a.json", rows)], BENCHMARKS)
    assert lines(page) == [
        "| shape | hidden | batch | phase | variant | computes | examples/s |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        "| random | 256 | 32 | inference | graphfold | every node | 1,500 |",
        "| random | 256 | 32 | train | product_floor | every node | 2,000 |",
    ]
    assert "- a CPU, avx2, torch 2.9" in page


def test_instruction_sets_stand_side_by_side(tmp_path: Path) -> None:
    names = ("avx2", "avx512")
    paths = [
        write(tmp_path / f"{isa}.json", [row("graphfold", speed, isa=isa, launches=17.75)])
        for isa, speed in zip(names, (1111, 2222), strict=True)
    ]
    more = [row("pyg", 7, isa="avx512", computes="equal nodes once")]
    page = render([*paths, write(tmp_path / "more.json", more)], BENCHMARKS)
    head, _, *rest = lines(page)
    assert head.endswith("| computes | avx2 | avx512 | launches |")
    assert [line.partition("inference ")[2] for line in rest] == [
        "| graphfold | every node | 1,111 | 2,222 | 17.8 |",
        "| pyg | equal nodes once |  | 7 |  |",
    ]
    assert "- a CPU, avx2, torch 2.9\n- a CPU, avx512, torch" in page


@pytest.mark.parametrize("fact", ["cpu", "device", "torch"])
def test_other_machines_have_columns_of_their_own(fact: str, tmp_path: Path) -> None:
    rows = [row("graphfold", 1111), row("graphfold", 2222, **{fact: "other"})]
    head, _, line = lines(render([write(tmp_path / "a.json", rows)], BENCHMARKS))
    assert head.endswith("| other |")
    assert line.endswith("| 1,111 | 2,222 |")


def test_figures_that_differ_between_machines_are_both_shown(tmp_path: Path) -> None:
    rows = [row("graphfold", 5, isa=isa, bytes_per_node=n) for isa, n in (("avx2", 7), ("x", 8))]
    page = render([write(tmp_path / "a.json", rows)], BENCHMARKS)
    assert lines(page)[-1].endswith("| 5 | 5 | 7 / 8 |")


def test_threads_are_shown_where_there_are_several(tmp_path: Path) -> None:
    rows = [row("graphfold", 5), row("graphfold", 6, threads=2)]
    page = render([write(tmp_path / "a.json", rows)], BENCHMARKS)
    head, _, *rest = lines(page)
    assert "| batch | threads | phase |" in head
    assert ["| 1 | inference" in rest[0], "| 2 | inference" in rest[1]] == [True, True]


def test_what_it_measures_stands_above_its_figures(tmp_path: Path) -> None:
    rows = [row("graphfold", 5, "memory", workload="sst"), row("graphfold", 5, "sst")]
    page = render([write(tmp_path / "a.json", rows)], BENCHMARKS)
    order = ["## sst\n\nHow fast does a Tree-LSTM", "| shape |", "## memory", "| workload |"]
    assert sorted(order, key=page.index) == order
    assert "```sh\ngraphfold bench sst --batch-size 25,256\n```" in page
    assert "## treefc" not in page


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read as JSON"),
        ("{", "cannot be read as JSON"),
        ("[3]", "was not written by graphfold bench"),
        ("[]", "was not written by graphfold bench"),
        ('{"a": 1}', "was not written by graphfold bench"),
    ],
)
def test_other_files_are_refused(
    content: str | None, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.json"
    if content is not None:
        path.write_text(content)
    assert run("bench", "page", path) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {path}: ")
    assert message in error


def test_no_file_is_wrong_use(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("bench", "page") == 2
    assert "Name at least one" in capsys.readouterr().err


def documented(name: str) -> str:
    """What a benchmark's own file says of it."""
    return cleandoc(import_module(BENCHMARKS[name]).__doc__ or "")


@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_benchmark_asks_a_question_and_names_its_variants(name: str) -> None:
    text = documented(name)
    assert text.partition("\n")[0].endswith("?")
    assert re.search(r"^- `graphfold`: ", text, flags=re.M)
    assert f"    graphfold bench {name}" in text


def test_the_page_in_the_docs_was_generated() -> None:
    page = (Path(__file__).parents[2] / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    assert page.startswith(INTRODUCTION)
    for name in re.findall(r"^## (\w+)$", page, flags=re.M):
        what, *_ = documented(name).split("\n\n    graphfold bench")
        assert what in page, name
