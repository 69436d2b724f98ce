"""Explained: the numbers that are divided among the parts of a graph, one per graph and target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain

import torch
from torch import Tensor

from graphfold.batching import Batch
from graphfold.errors import ConfigError
from graphfold.layers import GraphModel, Head, Model
from graphfold.layers.uncertainty.ensemble import Ensemble
from graphfold.layers.uncertainty.outer_model import OuterModel


def members_of(model: Model) -> list[GraphModel]:
    """The networks whose predictions a model averages: one, or those of an ensemble.

    What is around a network is left out: intervals change no number, calibration only how sure a
    class is, and of samples with dropout the network without it is explained.

    Raises:
        ConfigError: if there is a model that has no inputs of nodes.
    """
    if isinstance(model, OuterModel):
        return members_of(model.inner)
    if isinstance(model, Ensemble):
        return list(chain.from_iterable(members_of(member) for member in model.models))
    if not isinstance(model, GraphModel):
        raise ConfigError(
            f"a {type(model).__name__} cannot be explained: it has no inputs of atoms, bonds or "
            "nodes that its prediction can be divided among. Train a network, such as model=dmpnn, "
            "or leave --explain out."
        )
    return [model]


class Explained:
    """The explained numbers of a batch as a function of the inputs of its nodes.

    A number is explained in its own units; yes or no, and the predicted one of several classes, as
    its log-odds. Of a model that predicts every node, the root's prediction is explained.

    Args:
        model: the network.
        batch: the graphs, planned without sharing.
        targets: the names of the targets; None for all.

    Attributes:
        probabilities: [num_graphs, num_classes] of several classes; None without classes.
        classes: [num_graphs] the class that is explained.

    Raises:
        ConfigError: if there is no single prediction for each graph.
    """

    def __init__(
        self, model: GraphModel, batch: Batch, targets: Sequence[str] | None = None
    ) -> None:
        if model.lowering is not None:
            raise ConfigError(
                "the model adds nodes of its own (a virtual node, pairs), whose share of the "
                "prediction is no atom's or bond's. Leave --explain out."
            )
        if model.head.level != "graph" and bool((batch.dag.output_ptr.diff() != 1).any()):
            raise ConfigError(
                "the model predicts several nodes of each graph, and there is no single "
                "prediction to explain. Leave --explain out."
            )
        self.model = model
        self.batch = batch
        names = model.head.targets
        self._columns = [names.index(name) for name in targets or names]
        self.inputs = {name: x.detach() for name, x in model.encoder(batch.dag).items()}
        self.probabilities: Tensor | None = None
        self.classes: Tensor | None = None
        if model.head.task == "multiclass":
            with torch.no_grad():
                self.probabilities = self._raw(self.inputs, batch).softmax(1)
            self.classes = self.probabilities.argmax(1)

    @staticmethod
    def of_members(
        members: Sequence[GraphModel], batch: Batch, targets: Sequence[str] | None = None
    ) -> list[Explained]:
        """One for each member of an ensemble; the class is the one that all of them predict."""
        each = [Explained(member, batch, targets) for member in members]
        found = [one.probabilities for one in each if one.probabilities is not None]
        if found:
            together = torch.stack(found).mean(0).argmax(1)
            for one in each:
                one.classes = together
        return each

    def __call__(self, inputs: Mapping[str, Tensor], batch: Batch | None = None) -> Tensor:
        """[num_graphs, num_targets] the explained numbers.

        Args:
            inputs: type name -> [num_nodes_of_type, width], in node order.
            batch: the same graphs and plan with other features of edges.
        """
        raw = self._raw(inputs, batch or self.batch)
        if self.classes is not None:
            return _log_odds(raw, self.classes)
        numbers = raw if self.model.head.task == "binary" else self.model.head.decode(raw)
        _require_one_each(self.model.head, numbers)
        return numbers[:, self._columns]

    @torch.no_grad()
    def base(self) -> Tensor:
        """[num_graphs, num_targets] the explained numbers where no node has any input."""
        return self({name: torch.zeros_like(x) for name, x in self.inputs.items()})

    def _raw(self, inputs: Mapping[str, Tensor], batch: Batch) -> Tensor:
        """[num_graphs, ...] the raw outputs of the head."""
        rows = self.model.rows(self.model.states_from(batch, inputs), batch)
        if self.model.head.level == "node":
            rows = rows.index_select(0, batch.dag.output_index)
        raw: Tensor = self.model.head(rows)
        return raw


def _log_odds(logits: Tensor, classes: Tensor) -> Tensor:
    """[num_rows, 1] log p / (1 - p) of one class in each row."""
    chosen = torch.zeros_like(logits, dtype=torch.bool)
    chosen[torch.arange(len(logits), device=logits.device), classes] = True
    others = logits.masked_fill(chosen, -torch.inf).logsumexp(1, keepdim=True)
    return logits[chosen].unsqueeze(1) - others


def _require_one_each(head: Head, numbers: Tensor) -> None:
    if numbers.dim() != 2 or numbers.shape[1] != len(head.targets):
        raise ConfigError(
            f"{type(head).__name__} gives {list(numbers.shape[1:])} numbers for "
            f"{len(head.targets)} targets, and there is no single one to explain. Leave --explain "
            "out."
        )
