"""The accuracy that each example claims, with its defaults; some minutes in all."""

from __future__ import annotations

import random
import re

import pytest
from example_files import example

pytestmark = pytest.mark.slow


def test_the_calculator_is_right_in_99_of_100_new_expressions():
    """Operators + - *, digits 0 to 9, depth 3, values up to 1000 in size."""
    assert example("calculator").main([]) >= 0.99


@pytest.mark.parametrize("arguments", [["sum"], ["min"], ["min", "--seed", "4"]])
def test_sum_and_min_are_learned_to_within_a_hundredth_of_the_range(arguments):
    assert example("sum_and_min").main(arguments).max() <= 0.008


def test_languages_of_files_are_told_apart(tmp_path):
    module = example("languages")
    rng = random.Random(5)
    files = [tmp_path / f"{n}.txt" for n in range(4)]
    for file in files:
        file.write_text("\n".join(module.invented_lines(rng, 500)), encoding="utf-8")
    assert module.main([*map(str, files)]) >= 0.95


def test_english_and_french_are_told_apart(tmp_path, data_root):
    files = []
    for name in ("ud_english_ewt", "ud_french_sequoia"):
        sources = sorted((data_root / name).glob("*.conllu"))
        if not sources:
            pytest.skip(f"no {name} at {data_root}")
        text = "".join(source.read_text(encoding="utf-8") for source in sources)
        lines = re.findall(r"^# text = (.*)$", text, re.MULTILINE)
        files.append(tmp_path / name)
        files[-1].write_text("\n".join(lines[:1000]), encoding="utf-8")
    assert example("languages").main([*map(str, files)]) >= 0.95


def test_attention_adds_marked_numbers():
    assert example("attention").main([]) >= 0.99


def test_the_tree_rnn_learns_logic():
    assert example("tree_rnn").main([]) >= 0.99


def test_json_records_are_told_apart():
    assert example("json_records").main([]) >= 0.9


def test_weave_learns_solubility(data_root):
    table = data_root / "esol" / "delaney-processed.csv"
    if not table.is_file():
        pytest.skip(f"no ESOL at {table}")
    _, new = example("graph_convolution").main([str(table)])
    assert new < 1.2  # the standard deviation of the targets is 2.1


@pytest.mark.filterwarnings("ignore:FunctionCell is not compiled")  # dropout, and labels
def test_sentiment_of_the_treebank(data_root, capsys):
    folder = data_root / "sst"
    if not folder.is_dir():
        pytest.skip(f"no SST at {folder}")
    example("sentiment").main(folder / "train.txt", folder / "test.txt", 3)
    last = capsys.readouterr().out.splitlines()[-1]
    roots, nodes = map(float, re.findall(r"0\.\d+", last))
    assert roots > 0.44
    assert nodes > 0.79
