"""The model, the data and the optimizer of a config, ready to take steps outside of Lightning."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeAlias

from torch import Tensor
from torch.optim import Optimizer

from graphfold.batching import Batch
from graphfold.datasets.loading.data_module import DataModule
from graphfold.datasets.loading.loader import GraphLoader
from graphfold.datasets.loading.sampler import BatchSampler
from graphfold.errors import ConfigError
from graphfold.layers import GraphModel
from graphfold.layers.model import Model
from graphfold.training.config.compose import compose
from graphfold.training.loop.sharing import choose_sharing
from graphfold.training.loop.train import make_learner

#: From a batch to the raw outputs of its rows.
Forward: TypeAlias = Callable[[Batch], Tensor]


@dataclass(frozen=True, eq=False)
class Trainable:
    """What `graphfold train` would train, without Lightning around it."""

    config: Mapping[str, Any]
    data: DataModule
    model: Model
    optimizer: Optimizer

    def loader(self, epoch: int = 0) -> GraphLoader:
        """The batches of an epoch, planned as they are asked for."""
        share = choose_sharing(self.data, self.model, training=True)
        model = self.model
        loader = self.data.loader("train", model.passes, share=share, lowering=model.lowering)
        assert isinstance(loader.sampler, BatchSampler)
        loader.sampler.set_epoch(epoch)
        return loader

    def batches(self, count: int) -> list[Batch]:
        """The first batches of the first epoch; fewer if there are no more."""
        return list(islice(self.loader(), count))

    def step(self, batch: Batch, forward: Forward | None = None) -> None:
        """A training step: forward, loss of all rows, backward, optimizer."""
        self.loss((forward or self.model)(batch), batch).backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        self.optimizer.zero_grad()

    def loss(self, raw: Tensor, batch: Batch) -> Tensor:
        """The sum over the rows, the mean over the graphs."""
        head = self.model.head
        return head.losses(raw, head.target_rows(batch.dag)).sum() / batch.num_graphs


class Experiment(Trainable):
    """The same with a model of cells."""

    model: GraphModel


def load_data(overrides: Sequence[str]) -> DataModule:
    """The prepared data of a config.

    Raises:
        GraphfoldError: if the config or the data cannot be used.
    """
    data = DataModule(**compose(overrides).config["data"])
    data.prepare()
    return data


def load_trainable(overrides: Sequence[str], data: DataModule | None = None) -> Trainable:
    """What a config says, freshly initialised.

    Args:
        overrides: of the config, as for training.
        data: prepared data of such a config, if they are there already.

    Raises:
        GraphfoldError: if the config or the data cannot be used.
    """
    config = compose(overrides).config
    data = load_data(overrides) if data is None else data
    data.batch_size = config["data"]["batch_size"]
    learner, complete = make_learner(config, data)
    made = learner.configure_optimizers()
    optimizer = made["optimizer"] if isinstance(made, dict) else made
    return Trainable(complete, data, learner.model, optimizer)


def load_experiment(overrides: Sequence[str], data: DataModule | None = None) -> Experiment:
    """The same for a model of cells; arguments and errors as above."""
    found = load_trainable(overrides, data)
    if not isinstance(found.model, GraphModel):
        raise ConfigError(
            f"this benchmark measures a model of cells, not a {type(found.model).__name__}. "
            "Choose another model."
        )
    return Experiment(found.config, found.data, found.model, found.optimizer)


def load_sized(
    own: Sequence[str],
    hidden_size: int,
    batch_size: int,
    overrides: Sequence[str],
    data: DataModule | None = None,
) -> Experiment:
    """The experiment of a benchmark at one width and batch size.

    Args:
        own: the overrides of the benchmark.
        hidden_size: of the model.
        batch_size: of the data.
        overrides: the user's, which come last.
        data: as in `load_experiment`, as are the errors.
    """
    sizes = (f"model.hidden_size={hidden_size}", f"data.batch_size={batch_size}")
    return load_experiment([*own, *sizes, *overrides], data)


def total_graphs(batches: Sequence[Batch]) -> int:
    """How many graphs some batches hold."""
    return sum(batch.num_graphs for batch in batches)
