"""`graphfold predict --format`: trees come back as they came, with predictions."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from training.tiny_runs import run

from graphfold.dag import Column, Schema
from graphfold.datasets.adapter import Record
from graphfold.datasets.predicted_nodes import PredictedNodes
from graphfold.datasets.readers.bracket_tree import BracketText, read_tree
from graphfold.datasets.readers.conllu import ConlluAdapter
from graphfold.datasets.readers.listops import ListOpsAdapter
from graphfold.errors import ConfigError
from graphfold.inference.prediction import check_format
from graphfold.layers.heads.classification import ClassificationHead

TREES = "(_ (_ the) (_ very) (_ bad) (_ film))\n(_ (_ the\n((good) (film)) (1 one)\n"

WORDS = """# text = du film
1-2\tdu\t_\t_\t_\t_\t_\t_\t_\tM=1
1\tde\tde\tADP\t_\t_\t3\tcase\t_\t_
2\tle\tle\t_\t_\t_\t3\tdet\t_\t_
3\tfilm\tfilm\tNOUN\t_\t_\t0\troot\t_\t_
3.1\tnull\t_\t_\t_\t_\t_\t_\t0:dep\t_


1\tx\t_\t_\t_\t_\t7\tdep\t_\t_

1\tx\t_\t_\t_\t_\t0\troot\t_\t_"""


def output_of(run_path: Path, path: Path, *words: str | Path) -> str:
    out = path.with_suffix(".out")
    assert run("predict", run_path, path, "--output", out, *words) == 0
    return out.read_bytes().decode()


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_standard_output_has_the_bytes_of_a_file_in_any_locale(
    encoding, trees, tmp_path, monkeypatch
):
    path = tmp_path / "new.txt"
    path.write_text("(_ (_ thé) (_ фильм))\n", encoding="utf-8")
    written = output_of(trees, path, "--format", "brackets")
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    monkeypatch.setattr("sys.stdout", stream)
    assert run("predict", trees, path, "--format", "brackets") == 0
    stream.flush()
    assert stream.buffer.getvalue().decode() == written  # type: ignore[attr-defined]
    assert "фильм" in written


def test_names_that_the_locale_cannot_write_are_printed_as_escapes(tmp_path, monkeypatch):
    table = tmp_path / "m.csv"
    table.write_text("smiles,löslich\nCCO,1\nC,2\n", encoding="utf-8")
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr("sys.stdout", stream)
    words = ["check-adapter", "smiles", "--data", table, "--set", "target_columns=['löslich']"]
    assert run(*words) == 0
    stream.flush()
    assert b"l\\xf6slich" in stream.buffer.getvalue()  # type: ignore[attr-defined]


def test_trees_come_back_with_the_labels_of_the_json_lines(trees, tmp_path):
    path = tmp_path / "new.txt"
    path.write_text(TREES)
    told = [json.loads(line) for line in output_of(trees, path).splitlines()]
    for batch_size in ("512", "1"):
        text = output_of(trees, path, "--format", "brackets", "--batch-size", batch_size)
        first, bad, third, fourth = text.splitlines()
        assert bad == "(ERROR bracket_opened_at_column_4_is_never_closed)"
        for line, record in zip((first, third, fourth), (told[0], *told[2:]), strict=True):
            tree = read_tree(BracketText(line, 1, 1), drops_outer=False)
            assert tree.labels[-1] == str(record["prediction"])
            words = [node for node in record["nodes"] if node["type"] == "word"]
            found = zip(tree.labels, tree.words, strict=True)
            expected = [(str(node["prediction"]), node["text"]) for node in words]
            assert [pair for pair in found if pair[1] is not None] == expected
        assert first.count("(") == 5  # the tree was read in pairs, but comes back as it came


def test_conllu_comes_back_byte_for_byte_but_for_the_column(tagger, tmp_path):
    path = tmp_path / "new.conllu"
    path.write_bytes(WORDS.replace("\n", "\r\n").encode())
    told = [json.loads(line) for line in output_of(tagger, path).splitlines()]
    lines = output_of(tagger, path, "--format", "conllu").split("\r\n")
    place = lines.index("# graphfold_error = token 1 has head 7, but the sentence has 1 token")
    del lines[place]
    tags = [node["prediction"] for record in told for node in record.get("nodes", ())]
    before = WORDS.split("\n")
    changed = [(a, b) for a, b in zip(before, lines, strict=True) if a != b]
    assert len(tags) == 4
    for (old, new), tag in zip(changed, tags, strict=True):
        cells = old.split("\t")
        assert new.split("\t") == [*cells[:3], tag, *cells[4:]]


@pytest.mark.parametrize("command", ["predict", "evaluate"])
def test_a_file_without_what_the_model_reads_is_warned_of(command, tagger, tmp_path, capsys):
    path = tmp_path / "other.conllu"
    heads = [2, 0, 2, 2, 2, 2]
    path.write_text(
        "".join(f"{k}\tx\t_\tX\t_\t_\t{head}\t_\t_\t_\n" for k, head in enumerate(heads, 1))
    )
    words = [path, "--output", tmp_path / "out"] if command == "predict" else ["--data", path]
    assert run(command, tagger, *words) == 0
    told = [line for line in capsys.readouterr().err.splitlines() if "never seen" in line]
    (line,) = told  # of the words, some are new in the validation part, too
    assert "training: 5 of 5 values of 'deprel' of inputs (100%; in the validation part 0%)" in line
    assert "in 1 of 1 record." in line


def test_standard_output_takes_any_byte(tagger, tmp_path, capfdbinary):
    path = tmp_path / "new.conllu"
    row = b"1\tx\t_\t_\t_\t_\t0\troot\t_\t_\n"
    path.write_bytes(b"# \xff\n" + row + b"\n" + row)
    assert run("predict", tagger, path, "--format", "conllu") == 0
    out = capfdbinary.readouterr().out
    assert out.startswith(b"# graphfold_error = byte 3 of the line (0xff) is not UTF-8\n# \xff\n")


def test_a_format_that_makes_no_sense_is_wrong_use(trees, tagger, tmp_path, capsys):
    path = tmp_path / "new.txt"
    path.write_text(TREES)

    def fault(run_path: Path, *words: str) -> str:
        assert run("predict", run_path, path, *words) == 2
        return capsys.readouterr().err

    assert "the run reads brackets. Write --format brackets" in fault(trees, "--format", "conllu")
    assert "the run reads conllu. Write --format conllu" in fault(tagger, "--format", "brackets")
    explained = fault(trees, "--format", "brackets", "--explain")
    assert "no place for contributions. Leave --explain out" in explained


def test_targets_without_a_place_in_the_format_are_named():
    operations = ListOpsAdapter()
    head = ClassificationHead(2, operations.schema, "graph")
    with pytest.raises(ConfigError, match="the run reads what ListOpsAdapter reads. Leave it out"):
        check_format("brackets", operations, head)
    words = ConlluAdapter()
    words.schema = Schema(words.schema.types, node_targets=(Column("mood", "int64", size=2),))
    with pytest.raises(ConfigError, match="has no place for mood of each node"):
        check_format("conllu", words, ClassificationHead(2, words.schema, "node"))
    for call in (
        lambda: operations.text_of(Record(1, "")),
        lambda: operations.write_back("", PredictedNodes()),
    ):
        with pytest.raises(ConfigError, match="ListOpsAdapter gives predictions back in no format"):
            call()
