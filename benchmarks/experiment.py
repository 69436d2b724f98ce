"""The model, the data and the optimizer of a config, without the loop around them."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor
from torch.optim import Optimizer

from benchmarks.measure import EVERY_NODE, Settings
from benchmarks.variants import Forward, Variant
from graphfold.batching import Batch
from graphfold.datasets.data_module import DataModule
from graphfold.errors import ConfigError
from graphfold.layers import GraphModel
from graphfold.layers.model import Model
from graphfold.loader import BatchSampler, GraphLoader
from graphfold.recipe import make_loop
from graphfold.training.config.build_model import decide
from graphfold.training.config.compose import compose
from graphfold.training.config.training_config import TrainingConfig
from graphfold.training.loop.checks import choose_sharing
from graphfold.training.run.initial_weights import make_model


@dataclass(frozen=True, eq=False)
class Experiment:
    """The model and data that `graphfold train` would train."""

    config: TrainingConfig
    data: DataModule
    model: Model
    optimizer: Optimizer
    device: str = "cpu"

    @property
    def graph_model(self) -> GraphModel:
        """The model, for benchmarks that need one of cells.

        Raises:
            ConfigError: if it is another one.
        """
        if not isinstance(self.model, GraphModel):
            raise ConfigError(
                f"this benchmark measures a model of cells, not a {type(self.model).__name__}. "
                "Choose another model."
            )
        return self.model

    def loader(self, epoch: int = 0) -> GraphLoader:
        """The batches of an epoch, planned as they are asked for."""
        model, share = self.model, choose_sharing(self.data, self.model, training=True)
        loader = self.data.loader("train", model.passes, share=share, lowering=model.lowering)
        assert isinstance(loader.sampler, BatchSampler)
        loader.sampler.set_epoch(epoch)
        return loader

    def batches(self, count: int) -> list[Batch]:
        """The first batches of the first epoch, on the device; fewer if there are no more."""
        return [batch.to(self.device) for batch in islice(self.loader(), count)]

    def plan(self, batch: Batch, share: bool) -> Batch:
        """The batch with a plan that computes equal nodes once, or every node."""
        dag = batch.dag.to("cpu")
        return self.model.plan(dag, share=share).to(self.device)

    def step(self, batch: Batch) -> None:
        """A training step: forward, loss of all rows, backward, optimizer."""
        self.loss(self.model(batch), batch).backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        self.optimizer.zero_grad()

    def loss(self, raw: Tensor, batch: Batch) -> Tensor:
        """The sum over the rows, the mean over the graphs."""
        head = self.model.head
        return head.losses(raw, head.target_rows(batch.dag)).sum() / batch.num_graphs

    def variant(
        self, forward: Forward, batches: Sequence[Batch], computes: str = EVERY_NODE
    ) -> Variant:
        """A way to train the model on some batches, whose plans compute what `computes` says."""
        return Variant(
            forward,
            batches,
            sum(batch.num_graphs for batch in batches),
            self.loss,
            list(self.model.parameters()),
            self.model,
            self.optimizer,
            computes,
        )

    def double(self) -> Experiment:
        """A copy of the model in double precision, to compare results; its optimizer is not."""
        return replace(self, model=copy.deepcopy(self.model).double())


def load_data(overrides: Sequence[str], config_dir: Path | None = None) -> DataModule:
    """The prepared data of a config.

    Raises:
        GraphfoldError: if the config or the data cannot be used.
    """
    data = DataModule(**compose(overrides, config_dir).config.data)
    data.prepare()
    return data


def load_experiment(
    overrides: Sequence[str],
    data: DataModule | None = None,
    device: str = "cpu",
    config_dir: Path | None = None,
) -> Experiment:
    """The experiment of a config, freshly initialised.

    Args:
        overrides: of the config, as for training.
        data: prepared data of such a config, if they are there already.
        device: where the model and its batches are.
        config_dir: a further folder of config files.

    Raises:
        GraphfoldError: if the config or the data cannot be used.
    """
    config = compose(overrides, config_dir).config
    data = load_data(overrides, config_dir) if data is None else data
    data.batch_size = config.settings.batch_size
    config = decide(config, data)
    model = make_model(config, data)
    loop = make_loop(config, model, data)
    loop.begin(torch.device(device))
    return Experiment(config, data, model, loop.optimizer, device)


def load_sized(
    own: Sequence[str], sizes: tuple[int, int], settings: Settings, data: DataModule | None = None
) -> Experiment:
    """The experiment of a benchmark at one width and batch size.

    Args:
        own: the overrides of the benchmark; the user's come last.
        sizes: (hidden size, batch size).
        settings: the user's.
        data: as in `load_experiment`, as are the errors.
    """
    sized = (f"model.hidden_size={sizes[0]}", f"data.batch_size={sizes[1]}")
    overrides = [*own, *sized, *settings.overrides]
    return load_experiment(overrides, data, settings.device, settings.config_dir)
