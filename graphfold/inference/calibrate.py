"""Calibration of a trained model: once, after training, on the validation part."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from graphfold.datasets.loading.data_module import DataModule
from graphfold.files import write_bytes
from graphfold.layers.uncertainty.calibrated import CalibrationSettings, calibrated_head, shortage
from graphfold.training.run.checkpoint import SCHEMA_NUMBER, Checkpoint
from graphfold.training.run.trained import TrainedModel


def calibrate(path: Path, data: DataModule, trusted: Collection[str] = ()) -> str | None:
    """Calibrates the predictions of a checkpoint as its config says, and writes it back.

    Args:
        path: the checkpoint; an earlier calibration in it is replaced.
        data: the data of the run, prepared.
        trusted: third-party packages that may be imported.

    Returns:
        What was done, or what there were too few records for; None if nothing was asked for.

    Raises:
        ConfigError: if the method is not for what the model predicts.
    """
    checkpoint = Checkpoint.load(path)
    settings = CalibrationSettings.of(checkpoint.config)
    if settings.method == "none":
        return None
    if checkpoint.calibration or checkpoint.schema_number < SCHEMA_NUMBER:
        checkpoint = replace(checkpoint, calibration={}, schema_number=SCHEMA_NUMBER)
        write_bytes(path, checkpoint.encode())
    trained = TrainedModel.load(path, trusted)
    rows = trained.score(data, "val")
    found = calibrated_head(trained.model.head, settings, rows.prediction, rows.target)
    notes = [shortage(trained.model.head, settings, rows.prediction, rows.target)]
    if found is not None:
        write_bytes(path, replace(checkpoint, calibration=found.state()).encode())
        notes.insert(0, found.description)
    told = [note for note in notes if note]
    return "\n".join(told) or None
