"""Models around models: an ensemble of several, and one that is run several times with dropout."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any, cast

import torch
from torch import Tensor, nn

from graphfold.batching import Batch, Pass, States
from graphfold.errors import ConfigError
from graphfold.layers.dropout import drops_out
from graphfold.layers.heads.head import Head
from graphfold.layers.model import Lowering, Model
from graphfold.layers.uncertainty.outer_head import EnsembleHead


class OuterModel(Model):
    """Base of models that change what becomes of the rows of another one.

    Args:
        inner: the model inside.
    """

    def __init__(self, inner: Model) -> None:
        super().__init__()
        self.inner = inner
        self.draws = inner.draws

    @property
    def network(self) -> Any:
        """The network of the inner model."""
        return self.inner.network

    @property
    def core(self) -> Model:
        """The model that computes the rows."""
        return self.inner.core

    @property
    def passes(self) -> tuple[Pass, ...]:
        """The passes of the inner model."""
        return self.inner.passes

    @property
    def lowering(self) -> Lowering | None:
        """That of the inner model."""
        return self.inner.lowering

    def forward(self, batch: Batch) -> Tensor:
        """The raw outputs of the inner model."""
        raw: Tensor = self.inner(batch)
        return raw

    def state_parts(self) -> list[Callable[..., Any]]:
        """Those of the inner model."""
        return self.inner.state_parts()

    def states(self, batch: Batch) -> States:
        """The states of the inner model."""
        return self.inner.states(batch)

    def rows(self, states: States, batch: Batch) -> Tensor:
        """The rows of the inner model."""
        return self.inner.rows(states, batch)


class Ensemble(Model):
    """Models of equal make and different weights, whose predictions are averaged.

    Args:
        members: the models.

    Attributes:
        correction: what the divisor of deviations lacks of their number, see `EnsembleHead`.
        network: the networks of all members: what is set is set in each, what is asked for is that
            of the first.
    """

    def __init__(self, members: Sequence[Model]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)
        self.correction = 1

    @property
    def network(self) -> Any:
        """See the class."""
        return Networks([member.network for member in self.models])

    @property
    def head(self) -> Head:  # type: ignore[override]
        """The heads of all members."""
        return EnsembleHead([member.head for member in self.models], self.correction)

    @property
    def passes(self) -> tuple[Pass, ...]:
        """The passes, which all members have."""
        return self.models[0].passes

    @property
    def lowering(self) -> Lowering | None:
        """That of every member."""
        return self.models[0].lowering

    def state_parts(self) -> list[Callable[..., Any]]:
        """Those of all members."""
        return list(chain.from_iterable(member.state_parts() for member in self.models))

    def states(self, batch: Batch) -> States:
        """The states of all members; a field is named with its member, as 0.h."""
        return cast(States, MemberStates([member.states(batch) for member in self.models]))

    def rows(self, states: States, batch: Batch) -> Tensor:
        """[num_rows, num_members, ...] the rows of all members."""
        each = cast(MemberStates, states).members
        pairs = zip(self.models, each, strict=True)
        return torch.stack([member.rows(own, batch) for member, own in pairs], dim=1)

    @property
    def models(self) -> list[Model]:
        """The members."""
        return cast("list[Model]", list(self.members))


class MemberStates(Mapping[str, Tensor]):
    """The states that the members of an ensemble give to the nodes of a batch."""

    def __init__(self, members: Sequence[States]) -> None:
        self.members = list(members)

    def __getitem__(self, field: str) -> Tensor:
        number, _, name = field.partition(".")
        return self.members[int(number)][name]

    def __iter__(self) -> Iterator[str]:
        return (f"{n}.{name}" for n, own in enumerate(self.members) for name in own)

    def __len__(self) -> int:
        return sum(map(len, self.members))


class Networks:
    """Networks with common settings."""

    def __init__(self, networks: Sequence[Any]) -> None:
        self.__dict__["networks"] = tuple(networks)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["networks"][0], name)

    def __setattr__(self, name: str, value: Any) -> None:
        for network in self.__dict__["networks"]:
            setattr(network, name, value)


#: Whatever the process has drawn before, a batch is predicted with the same masks.
_SEED = 0


class DropoutSamples(OuterModel):
    """Predicts with the mean and the deviation of several runs of a model with its dropout on.

    Monte Carlo dropout, Gal and Ghahramani (2016), https://arxiv.org/abs/1506.02142. All else, such
    as batch normalisation, is as in evaluation. The masks of a batch are the same every time.

    Args:
        inner: the model; in an ensemble every member is run so often.
        num_samples: how often it is run.
        correction: what the divisor of deviations lacks of that, see `EnsembleHead`.

    Raises:
        ConfigError: if nothing in the model drops out.
    """

    def __init__(self, inner: Model, num_samples: int, correction: int = 1) -> None:
        super().__init__(inner)
        self.draws = True
        self.num_samples = num_samples
        self.correction = correction
        if not self._dropouts():
            raise ConfigError(
                "dropout_samples runs a model with its dropout on, but nothing in this one drops "
                "out. Train it with model.dropout or model.head.dropout above 0, or leave "
                "dropout_samples out."
            )

    @property
    def head(self) -> Head:  # type: ignore[override]
        """The head of all samples."""
        return EnsembleHead([self.inner.head] * self.num_samples, self.correction)

    def forward(self, batch: Batch) -> Tensor:
        """[num_rows, num_samples, ...] the raw outputs of all samples."""
        device = batch.dag.op_type.device
        devices = [device] if device.type == "cuda" else []
        with self._dropping(), torch.random.fork_rng(devices):
            torch.manual_seed(_SEED)
            return torch.stack([self.inner(batch) for _ in range(self.num_samples)], dim=1)

    def _dropouts(self) -> list[nn.Module]:
        return list(filter(drops_out, self.inner.modules()))

    @contextmanager
    def _dropping(self) -> Iterator[None]:
        """Has dropout on, and nothing else of what training has."""
        modes = [(module, module.training) for module in self._dropouts()]
        for module, _ in modes:
            module.training = True
        try:
            yield
        finally:
            for module, mode in modes:
                module.training = mode
