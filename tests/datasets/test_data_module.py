"""DataModule: settings in, batches out, and the same again from a stored state."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from postfix_adapter import NAME, random_expressions, write_expressions

from graphfold.batching import Up
from graphfold.dag import validate
from graphfold.dag.compare import difference
from graphfold.datasets import data_module
from graphfold.datasets.data_module import DataModule
from graphfold.errors import ConfigError, DataError, SchemaError
from graphfold.training.config.compose import compose


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write_expressions(tmp_path / "f.txt", random_expressions(100))


def module(path: Any, **settings: Any) -> DataModule:
    paths = [*path.values()] if isinstance(path, dict) else path
    folder = Path(paths[0] if isinstance(paths, list) else paths).parent
    return DataModule(adapter=NAME, path=path, cache_dir=folder / "cache", **settings)


def prepared(path: Any, **settings: Any) -> DataModule:
    data = module(path, **settings)
    data.prepare()
    return data


def test_preparing_splits_and_encodes(file):
    data = prepared(file)
    assert data.split.sizes() == {"train": 80, "val": 10, "test": 10}
    assert data.split.method == "random"
    assert data.encoded().num_graphs == 100
    assert data.encoded().schema == data.spec.schema
    for part in ("train", "val", "test"):
        dag = data.encoded(part)
        validate(dag)
        assert dag.origin[:, 2].tolist() == data.split.part(part).tolist()


def test_more_records_are_scored_together_than_a_step_has(file, monkeypatch):
    data = prepared(file, batch_size=8)

    def sizes() -> list[int]:
        return [batch.num_graphs for batch in data.loader("train", [Up()], shuffle=False)]

    assert sizes() == [80]
    nodes = data.num_rows("node")[data.split.train]
    monkeypatch.setattr(data_module, "SCORED_NODES", int(20.5 * nodes.double().mean()))
    assert sizes() == [20] * 4
    monkeypatch.setattr(data_module, "SCORED_NODES", 1)
    assert sizes() == [8] * 10
    data.scored_batch_size = 40
    assert sizes() == [40, 40]


def test_a_stored_state_gives_the_same_data(file):
    first = prepared(file, seed=3, min_count=2)
    state = json.loads(json.dumps(first.state_dict()))
    second = module(file, seed=99, split="kfold")
    second.prepare(state)
    assert second.split.to_dict() == first.split.to_dict()
    assert second.state_dict() == first.state_dict()
    assert difference(first.encoded("test"), second.encoded("test")) is None


def test_a_stored_split_refuses_a_changed_file(file):
    state = prepared(file).state_dict()
    write_expressions(file, random_expressions(100, seed=1))
    with pytest.raises(DataError, match=r"f\.txt: the file changed since the run split it\. Put"):
        module(file).prepare(state)


def test_other_data_are_all_test(file, tmp_path):
    spec = prepared(file).spec
    other = module(write_expressions(tmp_path / "g.txt", ["1 2 +", "77777"]))
    other.prepare_for_scoring(spec)
    assert other.split.sizes() == {"train": 0, "val": 0, "test": 2}
    assert other.encoded().features("number")["form"].tolist()[2] == 0
    (batch,) = other.loader("test", [Up()])
    assert batch.num_graphs == 2


def test_files_for_the_parts(tmp_path):
    lines = random_expressions(30)
    paths = {
        part: str(write_expressions(tmp_path / f"{part}.txt", lines[begin : begin + 10]))
        for part, begin in {"test": 20, "train": 0, "val": 10}.items()
    }
    data = prepared(paths)
    assert data.split.method == "given"
    assert data.encoded("train").strings("graph", "text") == lines[:10]
    assert data.encoded("test").strings("graph", "text") == lines[20:]
    assert data.encoded("test").place(0) == (paths["test"], 1)
    assert [file.num_records for file in data.files] == [10, 10, 10]
    mixed = prepared([*paths.values()], split="random", fractions=(0.5, 0.25, 0.25))
    assert sum(mixed.split.sizes().values()) == 30
    for split in ("random", "kfold", "stratified"):
        with pytest.raises(ConfigError, match=rf"data\.split={split} does not read it\. Set data"):
            prepared(paths, split=split)
    with pytest.raises(DataError, match="needs files for train, but the parts given are: val"):
        prepared({part: paths[part] for part in ("val", "test")})


@pytest.mark.parametrize("data", ["smiles", "table"])
def test_parts_that_a_config_or_a_column_names_are_the_split(data, tmp_path):
    """Whatever the reader: the default of `data.split` in its file leaves the parts alone."""
    sizes = {"train": 6, "val": 2, "test": 3}
    rows = {part: [f"{'C' * (k + 1)},{k},{part}" for k in range(n)] for part, n in sizes.items()}
    for part, lines in rows.items():
        (tmp_path / f"{part}.csv").write_text("\n".join(["smiles,y,part", *lines, ""]))
    every = ["smiles,y,part", *rows["test"], *rows["train"], *rows["val"], ""]
    (tmp_path / "all.csv").write_text("\n".join(every))
    words = [f"data={data}", "data.target_columns=[y]", f"data.cache_dir={tmp_path}/cache"]
    if data == "table":
        words += ["data.records=smiles", "data.record_column=smiles"]
    files = ", ".join(f"{part}: {tmp_path}/{part}.csv" for part in sizes)
    for given in (
        [f"data.path={{{files}}}"],
        [f"data.path={tmp_path}/all.csv", "data.split_column=part"],
    ):
        made = DataModule(**compose([*words, *given, "model=gcn"]).config.data)
        made.prepare()
        assert made.split.method == "given"
        assert made.split.sizes() == sizes


def test_nothing_usable(tmp_path):
    path = write_expressions(tmp_path / "f.txt", ["x"])
    message = r"left; 1 record was left out\. The first bad one is .*f\.txt:1: 'x' is no number\. C"
    with pytest.raises(DataError, match=message):
        prepared(path, on_error="skip")


def test_other_features_than_the_run_learnt_from(file, tmp_path):
    table = tmp_path / "m.csv"
    table.write_text("smiles\nC\n")
    other = DataModule(adapter="smiles", path=table, cache_dir=tmp_path / "cache")
    with pytest.raises(SchemaError, match="but the model was trained with"):
        other.prepare_for_scoring(prepared(file).spec)


def test_it_travels_to_other_processes(file):
    data = prepared(file)
    text = pickle.dumps(data)
    assert len(text) < 20_000  # the other process maps the packed copy
    other: DataModule = pickle.loads(text)
    assert difference(data.encoded(), other.encoded()) is None
    assert torch.equal(data.split.train, other.split.train)
    write_expressions(file, random_expressions(100, seed=1))
    late: DataModule = pickle.loads(text)
    with pytest.raises(DataError, match="the file changed since the run split it"):
        late.encoded()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"split": "radnom"},
            r"data\.split is 'radnom'\. Did you mean 'random'\? Use one of given",
        ),
        ({"batch_size": 0}, r"data\.batch_size is 0, but it must be a whole number from 1 on"),
        ({"max_nodes": -1}, r"data\.max_nodes is -1, but it must be a whole number from 1 on"),
        ({"num_workers": -1}, r"data\.num_workers is -1, but it must be a whole number from 0 to"),
        ({"min_count": 0}, r"data\.min_count is 0, but it must be a whole number from 1 on"),
        (
            {"max_vocabulary": 0},
            r"data\.max_vocabulary is 0, but it must be a whole number from 1",
        ),
        ({"on_error": "ignore"}, r"data\.on_error is 'ignore', but it is one of raise, skip"),
        ({"split": ".."}, r"data\.split=\.\.: '\.\.' is no dotted path\. Give one as package\.mod"),
        ({"policy": "fast"}, r"data\.policy is 'fast', but it is one of depth"),
        ({"batch_size": "3"}, r"data\.batch_size is '3', but it must be a whole number"),
        ({"corpus": 3}, r"data\.corpus is 3, but it must be a string or null"),
        (
            {"num_workers": "all"},
            r"data\.num_workers is 'all', but it must be a whole number from",
        ),
        ({"batchsize": 3}, r"data has no option 'batchsize'\. Did you mean 'batch_size'\?"),
        ({"base": "ten"}, r"option 'base' of the .* is 'ten', but it must be a whole number"),
        ({"corpus": "sst"}, r"corpus sst is read by the brackets adapter, not by 'postfix_adapte"),
    ],
)
def test_faults_before_any_work(settings, message, tmp_path):
    with pytest.raises(ConfigError, match=message):
        module(tmp_path / "f.txt", **settings).prepare()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("cells", "task", "times"), [("12", "regression", 2), ("ab", "classification", 3)]
)
def test_a_table_is_opened_to_be_hashed_to_be_read_and_for_names_of_classes(
    cells, task, times, opened, tmp_path
):
    path = tmp_path / "m.csv"
    path.write_text("smiles,y\n" + "".join(f"{'C' * k},{cells[k % 2]}\n" for k in range(1, 21)))
    opened.clear()
    data = DataModule(
        adapter="smiles",
        path=path,
        cache_dir=tmp_path / "cache",
        target_columns=["y"],
        task=task,
        num_workers=0,
    )
    data.prepare()
    assert opened[str(path)] == times


def test_nothing_is_there_before_it_is_prepared(file):
    with pytest.raises(DataError, match=r"the data are not read yet\. Call prepare\(\) first"):
        module(file).encoded()


def test_words_are_learned_though_all_targets_are_classes(tmp_path):
    """`FeatureSpec.learns_of_nodes` says that nodes have to be read for them."""
    path = tmp_path / "trees.txt"
    path.write_text("".join(f"(1 (0 w{n % 7}) (1 v{n % 3}))\n" for n in range(60)))
    data = DataModule(adapter="brackets", path=path, cache_dir=tmp_path / "cache")
    data.prepare()
    codes = data.encoded("train").features("word")["form"].unique()
    assert len(codes) == 7 + 3
