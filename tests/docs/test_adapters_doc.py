"""The adapter of docs/adapters.md, taken out of the page and used in a folder of its own."""

import doctest
import importlib
import pickle
import re
import sys
from pathlib import Path

import pytest
import yaml

from graphfold.datasets.adapter import read_records
from graphfold.datasets.data_module import DataModule
from graphfold.datasets.readers.spec import make_adapter
from graphfold.errors import RecordError

PAGE = Path(__file__).parents[2] / "docs" / "adapters.md"


def block(language, number=0):
    """A code block of a language."""
    found = re.findall(rf"^```{language}\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    return found[number]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The reader's folder: the adapter, the data and the config of the page."""
    (tmp_path / "formulas.py").write_text(block("python"))
    (tmp_path / "formulas.tsv").write_text(block("text"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    yield tmp_path
    sys.modules.pop("formulas", None)


def test_the_session_of_the_page_is_what_happens(folder):
    example = doctest.DocTestParser().get_doctest(block("pycon"), {}, "adapters.md", None, 0)
    results = doctest.DocTestRunner().run(example)
    assert (results.failed, results.attempted) == (0, 7)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("x\tT", "the value 'x' is none of 0, 1 and [?]"),
        ("1\tT nor", "'nor' is neither T, F nor one of and, or, xor"),
        ("1\tT and", "'and' has 1 operands, but needs two"),
        ("1\tT F", "2 values are left over"),
        ("1\t", "0 values are left over"),
    ],
)
def test_faults_name_file_and_line(folder, line, message):
    path = folder / "formulas.tsv"
    path.write_text(f"1\tT\n{line}\n0\tF\n")
    adapter = make_adapter("formulas.FormulaAdapter")
    with pytest.raises(RecordError, match=rf"formulas\.tsv:2: {message}"):
        read_records(adapter, path, adapter.records(path))
    result = read_records(adapter, path, adapter.records(path), "skip")
    assert (result.dag.num_graphs, len(result.skipped)) == (2, 1)


def test_a_deep_formula_is_read(folder):
    path = folder / "formulas.tsv"
    path.write_text("1\tT" + " T and" * 10_000)
    adapter = pickle.loads(pickle.dumps(make_adapter("formulas.FormulaAdapter")))
    assert read_records(adapter, path, adapter.records(path)).dag.depth.max() == 10_000


def test_the_config_of_the_page_serves_the_data(folder):
    config = yaml.safe_load(block("yaml"))
    assert config.pop("defaults") == ["_base"]
    data = DataModule(**config, cache_dir=folder / "cache", fractions=(0.5, 0.25, 0.25))
    data.prepare()
    assert data.encoded().graph_column("value").tolist() == [1, 0, -1, 1]


def test_an_unknown_value_is_predicted(folder):
    """The adapter also reads records without a target, for prediction."""
    adapter = make_adapter("formulas.FormulaAdapter").without_targets()
    dag = read_records(adapter, Path(), [adapter.record_of("?\tT F or")]).dag
    assert dag.graph_column("value").tolist() == [-1]


def test_the_reader_and_the_split_of_the_page(folder, monkeypatch):
    about = folder / "own-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: own\nVersion: 1.0\n")
    name, _, target = block("toml", 1).splitlines()[-1].partition(" = ")
    (about / "entry_points.txt").write_text(f"[graphfold.readers]\n{name[1:-1]} = {target[1:-1]}\n")
    (folder / "my_tables.py").write_text(block("python", 1))
    (folder / "my_splits.py").write_text(block("python", 2))
    rows = [f"{'C' * k:<12}{k}" for k in range(1, 11)]
    (folder / "m.fixed").write_text("\n".join([f"{'smiles':<12}y", *rows]) + "\n")
    data = DataModule(
        adapter="smiles",
        path="m.fixed",
        target_columns=["y"],
        split="my_splits.by_size",
        cache_dir=folder / "cache",
    )
    data.prepare()
    assert data.encoded("train").graph_column("y").tolist() == list(range(1, 9))
    assert (data.split.method, data.split.sizes()["test"]) == ("by_size", 1)
