"""Ensemble: models whose predictions are averaged."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, cast

import torch
from torch import Tensor, nn

from graphfold.batching import Batch, Pass, States
from graphfold.layers.heads.eval_rows import Predicted
from graphfold.layers.heads.head import Head
from graphfold.layers.model import Lowering, Model

#: The tasks of heads whose deviation the members tell.
_WITH_DEVIATION = ("regression", "binary", "multiclass")


def mixture(members: Sequence[Predicted], task: str) -> Predicted:
    """The mean over members, of values or of probabilities, and their standard deviation.

    The deviation is that of the mixture of the members, Lakshminarayanan et al. (2017),
    https://arxiv.org/abs/1612.01474, section 2.4, where members with σ_m of their own have

        σ² = mean σ_m² + Σ (μ_m - mean μ)² / (M - 1)

    and the first term is absent for others; of classes it is that of the probability. Differences
    from the paper: M - 1 in place of M, for members are a few out of many that might have been
    trained; and μ_m are the numbers before they are cut off at the limits of predictions, for at a
    limit members agree that know nothing. Ends of intervals are means, too; of a task other than
    these all numbers are. "limit" is the side, -1 or 1, to which the mean would move if no member
    were cut off, or 0.

    Args:
        members: the predictions of each member for the same rows.
        task: that of the head.
    """
    parts = {n: torch.stack([m.parts[n] for m in members]).mean(0) for n in members[0].parts}
    value = torch.stack([member.value for member in members]).mean(0)
    if task not in _WITH_DEVIATION:
        return Predicted(value, parts)
    each = torch.stack([member.unlimited for member in members])
    variance = each.var(0, correction=min(1, len(members) - 1))  # one member is at no distance
    if "std" in parts:
        own = torch.stack([member.parts["std"] for member in members])
        variance = variance + own.square().mean(0)
    parts["std"] = variance.sqrt()
    if "limit" in parts:  # on which side members were cut off, if any was
        parts["limit"] = (each.mean(0) - value).sign().nan_to_num()
    return Predicted(value, parts)


class Ensemble(Model):
    """Models of equal make and different weights, whose predictions are averaged; see `mixture`.

    The loss is the mean of the losses.

    Args:
        members: the models.

    Shape:
        returns: [num_rows, num_members, ...] raw outputs
    """

    def __init__(self, members: Sequence[Model]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)

    @property
    def models(self) -> list[Model]:
        """The members."""
        return cast("list[Model]", list(self.members))

    @property
    def head(self) -> Head:  # type: ignore[override]
        """The head of the first member."""
        return self.models[0].head

    @property
    def parts(self) -> tuple[str, ...]:
        """Those of a member, and the deviation of the mixture."""
        own = self.models[0].parts
        return own if self.head.task not in _WITH_DEVIATION or "std" in own else (*own, "std")

    @property
    def networks(self) -> list[Any]:
        """Those of all members."""
        return [member.network for member in self.models]

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

    def outputs(self, rows: Tensor) -> Tensor:
        """[num_rows, num_members, ...] the raw outputs of every member."""
        pairs = zip(self.models, rows.unbind(1), strict=True)
        return torch.stack([member.outputs(own) for member, own in pairs], dim=1)

    def predict(self, raw: Tensor) -> Predicted:
        """The mixture of the members."""
        pairs = zip(self.models, raw.unbind(1), strict=True)
        return mixture([member.predict(own) for member, own in pairs], self.models[0].head.task)

    def losses(self, raw: Tensor, targets: Tensor) -> Tensor:
        """[num_rows] the means of the losses of the members."""
        pairs = zip(self.models, raw.unbind(1), strict=True)
        return torch.stack([member.losses(own, targets) for member, own in pairs]).mean(0)


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


def members_of(model: Model) -> list[Model]:
    """The models whose predictions a model averages; of a single one, itself."""
    return model.models if isinstance(model, Ensemble) else [model]
