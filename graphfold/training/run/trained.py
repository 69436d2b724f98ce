"""TrainedModel: a model from a checkpoint, ready to be applied to data."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from graphfold.batching import Batch
from graphfold.dag import Schema
from graphfold.datasets.data_module import DataModule
from graphfold.datasets.features.feature_sources import for_other_data
from graphfold.datasets.features.feature_spec import FeatureSpec
from graphfold.errors import CheckpointError, ConfigError, LeftOut, first_line
from graphfold.layers import Head, Model
from graphfold.layers.heads.eval_rows import EvalRows, Predicted
from graphfold.layers.heads.output_column import OutputColumn
from graphfold.layers.uncertainty.calibration import Calibration, calibration_of
from graphfold.progress import shown
from graphfold.training.config.build_model import build_ensemble
from graphfold.training.config.training_config import TrainingConfig
from graphfold.training.config.trust import refuse_untrusted
from graphfold.training.loop.checks import choose_sharing
from graphfold.training.run.checkpoint import Checkpoint, with_places
from graphfold.training.scoring import HeadMetrics, Metrics, score

#: Settings of the data that become part of a model.
OF_WORDS = ("vectors", "characters")


@dataclass(frozen=True)
class TrainedModel:
    """A model on its device, with its config, checkpoint, feature spec and calibration.

    A prediction is the result of the model (of an ensemble the mean of its members), calibrated if
    the checkpoint has a calibration.
    """

    path: Path
    config: TrainingConfig  # with the folders of files on this machine
    checkpoint: Checkpoint
    spec: FeatureSpec
    model: Model
    device: torch.device
    calibration: Calibration | None = None

    @staticmethod
    def load(path: Path, trusted: Collection[str] = ()) -> TrainedModel:
        """Loads a checkpoint file.

        Args:
            path: the file.
            trusted: third-party packages that may be imported.

        Raises:
            CheckpointError: if it is no checkpoint, names a class that is neither registered nor
                trusted, or does not fit the model that it describes.
        """
        checkpoint = Checkpoint.load(path)
        config = TrainingConfig.stored(with_places(checkpoint.config, path), path)
        refuse_untrusted(config.mapping, trusted)
        try:
            spec = FeatureSpec.from_dict(checkpoint.spec)
            is_gpu = config.trainer.accelerator != "cpu" and torch.cuda.is_available()
            device = torch.device("cuda" if is_gpu else "cpu")
            model = build_ensemble(config.model, config.ensemble, spec.schema, spec.scalers)
            model.to(config.trainer.dtype)
            model.load_state_dict(checkpoint.state_dict)
            for network in model.networks:
                network.freeze()  # it is loaded to be applied
            calibration = None
            if checkpoint.calibration:
                calibration = calibration_of(model.head, checkpoint.calibration)
                _ = calibration.description  # fails here for a broken state, not in a prediction
        except CheckpointError:
            raise
        except Exception as error:  # a damaged file may raise anything
            raise CheckpointError(
                f"{path}: the model that it describes cannot be built ({first_line(error)}). Use "
                "the graphfold that wrote it, or train again.",
                path=str(path),
            ) from error
        return TrainedModel(
            path, config, checkpoint, spec, model.to(device).eval(), device, calibration
        )

    def __repr__(self) -> str:
        """The file, the metric that chose it, and the model with its targets and units."""
        config = self.config
        epochs = self.checkpoint.best_epochs
        named = f"epoch{'s' * (len(epochs) > 1)} {', '.join(map(str, epochs))}"
        versions = ", ".join(f"{k} {v}" for k, v in self.checkpoint.versions.items())
        metrics = ", ".join(config.metrics or self.head.metrics)
        lines = [f"{self.path} ({versions})", f"{named}, the best by {config.monitor}"]
        lines += [f"metrics: {metrics}", f"model: {self.model!r}"]
        text = "\n".join(lines).replace("\n", "\n  ")
        return f"{type(self).__name__}(\n  {text}\n)"

    @property
    def head(self) -> Head:
        """The head of the model."""
        return self.model.head

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts of the predictions without the value: those of the model, and intervals."""
        adds = () if self.calibration is None else self.calibration.adds
        return tuple(dict.fromkeys((*self.model.parts, *adds)))

    @property
    def columns(self) -> list[OutputColumn]:
        """The columns of the predictions."""
        return self.head.output_columns(self.parts)

    def predict(self, batch: Batch) -> Predicted:
        """The calibrated predictions for a batch."""
        return self.calibrated(self.model.predict(self.model(batch)))

    def calibrated(self, predicted: Predicted) -> Predicted:
        """Calibrates predictions of the model."""
        return predicted if self.calibration is None else self.calibration(predicted)

    @property
    def schema(self) -> Schema:
        """The encoded schema of the training data."""
        return self.spec.schema

    def data(self, settings: Mapping[str, Any]) -> DataModule:
        """The data of the run, with some settings changed.

        Raises:
            ConfigError: if one of the settings is part of the model, or features in the order of
                the records are not given for other records.
        """
        config = self.config.data
        for name in OF_WORDS:
            if name in settings and settings[name] != getattr(self.config.settings, name):
                raise ConfigError(
                    f"data.{name} cannot be changed for a trained model, which keeps what training "
                    "made of it. Leave it out, or train again."
                )
        stored, new = config.get("features_from"), settings.get("features_from")
        features = for_other_data(stored, new, is_other="path" in settings)
        data = DataModule(**{**config, **settings, "features_from": features})
        data.scored_batch_size = settings.get("batch_size")
        self.spec.check_classes(data.source.spec.make().schema)
        return data

    def score(self, data: DataModule, part: str) -> EvalRows:
        """All calibrated predictions for a part, computed in batches as in training."""
        share = choose_sharing(data, self.model, training=False)
        loader = data.loader(
            part, self.model.passes, shuffle=False, share=share, lowering=self.model.lowering
        )
        with self.config.trainer.autocast(self.device, caches_weights=True):
            total = len(data.split.part(part))
            batches = shown(loader, f"scoring {part}", lambda batch: batch.num_graphs, total)
            rows = score(self.model, batches, self.device, loader.policy)
        return replace(rows, prediction=self.calibrated(rows.prediction))

    def metrics(self, rows: EvalRows) -> Metrics:
        """The metrics of some rows, without the name of their part."""
        return self.head_metrics(rows)

    @property
    def head_metrics(self) -> HeadMetrics:
        """The metrics of the run."""
        reduction = self.config.loss["reduction"]
        return HeadMetrics.of(self.head, self.config.metrics, reduction, self.parts)


def coverage(data: DataModule) -> float:
    """The share of readable records; records without a measured target do not count."""
    usable = sum(file.num_records for file in data.files)
    bad = sum(not isinstance(error, LeftOut) for error in data.skipped)
    return usable / (usable + bad)
