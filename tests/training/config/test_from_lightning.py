"""Configs that name Lightning's trainer, callbacks and loggers are read as ours."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from training.tiny_runs import listops, read_json, run, train

from graphfold.errors import ConfigError
from graphfold.training.config.check_parts import check_parts
from graphfold.training.config.compose import compose
from graphfold.training.config.from_lightning import with_own_loop

PARTS = yaml.safe_load("""
trainer:
  _target_: lightning.pytorch.Trainer
  max_epochs: 7
  precision: bf16-mixed
  gradient_clip_val: 0.5
  strategy: ddp
  enable_progress_bar: false
  num_sanity_val_steps: 0
  profiler: null
callbacks:
  average: {_target_: graphfold.training.loop.averaging.AverageWeights, decay: 0.9}
  early_stopping:
    _target_: lightning.pytorch.callbacks.EarlyStopping
    _partial_: true
    patience: 5
    min_delta: 0.1
    verbose: true
  absent: null
logger:
  tensorboard:
    _target_: lightning.pytorch.loggers.TensorBoardLogger
    _partial_: true
    name: tensorboard
    version: ""
  mine: {_target_: lightning.pytorch.loggers.WandbLogger, _partial_: true}
""")


def test_they_are_replaced_key_by_key() -> None:
    before = yaml.safe_dump(PARTS)
    found = with_own_loop(PARTS)
    assert found["trainer"] == {
        "_target_": "graphfold.training.Trainer",
        "max_epochs": 7,
        "precision": "bf16-mixed",
        "gradient_clip_val": 0.5,
    }
    assert found["callbacks"] == {
        "average": {"_target_": "graphfold.training.AverageWeights", "decay": 0.9},
        "early_stopping": {
            "_target_": "graphfold.training.EarlyStopping",
            "patience": 5,
            "min_delta": 0.1,
        },
        "absent": None,
    }
    assert found["logger"]["tensorboard"]["_target_"] == "graphfold.training.TensorBoardLogger"
    assert found["logger"]["mine"] == PARTS["logger"]["mine"]
    assert yaml.safe_dump(PARTS) == before
    assert with_own_loop(found) == found


def test_an_option_without_counterpart_is_refused() -> None:
    trainer = {**PARTS["trainer"], "devices": 1, "accumulate_grad_batches": 1}
    trainer |= {"max_steps": 10, "max_time": "00:01:00:00"}
    with pytest.raises(ConfigError, match=r"max_steps is .* Set trainer\.max_epochs\.") as caught:
        check_parts(compose([]).config.changed(with_own_loop({"trainer": trainer})))
    assert "trainer.max_time" in caught.value.message


def rewrite(folder: Path, **parts: Any) -> None:
    config = yaml.safe_load((folder / "config.yaml").read_text())
    (folder / "config.yaml").write_text(yaml.safe_dump({**config, **parts}))


def test_a_stored_run_that_names_them_goes_on(tmp_path: Path) -> None:
    more = ["callbacks=early_stopping", "callbacks.early_stopping.patience=1", "optimizer.lr=0.0"]
    whole = train(tmp_path / "whole", *listops(*more, "trainer.max_epochs=9"))
    stopped = train(tmp_path / "run", *listops(*more, "trainer.max_epochs=1"))
    trainer = {
        "_target_": "lightning.pytorch.Trainer", "max_epochs": 1, "accelerator": "auto",
        "devices": 1, "precision": "32-true", "accumulate_grad_batches": 1,
        "gradient_clip_val": None,
    }  # fmt: skip
    early = PARTS["callbacks"]["early_stopping"]
    rewrite(stopped, trainer=trainer, callbacks={"early": {**early, "patience": 1}})
    assert run("train", f"resume={stopped}", "trainer.max_epochs=9") == 0
    assert (stopped / "metrics.csv").read_text() == (whole / "metrics.csv").read_text()


def test_a_callback_of_lightning_is_refused_with_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "theirs.py").write_text("class Timer:\n    pass\n")
    sys.path.insert(0, str(tmp_path))
    try:
        words = listops("+callbacks.timer._target_=theirs.Timer", f"hydra.run.dir={tmp_path}/run")
        assert run("train", *words) == 2
    finally:
        sys.path.remove(str(tmp_path))
        sys.modules.pop("theirs", None)
    assert "Derive it from graphfold.training.Callback" in capsys.readouterr().err


def test_a_logger_of_lightning_still_works(tmp_path: Path) -> None:
    pytest.importorskip("lightning")
    logger = "+logger.csv={_target_: lightning.pytorch.loggers.CSVLogger, _partial_: true, name: c}"
    folder = train(tmp_path / "run", *listops(), logger)
    (table,) = folder.rglob("c/version_*/metrics.csv")
    header, *lines = table.read_text().splitlines()
    assert "val/accuracy" in header
    assert "test/accuracy" in header
    assert len(lines) == 2 + 1  # two epochs, and the scores of the test part
    assert read_json(folder / "metrics.json")
