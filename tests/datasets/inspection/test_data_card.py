"""The data card, and adapters that break their promises."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from postfix_adapter import NAME, PostfixAdapter, random_expressions, write_expressions

from graphfold.dag import GraphBuilder
from graphfold.datasets.adapter import Record
from graphfold.datasets.inspection.data_card import check_data, format_card
from graphfold.errors import ConfigError, DataError, RecordError, SchemaError

COUNTER = itertools.count()


class Forgetful(PostfixAdapter):
    """Reads something else every time."""

    def records(self, path: Path) -> Iterator[Record]:
        yield from (Record(1, str(next(COUNTER))) for _ in range(3))


class Untrue(PostfixAdapter):
    """Writes codes that its schema does not have."""

    def parse(self, record: Record, graph: GraphBuilder) -> None:
        graph.output(graph.node("number", form="1", parity=int(record.content)))
        graph.finish(record.line)


def check(name: str, path: Path | None, cache: Path, **settings: Any) -> dict[str, Any]:
    return check_data(name, path, {"cache_dir": str(cache), **settings})


def test_an_adapter_on_a_file(tmp_path):
    path = write_expressions(tmp_path / "f.txt", ["1 2 +", "? 1", "x", *random_expressions(300)])
    card = check(NAME, path, tmp_path / "cache", on_error="skip")
    assert (card["records"], card["splits"], card["skipped"]) == (301, {"all": 301}, 2)
    assert card["reasons"] == [
        {"file": str(path), "line": 2, "reason": "the value is not measured"},
        {"file": str(path), "line": 3, "reason": "'x' is no number"},
    ]
    assert card["nodes"] == sum(card["node_types"].values())
    assert card["inputs"] == 2 * card["node_types"]["operator"]
    assert card["relations"] == {"next": card["node_types"]["number"] - 301}
    assert card["records_per_second"] > 0
    assert 50 < card["peak_mb"] < 100_000
    assert card["depth"]["max"] <= 5
    assert card["vocabularies"]["type:operator/form"] == 2
    assert card["targets"]["value"]["measured"] + card["targets"]["value"]["missing"] == 301
    assert card["targets"]["value"]["unit"] == "apples"
    assert sum(card["targets"]["digits"]["counts"].values()) == 301
    assert card["files"][0]["as_published"] is None
    assert json.loads(json.dumps(card)) == card
    assert not (tmp_path / "cache").exists()


def test_the_card_as_text(tmp_path):
    path = write_expressions(tmp_path / "f.txt", ["1 2 +", *["x"] * 12])
    text = format_card(check(NAME, path, tmp_path / "cache", on_error="skip"))
    assert "records       1 (all 1), 12 left out" in text
    assert f"{path}:2: 'x' is no number" in text
    assert "and 2 more" in text
    assert "nodes         3 (number 2, operator 1), 2 inputs" in text
    assert "target        value: 1 measured, 0 missing; mean 3, std 0, 3 to 3 apples" in text
    assert "target        digits: 1 measured, 0 missing; 0 1" in text


def test_a_corpus(tmp_path):
    folder = tmp_path / "root" / "ud_chinese_gsdsimp"
    folder.mkdir(parents=True)
    word = "1\t好\t_\tADJ\t_\t_\t0\troot\t_\t_\n"
    (folder / "zh_gsdsimp-ud-dev.conllu").write_text(f"{word}\n", encoding="utf-8")
    (folder / "zh_gsdsimp-ud-test.conllu").write_text(f"{word}\n{word}\n", encoding="utf-8")
    card = check("ud_chinese_gsdsimp", None, tmp_path / "cache", root=str(tmp_path / "root"))
    assert card["splits"] == {"val": 1, "test": 2}
    assert [file["as_published"] for file in card["files"]] == [False, False]
    other = check("ud_chinese_gsdsimp", folder / "zh_gsdsimp-ud-dev.conllu", tmp_path / "cache")
    assert other["splits"] == {"all": 1}


def test_all_variants_of_a_corpus_unless_one_is_named(tmp_path):
    folder = tmp_path / "qm9"
    folder.mkdir()
    names = {
        "hc": "heat_capacity",
        "hlg": "band_gap",
        "ip": "isotropic_polarizability",
        "potential": "internal_energy_298K",
    }
    for variant, column in names.items():
        (folder / f"qm9_{variant}.csv").write_text(f"smiles,{column}\nC,1\nCC,{len(variant)}\n")
    card = check("qm9", None, tmp_path / "cache", root=str(tmp_path))
    assert card["records"] == 8
    assert set(card["targets"]) == set(names.values())
    assert check("qm9", None, tmp_path / "cache", root=str(tmp_path), variant="hc")["records"] == 2


def test_bad_records(tmp_path):
    path = write_expressions(tmp_path / "f.txt", ["1", "x"])
    with pytest.raises(RecordError, match=r"f\.txt:2: 'x' is no number"):
        check(NAME, path, tmp_path / "cache")
    path = write_expressions(tmp_path / "g.txt", ["x"])
    with pytest.raises(DataError, match=r"g\.txt: no usable record is left"):
        check(NAME, path, tmp_path / "cache", on_error="skip")


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("brackets", {}, r"'brackets' is an adapter, not a corpus, so it needs a file to read"),
        ("bracket", {"path": "f"}, r"no corpus or adapter 'bracket'\. Did you mean 'brackets'"),
        ("tox", {}, r"no corpus or adapter 'tox'\. Did you mean 'tox21'\? The corpora are sst, pt"),
        ("no.Adapter", {"path": "f"}, r"no module 'no'"),
        ("sst", {"num_clases": 3}, r"no option 'num_clases'\. Did you mean 'num_classes'"),
        ("sst", {"on_error": "x"}, r"data\.on_error is 'x'"),
        ("sst", {"batch_size": "x"}, r"data\.batch_size is 'x', but it must be a whole number"),
        ("sst", {"corpus": "qm7"}, r"data\.corpus is given twice, by the command and by a setting"),
        ("brackets", {"adapter": "pairs", "path": "f"}, r"data\.adapter is given twice"),
    ],
)
def test_wrong_use(name, settings, message):
    with pytest.raises(ConfigError, match=message):
        check_data(name, None, settings)


def test_a_file_is_named_once(tmp_path):
    with pytest.raises(ConfigError, match=r"data\.path is given twice.*Leave out the setting"):
        check_data("brackets", tmp_path, {"path": "f"})


def test_what_cannot_be_read_twice_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DataError, match=r"pipe: is a pipe or a device, .*Save them in a file"):
        check("brackets", tmp_path / "pipe", tmp_path / "cache")
    with pytest.raises(DataError, match=r"cannot be read \(File name too long\)"):
        check("brackets", tmp_path / ("x" * 400), tmp_path / "cache")


def test_a_missing_corpus_says_where_it_is_to_be_had(tmp_path):
    with pytest.raises(DataError, match=r"no such file\. Get it from .*data\.root"):
        check("esol", None, tmp_path / "cache", root=str(tmp_path))


def test_an_adapter_that_reads_something_else_every_time(tmp_path):
    path = write_expressions(tmp_path / "f.txt", ["1"])
    message = r"Forgetful: reading twice changes the graphs, first in .*\. Let parse depend on noth"
    with pytest.raises(SchemaError, match=message):
        check("test_data_card.Forgetful", path, tmp_path / "cache")


def test_a_graph_outside_its_schema_is_a_bad_record(tmp_path):
    path = write_expressions(tmp_path / "f.txt", ["1", "7"])
    message = r"f\.txt:2: column 'parity' of node has codes from 7 to 7, outside 0 \.\. 1\. Corr"
    with pytest.raises(RecordError, match=message):
        check("test_data_card.Untrue", path, tmp_path / "cache")
    assert check("test_data_card.Untrue", path, tmp_path / "cache", on_error="skip")["skipped"] == 1
