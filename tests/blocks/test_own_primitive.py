"""A primitive that a third party adds in one file, evaluated, batched and trained from a config."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from block_checks import check_batched
from own_log_sum_exp import LogSumExp
from training.tiny_runs import listops, read_json, run, train

from graphfold import blocks as td

MODEL = """
_target_: graphfold.blocks.BlockModel
root:
  _target_: own_log_sum_exp.soft_trees
  _partial_: true
  size: 5
level: graph
head:
  _target_: auto
  _partial_: true
"""


def test_it_is_evaluated_and_batched_like_any_other() -> None:
    block = td.Map(td.Vector(2)) >> LogSumExp(2)
    layer = LogSumExp(2)
    nested = td.Map(td.Map(td.Vector(2)) >> layer) >> layer >> td.FC(3)
    with torch.no_grad():
        list(block.children)[1].scale.weight[:] = 1  # type: ignore[attr-defined]
    expected = torch.tensor([[0.5, -1.0], [2.0, 0.25]]).logsumexp(0)
    assert block.eval([[0.5, -1.0], [2.0, 0.25]]).tolist() == pytest.approx(expected.tolist())
    assert block.eval([], tolist=True) == [0.0, 0.0]
    assert nested.max_depth([[[1, 2]], [[3, 4]]]) == 3
    check_batched(block, [[[1, 2], [3, 4]], [], [[0, -1]]])
    check_batched(nested, [[[[1, 2]], [], [[0, 1], [2, 3]]], [], [[]]])


def test_equal_ones_share_their_weights_and_others_do_not() -> None:
    layer = LogSumExp(2)
    both = td.AllOf(td.Map(td.Vector(2)) >> layer, td.Map(td.Vector(2)) >> layer)
    assert len(list(td.compile(both).parameters())) == 1
    assert list(td.compile(td.AllOf(both, td.Map(td.Vector(2)) >> LogSumExp(2))).state_dict()) == [
        "blocks.LogSumExp.weight",
        "blocks.LogSumExp_2.weight",
    ]


def test_a_model_of_it_is_trained_from_a_config_and_evaluated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "conf" / "model").mkdir(parents=True)
    (tmp_path / "conf" / "model" / "soft.yaml").write_text(MODEL)
    monkeypatch.syspath_prepend(Path(__file__).parent)
    more = [word for word in listops() if not word.startswith("model")]
    conf = ["--config-dir", str(tmp_path / "conf"), "data=listops_generated", "model=soft"]
    conf.append("+model.run=eager")
    folder = train(tmp_path / "run", *conf, *more)
    path = tmp_path / "test.json"
    assert run("evaluate", folder, "--trust", "own_log_sum_exp", "--json", path) == 0
    assert read_json(path)["test/accuracy"] == read_json(folder / "metrics.json")["test/accuracy"]
