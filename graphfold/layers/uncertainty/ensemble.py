"""Ensemble: several models that predict together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, cast

import torch
from torch import Tensor, nn

from graphfold.batching import Batch, Pass, States
from graphfold.layers.heads.head import Head
from graphfold.layers.model import Lowering, Model
from graphfold.layers.uncertainty.ensemble_head import EnsembleHead


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
