"""A new run that begins with the weights of another."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch
from training.tiny_runs import bracket_tree, listops, run, train, write_molecules

from graphfold.training.run.checkpoint import Checkpoint

SMALL = ["model.run=eager", "trainer.max_epochs=1"]
MODEL = ["model.hidden_size=6", "model.encoder.size=5", *SMALL]

#: Weights stay as they are at first.
FROZEN = ["optimizer.lr=0.0", "seed=2", "data.seed=1"]


def trees(path: Path, *more: str) -> list[str]:
    """Overrides for a file of trees; the last trees hold further words."""
    rng = random.Random(len(more))
    lines = [bracket_tree(rng) for _ in range(20)]
    lines += [f"(1 (2 {word}) (3 film))" for word in more for _ in range(10)]
    path.write_text("\n".join(lines) + "\n")
    return ["data=brackets", f"data.path={path}", "data.num_classes=5", *MODEL]


def best(folder: Path) -> Checkpoint:
    return Checkpoint.load(folder / "checkpoints" / "best.ckpt")


def test_embeddings_are_taken_where_the_vocabularies_are_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = train(tmp_path / "first", *trees(tmp_path / "a.txt"))
    capsys.readouterr()
    (table,) = (name for name in best(first).state_dict if name.endswith(".table"))
    for more in ((), ("zzz", "aaa")):
        own = [*trees(tmp_path / f"{len(more)}.txt", *more), *FROZEN, f"init_from={first}"]
        second = train(tmp_path / f"second_{len(more)}", *own)
        before, after = best(first).state_dict, best(second).state_dict
        assert (f"{table} (another vocabulary)" in capsys.readouterr().out) is bool(more)
        for name in before:
            is_same = before[name].shape == after[name].shape and torch.equal(
                before[name], after[name]
            )
            assert is_same is (name != table or not more), name


def test_a_head_of_other_targets_and_other_scales_starts_afresh(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = write_molecules(tmp_path / "m.csv")
    common = ["data=smiles", f"data.path={table}", "model.hidden_size=8", *SMALL]
    first = train(tmp_path / "first", *common, "data.target_columns=[c]")
    capsys.readouterr()
    own = ["data.target_columns=['a b']", *FROZEN, f"init_from={first}"]
    second = train(tmp_path / "second", *common, *own)
    assert "weight (other targets), head" in capsys.readouterr().out
    before, after = best(first).state_dict, best(second).state_dict
    for name in before:
        if "encoder" in name or ("cells" in name and "running" not in name and "num_" not in name):
            assert torch.equal(before[name], after[name]), name
    assert not torch.equal(before["head.mean"], after["head.mean"])


def test_another_width_is_named(
    listops_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = ["trainer.max_epochs=1", "model.hidden_size=9", f"init_from={listops_run}"]
    train(tmp_path / "second", *listops(*settings))
    text = capsys.readouterr().out
    assert "not taken: network.cells" in text
    assert " there, [" in text


def test_a_run_without_fitting_weights_is_refused(
    listops_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = write_molecules(tmp_path / "m.csv")
    words = ["data=smiles", f"data.path={table}", "data.target_columns=[c]"]
    settings = [f"data.cache_dir={tmp_path}/cache", f"hydra.run.dir={tmp_path / 'run'}"]
    settings.append(f"init_from={listops_run}")
    assert run("train", *words, *settings) == 2
    assert "no weight of" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
