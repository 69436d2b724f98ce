"""CommitteeModel: the mean of several fitted models."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn

from graphfold.batching import Batch, States
from graphfold.dag import Schema, TypedDAG
from graphfold.errors import ConfigError
from graphfold.layers.assembly import build, require_kind
from graphfold.layers.baselines.fitted_model import FittedModel
from graphfold.layers.heads.head import Head


class CommitteeModel(FittedModel):
    """Says the mean of what its members say, each fitted to all of the training part.

    Members that err in different ways, such as trees and a kernel, err less together (Krogh and
    Vedelsby 1995). Numbers are averaged as they are, probabilities as logits or logarithms.

    Args:
        schema: the schema of the graphs.
        members: make the models, each a `FittedModel`.
        head: makes the `Head`.
        scalers: target name -> (mean, standard deviation) of the training part.

    Raises:
        ConfigError: if there are no members, or one cannot be made.
    """

    def __init__(
        self,
        schema: Schema,
        members: Sequence[Callable[..., FittedModel]],
        head: Callable[..., Head],
        scalers: Mapping[str, tuple[float, float]] | None = None,
    ) -> None:
        super().__init__(schema, head, scalers)
        if not members:
            raise ConfigError("a committee has no members. Set model.members.")
        made = [build(item, schema=schema, head=head, scalers=scalers) for item in members]
        for number, member in enumerate(made):
            require_kind(member, FittedModel, f"model.members[{number}]")
        self.members = nn.ModuleList(made)

    def fit(self, dag: TypedDAG) -> None:
        """Fits every member."""
        for member in self.models:
            member.fit(dag)

    def rows(self, states: States, batch: Batch) -> Tensor:
        """[num_graphs, ...] the mean of the members' rows."""
        return torch.stack([member.rows(states, batch) for member in self.models]).mean(0)

    @property
    def models(self) -> list[FittedModel]:
        """The members."""
        return [member for member in self.members if isinstance(member, FittedModel)]
