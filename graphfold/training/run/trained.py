"""TrainedModel: a model with what is needed to give it data, out of a checkpoint."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from graphfold.dag import Schema
from graphfold.datasets.adapters.registry import adapter_paths
from graphfold.datasets.features.feature_spec import FeatureSpec
from graphfold.datasets.loading.data_module import DataModule
from graphfold.errors import CheckpointError, GraphfoldError, LeftOut
from graphfold.layers import Model
from graphfold.training.config.earlier_configs import upgraded
from graphfold.training.config.instantiate import refuse_unregistered, third_party
from graphfold.training.config.model import build_model
from graphfold.training.loop.sharing import choose_sharing
from graphfold.training.process.precision import autocast, parameter_dtype
from graphfold.training.run.checkpoint import Checkpoint
from graphfold.training.scoring.metrics import Metrics
from graphfold.training.scoring.scoring import Rows, score, split_metrics


@dataclass(frozen=True)
class TrainedModel:
    """A model on its device, the checkpoint that it came from, and its feature spec."""

    path: Path
    checkpoint: Checkpoint
    spec: FeatureSpec
    model: Model
    device: torch.device

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
        refuse_untrusted(checkpoint, trusted)
        try:
            spec = FeatureSpec.from_dict(checkpoint.spec)
            device = choose_device(checkpoint.config["trainer"])
            config = upgraded(checkpoint.config)
            model = build_model(config["model"], spec.schema, spec.scalers)
            model.to(parameter_dtype(config["trainer"]))
            model.load_state_dict(checkpoint.state_dict)
        except (GraphfoldError, KeyError, TypeError, RuntimeError, AttributeError) as error:
            raise CheckpointError(
                f"{path}: the model that it describes cannot be built ({error}). Use the graphfold "
                "that wrote it, or train again.",
                path=str(path),
            ) from error
        return TrainedModel(path, checkpoint, spec, model.to(device).eval(), device)

    @property
    def reduction(self) -> str:
        """How the loss is averaged."""
        return str(self.checkpoint.config["loss"]["reduction"])

    @property
    def schema(self) -> Schema:
        """The schema that the model was trained with, encoded."""
        return self.spec.schema

    def data(self, settings: Mapping[str, Any]) -> DataModule:
        """The data of the run, some of whose settings are changed."""
        return DataModule(**{**self.checkpoint.config["data"], **settings})

    def score(self, data: DataModule, part: str) -> Rows:
        """All predictions for a part, from the batches that training scores it with."""
        share = choose_sharing(data, self.model, training=False)
        loader = data.loader(
            part,
            self.model.passes,
            shuffle=False,
            share=share,
            lowering=self.model.lowering,
        )
        with autocast(self.device, self.checkpoint.config["trainer"]):
            return score(self.model, loader, self.device, loader.policy)

    def metrics(self, rows: Rows) -> Metrics:
        """The metrics of a part, without its name."""
        return split_metrics(self.model.head, rows, self.reduction)


def refuse_untrusted(checkpoint: Checkpoint, trusted: Collection[str]) -> None:
    """Raises CheckpointError before a class is imported that the user has not vouched for."""
    refuse_unregistered(checkpoint.config.get("model"), trusted, "model")
    package = adapter_package(checkpoint.config.get("data", {}))
    if package is not None and package not in trusted:
        raise CheckpointError(
            f"the run read its data with an adapter of the package '{package}', which is not part "
            f"of graphfold. If you trust it, add --trust {package}.",
            package=package,
        )


def named_packages(config: Mapping[str, Any]) -> list[str]:
    """The third-party packages whose code a run uses for its model and its data."""
    split = str(config["data"].get("split"))
    own = [split.partition(".")[0]] if "." in split else []
    adapter = adapter_package(config["data"])
    return sorted({*third_party(config["model"]), *own, *([adapter] if adapter else [])})


def adapter_package(data: Mapping[str, Any]) -> str | None:
    """The package of the adapter, if it is not graphfold's own; nothing is imported."""
    name = data.get("adapter")
    if name is None:
        return None
    path = adapter_paths().get(str(name), str(name))
    package = path.replace(":", ".").partition(".")[0]
    return None if package == "graphfold" else package


def choose_device(trainer: Mapping[str, Any]) -> torch.device:
    """The device that the trainer of a run would use, if it is here."""
    wanted = trainer.get("accelerator", "auto")
    if wanted in ("auto", "gpu", "cuda") and torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("cpu")


def coverage(data: DataModule) -> float:
    """The share of the records that could be read; those that nobody asked for do not count."""
    usable = sum(file.num_records for file in data.files)
    bad = sum(not isinstance(error, LeftOut) for error in data.skipped)
    return usable / (usable + bad)
