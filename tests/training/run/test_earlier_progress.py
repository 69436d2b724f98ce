"""last.ckpt of versions whose loop was Lightning's: such a run goes on as if it were today's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from training.tiny_runs import listops, read_json, run, train


def as_lightning_kept_it(path: Path) -> None:
    """Writes the progress of a checkpoint in the layout of graphfold 0.1 with Lightning 2.6."""
    content = torch.load(path, weights_only=True)
    now = content["progress"]
    best = ("history", "best", "is_finished")
    callbacks: dict[str, Any] = {"BestAndLast": {name: now[name] for name in best}}
    earlier = {
        "epoch": now["epoch"],
        "global_step": now["step"],
        "pytorch-lightning_version": "2.6.6",
        "loops": {"fit_loop": {"state_dict": {}}},
        "callbacks": callbacks,
        "optimizer_states": [now["optimizer"]],
        "lr_schedulers": [now["lr_scheduler"]],
        "generators": now["generators"],
        "member": now["member"],
    }
    stopping = now["callbacks"].get("EarlyStopping")
    if stopping is not None:
        callbacks["EarlyStopping{'monitor': 'val/accuracy', 'mode': 'max'}"] = {
            "wait_count": stopping["waited"],
            "best_score": torch.tensor(stopping["best"]),
            "stopped_epoch": 0,
            "patience": 2,
        }
    average = now["callbacks"].get("AverageWeights")
    if average is not None:
        callbacks["AverageWeights"] = {"latest_update_step": now["step"]}
        earlier["current_model_state"] = {f"model.{k}": v for k, v in now["weights"].items()}
        earlier["averaging_state"] = {"n_averaged": torch.tensor(average["count"])}
    content["progress"] = earlier
    torch.save(content, path)


@pytest.mark.parametrize(
    "more",
    [
        ["model.dropout=0.4", "lr_scheduler=step", "lr_scheduler.step_size=1"],
        ["callbacks=average"],
        ["callbacks=early_stopping", "callbacks.early_stopping.patience=2", "optimizer.lr=0.0"],
    ],
)
def test_a_run_of_earlier_goes_on(more: list[str], tmp_path: Path) -> None:
    whole = train(
        tmp_path / "whole", *listops("lr_scheduler=constant", *more, "trainer.max_epochs=4")
    )
    folder = train(
        tmp_path / "run", *listops("lr_scheduler=constant", *more, "trainer.max_epochs=2")
    )
    as_lightning_kept_it(folder / "checkpoints" / "last.ckpt")
    assert run("train", f"resume={folder}") == 0  # scored again
    assert run("train", f"resume={folder}", "trainer.max_epochs=4") == 0
    assert (folder / "metrics.csv").read_text() == (whole / "metrics.csv").read_text()
    assert read_json(folder / "metrics.json") == read_json(whole / "metrics.json")
