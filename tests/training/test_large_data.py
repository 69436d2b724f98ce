"""A corpus that is read from the disk batch by batch trains, scores and splits as one in memory."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from training.tiny_runs import bracket_tree, train

from graphfold.datasets import DataModule, data_module
from graphfold.datasets.storage.store import GraphCorpus
from graphfold.training.run.checkpoint import Checkpoint

NARROW = ["model.hidden_size=6", "model.run=eager"]
MORE = ["data.num_workers=0", "trainer.max_epochs=2"]


RINGS = ["C", "c1ccccc1", "C1CCCC1", "c1ccncc1", "C1CC1", "c1ccoc1", "C1CCCCC1"]


def write_molecules(folder: Path) -> str:
    """Three tables of different molecules; returns their pattern."""
    for number in range(3):
        rows = [
            f"{'C' * (k % 13 + 1)}{'NOS'[number]}{RINGS[k % 7]},{k * 7 % 11},{k % 3 + 1}"
            for k in range(40)
        ]
        (folder / f"m{number}.csv").write_text("\n".join(["smiles,y,w", *rows]))
    return f"{folder}/m*.csv"


def write_trees(folder: Path) -> str:
    rng = random.Random(0)
    for part in ("train", "val", "test"):
        text = "\n".join(bracket_tree(rng) for _ in range(25))
        (folder / f"{part}.txt").write_text(text)
    return ",".join(f"{part}:{folder}/{part}.txt" for part in ("train", "val", "test"))


def words_of(kind: str, folder: Path) -> list[str]:
    if kind == "molecules":
        return [
            *("data=smiles", f"data.path={write_molecules(folder)}", "data.target_columns=[y]"),
            *("data.weight_column=w", "model=dmpnn", "model.hidden_size=8"),
            *("data.batch_size=10", "model.run=eager"),
        ]
    if kind == "trees":
        path = write_trees(folder)
        return ["experiment=sst_tree_lstm", f"data.path={{{path}}}", *NARROW]
    return [  # the model counts something in the training part
        *("data=smiles", f"data.path={write_molecules(folder)}", "data.target_columns=[y]"),
        *("model=pna", "model.hidden_size=8", "model.run=eager"),
    ]


@pytest.mark.parametrize("kind", ["molecules", "trees", "degrees"])
def test_a_run_from_the_disk_is_that_from_memory(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [*words_of(kind, tmp_path), *MORE]
    here = train(tmp_path / "here", *words)
    monkeypatch.setattr(data_module, "LARGE", 0)
    monkeypatch.setattr(data_module, "FACTS_CHUNK", 7)
    monkeypatch.setattr(data_module, "CHUNK", 9)
    with monkeypatch.context() as forbidden:
        if kind != "degrees":
            forbidden.setattr(GraphCorpus, "whole", _must_not_be_called)
        there = train(tmp_path / "there", *words)
    for name in ("metrics.json", "predictions.csv", "split.csv"):
        assert (there / name).read_text() == (here / name).read_text()
    first, second = (Checkpoint.load(f / "checkpoints" / "best.ckpt") for f in (here, there))
    assert all(torch.equal(second.state_dict[k], v) for k, v in first.state_dict.items())
    assert torch.equal(first.training_records, second.training_records)
    assert first.spec == second.spec
    assert first.split == second.split


def test_each_graph_is_read_once_before_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = DataModule(
        adapter="smiles",
        path=write_molecules(tmp_path),
        cache_dir=str(tmp_path / "cache"),
        num_workers=0,
        target_columns=["y"],
        directed_bonds=True,
    )
    select, counts = GraphCorpus.select, list[int]()

    def counted(self: Any, graphs: Any) -> Any:
        counts.append(len(graphs))
        return select(self, graphs)

    monkeypatch.setattr(data_module, "LARGE", 0)
    monkeypatch.setattr(data_module, "FACTS_CHUNK", 50)
    monkeypatch.setattr(GraphCorpus, "select", counted)
    data.prepare()  # splits and scales
    facts = [*data.chunks("train", encoded=True, facts=True)]
    assert sum(counts) == 0
    assert torch.equal(data.hashes, data.hashes)
    assert sum(counts) == 120
    whole = data.encoded("train")
    assert len(facts) == 2
    targets = torch.cat([part.graph_column("y") for part in facts])
    assert torch.equal(targets, whole.graph_column("y"))


def _must_not_be_called(*_: object) -> None:
    raise AssertionError("the whole corpus was brought into memory")


@pytest.mark.parametrize(
    "settings",
    [
        {"split": "random", "groups": "molecule"},
        {"split": "kfold", "groups": "scaffold"},
        {"split": "scaffold", "fractions": [0.4, 0.3, 0.3]},
        {"split": "butina"},
        {"split": "stratified", "stratify_by": "w"},
        {"split": "training.test_large_data.by_size"},
    ],
)
def test_splits_of_records_on_the_disk(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def split() -> dict[str, Any]:
        data = DataModule(
            adapter="smiles",
            path=pattern,
            target_columns=["y", "w"],
            cache_dir=str(tmp_path / "cache"),
            num_workers=0,
            **settings,
        )
        data.prepare()
        return data.split.to_dict()

    pattern = write_molecules(tmp_path)
    here = split()
    monkeypatch.setattr(data_module, "LARGE", 0)
    assert split() == here


def by_size(records: Any, settings: Any) -> Any:
    """A split of one's own, which looks at the nodes."""
    from graphfold.datasets.splits.split import Split

    order = records.dag.node_ptr.diff().argsort(stable=True)
    return Split.of_parts([order[:80], order[80:100], order[100:]], "by_size")
