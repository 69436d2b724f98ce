"""Ensemble: models whose predictions are averaged; one of them may be run several times."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import chain
from typing import Any, cast

import torch
from torch import Tensor, nn

from graphfold.batching import Batch, Pass, States
from graphfold.errors import ConfigError
from graphfold.layers.dropout import drops_out
from graphfold.layers.heads.eval_rows import Predicted
from graphfold.layers.heads.head import Head
from graphfold.layers.model import Lowering, Model, attribute_set

#: The tasks of heads whose deviation the members tell.
_WITH_DEVIATION = ("regression", "binary", "multiclass")

#: Whatever the process has drawn before, a batch is predicted with the same masks.
_SEED = 0


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
        members: the predictions of each member, or of each run of one, for the same rows.
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

    Each may be run several times with its dropout on: Monte Carlo dropout, Gal and Ghahramani
    (2016), https://arxiv.org/abs/1506.02142. All else, such as batch normalisation, is as in
    evaluation. The masks of a batch are the same every time. The loss is the mean of the losses.

    Args:
        members: the models.
        num_samples: how often all of them are run with dropout; 0 for once, without.

    Shape:
        returns: [num_rows, num_members, ...] raw outputs, or [num_rows, num_samples, num_members,
            ...] of samples

    Raises:
        ConfigError: if there are to be samples, and nothing in the models drops out.
    """

    def __init__(self, members: Sequence[Model], num_samples: int = 0) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)
        self.num_samples = num_samples
        self.draws = num_samples > 0
        if num_samples and not self._dropouts():
            raise ConfigError(
                "dropout_samples runs a model with its dropout on, but nothing in this one drops "
                "out. Train it with model.dropout or model.head.dropout above 0, or leave "
                "dropout_samples out."
            )

    @property
    def models(self) -> list[Model]:
        """The members."""
        return cast("list[Model]", list(self.members))

    @property
    def head(self) -> Head:  # type: ignore[override]
        """The head of the first member, for what all of them predict."""
        head = self.models[0].head
        return head.with_parts("std") if head.task in _WITH_DEVIATION else head

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

    def forward(self, batch: Batch) -> Tensor:
        """See the class."""
        if not self.num_samples:
            return super().forward(batch)
        device = batch.dag.op_type.device
        devices = [device] if device.type == "cuda" else []
        with self._dropping(), torch.random.fork_rng(devices):
            torch.manual_seed(_SEED)
            samples = [super(Ensemble, self).forward(batch) for _ in range(self.num_samples)]
        return torch.stack(samples, dim=1)

    def predict(self, raw: Tensor) -> Predicted:
        """The mixture of the members, and of samples the mixture of these."""
        if not self.num_samples:
            return self._predict_once(raw)
        samples = [self._predict_once(own) for own in raw.unbind(1)]
        return mixture(samples, self.models[0].head.task)

    def losses(self, raw: Tensor, targets: Tensor) -> Tensor:
        """[num_rows] the means of the losses of the members, and of the samples."""
        if not self.num_samples:
            return self._losses_once(raw, targets)
        return torch.stack([self._losses_once(own, targets) for own in raw.unbind(1)]).mean(0)

    def _predict_once(self, raw: Tensor) -> Predicted:
        pairs = zip(self.models, raw.unbind(1), strict=True)
        each = [member.predict(own) for member, own in pairs]
        if self.num_samples and len(each) == 1:
            return each[0]  # the samples are what is averaged
        return mixture(each, self.models[0].head.task)

    def _losses_once(self, raw: Tensor, targets: Tensor) -> Tensor:
        pairs = zip(self.models, raw.unbind(1), strict=True)
        return torch.stack([member.losses(own, targets) for member, own in pairs]).mean(0)

    def _dropouts(self) -> list[nn.Module]:
        return list(filter(drops_out, self.modules()))

    def _dropping(self) -> AbstractContextManager[None]:
        """Has dropout on inside, and nothing else of what training has."""
        return attribute_set(self._dropouts(), "training", True)


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
