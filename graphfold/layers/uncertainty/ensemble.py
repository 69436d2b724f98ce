"""Ensemble: several models with one averaged prediction."""

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

#: The tasks of heads for which members give a standard deviation.
_WITH_DEVIATION = ("regression", "binary", "multiclass")


def mixture(members: Sequence[Predicted], task: str) -> Predicted:
    """The mean over members, of values or of probabilities, and their standard deviation.

    It is the deviation of the mixture of the members, Lakshminarayanan et al. (2017),
    https://arxiv.org/abs/1612.01474, section 2.4, where σ_m is the deviation that member m predicts
    (0 if it predicts none), and μ_m its number or the probability of a class:

        σ² = mean σ_m² + Σ (μ_m - mean μ)² / (M - 1)

    Differences from the paper: M - 1 in place of M, since the members are a sample of many possible
    ones; μ_m are the numbers before they are cut off at the limits of predictions, since at a limit
    members agree without knowledge. The ends of intervals are means, and so are all numbers of
    other tasks. "limit" is the side, -1 or 1, to which the mean would move if no member were cut
    off, or 0.

    Args:
        members: the predictions of each member for the same rows.
        task: the task of the head.
    """
    parts = {n: torch.stack([m.parts[n] for m in members]).mean(0) for n in members[0].parts}
    value = torch.stack([member.value for member in members]).mean(0)
    if task not in _WITH_DEVIATION:
        return Predicted(value, parts)
    each = torch.stack([member.unlimited for member in members])
    variance = each.var(0, correction=min(1, len(members) - 1))  # 0 for one member
    if "std" in parts:
        each_std = torch.stack([member.parts["std"] for member in members])
        variance = variance + each_std.square().mean(0)
    parts["std"] = variance.sqrt()
    if "limit" in parts:
        parts["limit"] = (each.mean(0) - value).sign().nan_to_num()
    return Predicted(value, parts)


class Ensemble(Model):
    """Averages the predictions of models of the same structure; see `mixture`.

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
        """The parts of a member, and the deviation of the mixture."""
        parts = self.models[0].parts
        has_std = "std" in parts or self.head.task not in _WITH_DEVIATION
        return parts if has_std else (*parts, "std")

    @property
    def networks(self) -> list[Any]:
        """The networks of all members."""
        return [member.network for member in self.models]

    @property
    def passes(self) -> tuple[Pass, ...]:
        """The passes, which are the same for all members."""
        return self.models[0].passes

    @property
    def lowering(self) -> Lowering | None:
        """The lowering, which is the same for all members."""
        return self.models[0].lowering

    def state_parts(self) -> list[Callable[..., Any]]:
        """The state parts of all members."""
        return list(chain.from_iterable(member.state_parts() for member in self.models))

    def states(self, batch: Batch) -> States:
        """The states of all members; the fields have the number of the member, such as 0.h."""
        return cast(States, MemberStates([member.states(batch) for member in self.models]))

    def rows(self, states: States, batch: Batch) -> Tensor:
        """[num_rows, num_members, ...] the rows of all members."""
        each = cast(MemberStates, states).members
        pairs = zip(self.models, each, strict=True)
        return torch.stack([member.rows(states, batch) for member, states in pairs], dim=1)

    def outputs(self, rows: Tensor) -> Tensor:
        """[num_rows, num_members, ...] the raw outputs of every member."""
        pairs = zip(self.models, rows.unbind(1), strict=True)
        return torch.stack([member.outputs(rows) for member, rows in pairs], dim=1)

    def predict(self, raw: Tensor) -> Predicted:
        """The mixture of the members."""
        pairs = zip(self.models, raw.unbind(1), strict=True)
        return mixture([member.predict(raw) for member, raw in pairs], self.head.task)

    def losses(self, raw: Tensor, targets: Tensor) -> Tensor:
        """[num_rows] the means of the losses of the members."""
        pairs = zip(self.models, raw.unbind(1), strict=True)
        return torch.stack([member.losses(raw, targets) for member, raw in pairs]).mean(0)


class MemberStates(Mapping[str, Tensor]):
    """The states of the nodes of a batch in all members of an ensemble."""

    def __init__(self, members: Sequence[States]) -> None:
        self.members = list(members)

    def __getitem__(self, field: str) -> Tensor:
        number, _, name = field.partition(".")
        return self.members[int(number)][name]

    def __iter__(self) -> Iterator[str]:
        return (f"{n}.{name}" for n, states in enumerate(self.members) for name in states)

    def __len__(self) -> int:
        return sum(map(len, self.members))


def members_of(model: Model) -> list[Model]:
    """The members of an ensemble; any other model itself."""
    return model.models if isinstance(model, Ensemble) else [model]
