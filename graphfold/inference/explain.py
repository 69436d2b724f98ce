"""Contributions of atoms and words to a prediction, by integrated gradients.

Sundararajan et al. (2017), https://arxiv.org/abs/1703.01365, equation 1: the contribution of an
input is the mean of its gradient along the straight path from zero inputs, times the input. The
inputs are the encoder's vectors of the nodes, each times a scale, one for each node, from 0 to 1;
so the contribution of a node is the mean gradient of its scale. The contributions of a graph add up
to its prediction less the prediction from zero inputs, its base (their proposition 1).

A prediction is explained in its own units; yes or no, and the predicted one of several classes, as
its log-odds. The prediction for a tree whose nodes are all predicted is that of its root, and the
prediction of an ensemble is the mean of its members.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional

from graphfold.batching import Batch
from graphfold.dag import TypedDAG
from graphfold.errors import ConfigError
from graphfold.inference.prediction import node_facts, unwrapped
from graphfold.layers import GraphModel, Model
from graphfold.layers.heads.output_column import seven_digits
from graphfold.layers.uncertainty.ensemble import members_of
from graphfold.training.run.trained import TrainedModel

#: Numbers of steps along the path; the first one with which contributions add up is used.
STEPS = 16, 32, 64, 128, 256

#: The allowed error of the sum of a graph's contributions, relative to the sum of their sizes.
TOLERANCE = 0.02

#: Where directed bonds are nodes: their type, and the relation to the atom where one ends.
BOND, ARRIVES = "bond", "arrives"

#: [num_graphs, num_targets] the explained numbers, from the scale of each node, [num_nodes].
Numbers: TypeAlias = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Contributions:
    """The contributions of the nodes of one graph.

    Args:
        base: target -> the number without any input, to which the contributions are added.
        values: target -> type of nodes -> the contribution of each node.
        facts: type of nodes -> the type, span and text of each node.
    """

    base: Mapping[str, float]
    values: Mapping[str, Mapping[str, Sequence[float]]]
    facts: Mapping[str, Sequence[Mapping[str, Any]]]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; with one target its name is left out."""
        listed = {
            target: [
                {**node, "contribution": value}
                for name, values in by_type.items()
                for node, value in zip(self.facts[name], values, strict=True)
            ]
            for target, by_type in self.values.items()
        }
        return {"base": unwrapped(self.base), "contributions": unwrapped(listed)}

    def cells(self) -> Iterator[Any]:
        """The numbers and lists of `Explainer.columns`."""
        for target, by_type in self.values.items():
            yield self.base[target]
            yield from by_type.values()


class Explainer:
    """Computes the contribution of each node of a graph to a prediction.

    Where directed bonds are nodes, a bond counts for the atom where it begins.

    Args:
        trained: the model.
        targets: the names of the targets; None for all.

    Raises:
        ConfigError: if the model cannot be explained.
    """

    def __init__(self, trained: TrainedModel, targets: Sequence[str] | None = None) -> None:
        self.trained = trained
        self.members = _members(trained.model)
        self.targets = tuple(targets or trained.head.targets)
        encoders, relations = self.members[0].encoder.encoders, trained.schema.relations
        counted_for_atoms = {BOND} if any(r.name == ARRIVES for r in relations) else set()
        names = [node_type.name for node_type in trained.schema.types]
        self.types = [n for n in names if n in encoders and n not in counted_for_atoms]

    @property
    def columns(self) -> list[str]:
        """The columns of a table: TARGET_base and TARGET_TYPE_contributions, target by target."""
        parts = ["base", *(f"{name}_contributions" for name in self.types)]
        return [f"{target}_{part}" for target in self.targets for part in parts]

    def explain(self, dag: TypedDAG) -> Iterator[Contributions]:
        """The contributions to the prediction for each graph.

        Args:
            dag: the graphs as the adapter reads them.

        Raises:
            ConfigError: if there is no single prediction for each graph.
        """
        encoded = self.trained.spec.encode(dag)
        batch = self.members[0].plan(encoded, "depth", share=False).to(self.trained.device)
        if self.trained.head.level != "graph" and (batch.dag.output_ptr.diff() != 1).any():
            raise ConfigError(
                "the model predicts several nodes of each graph, and there is no single "
                "prediction to explain. Leave --explain out."
            )
        weight = next(self.members[0].parameters())
        ones = torch.ones(dag.num_nodes, dtype=weight.dtype, device=weight.device)
        base, values = integrated_gradients(self._numbers(batch, ones), ones, batch.dag)
        return self._by_graph(dag, seven_digits(base.cpu()), seven_digits(values.cpu()))

    def _numbers(self, batch: Batch, ones: Tensor) -> Numbers:
        """The explained numbers of a batch, as a function of scales."""
        with torch.no_grad():
            members = [_scaled_outputs(member, batch) for member in self.members]

        def outputs(scale: Tensor) -> Tensor:  # [num_members, num_graphs, num_outputs]
            return torch.stack([member(scale) for member in members])

        if self.trained.head.task == "multiclass":
            with torch.no_grad():
                chosen = outputs(ones).softmax(2).mean(0).argmax(1)
            return lambda scale: _log_odds(outputs(scale), chosen).mean(0)
        columns = [self.trained.head.targets.index(name) for name in self.targets]
        return lambda scale: outputs(scale).mean(0)[:, columns]

    def _by_graph(
        self, dag: TypedDAG, base: Sequence[Any], values: Sequence[Any]
    ) -> Iterator[Contributions]:
        facts = list(node_facts(dag))
        for graph, (start, end) in enumerate(pairwise(dag.node_ptr.tolist())):
            nodes = {
                name: [node for node in range(start, end) if facts[node]["type"] == name]
                for name in self.types
            }
            yield Contributions(
                dict(zip(self.targets, base[graph], strict=True)),
                {
                    target: {name: [values[n][k] for n in nodes[name]] for name in nodes}
                    for k, target in enumerate(self.targets)
                },
                {name: [facts[node] for node in nodes[name]] for name in nodes},
            )


def _members(model: Model) -> list[GraphModel]:
    """The members of an ensemble, or the model; raises ConfigError for models without them."""
    members = []
    for member in members_of(model):
        if not isinstance(member, GraphModel) or member.lowering is not None:
            raise ConfigError(
                f"this {type(member).__name__} cannot be explained: its prediction cannot be "
                "divided among atoms, bonds or nodes of the data alone. Leave --explain out."
            )
        members.append(member)
    return members


def _scaled_outputs(model: GraphModel, batch: Batch) -> Callable[[Tensor], Tensor]:
    """[num_graphs, num_outputs] numbers in their units or logits, as a function of scales."""
    inputs = model.encoder(batch.dag)
    nodes = {name: batch.dag.nodes_of_type(name) for name in inputs}
    if BOND in nodes and ARRIVES in batch.dag.relations:
        nodes[BOND] = first_atoms(batch.dag)

    def outputs(scale: Tensor) -> Tensor:
        scaled = {name: x * scale[nodes[name]].unsqueeze(1) for name, x in inputs.items()}
        rows = model.rows(model.states_from(batch, scaled), batch)
        if model.head.level == "node":
            rows = rows.index_select(0, batch.dag.output_index)
        raw: Tensor = model.head(rows)
        numbers = model.head.predict(raw).value if model.head.task == "regression" else raw
        return numbers.view(len(raw), -1)

    return outputs


def first_atoms(dag: TypedDAG) -> Tensor:
    """[num_bonds] the atom where each directed bond begins.

    The second direction of a bond follows the first, so it ends where the first one begins.
    """
    arrives = dag.relations[ARRIVES]
    atoms = torch.arange(dag.num_nodes, device=arrives.index.device)
    end = torch.zeros_like(atoms)
    end[arrives.index] = atoms.repeat_interleave(arrives.ptr.diff())
    return end[dag.nodes_of_type(BOND)].view(-1, 2).flip(1).flatten()


def _log_odds(logits: Tensor, classes: Tensor) -> Tensor:
    """[num_members, num_graphs, 1] log p / (1 - p) of one class of each graph."""
    is_chosen = functional.one_hot(classes, logits.shape[2]).bool()
    others = logits.masked_fill(is_chosen, -torch.inf).logsumexp(2)
    return (logits[:, is_chosen] - others).unsqueeze(2)


def integrated_gradients(numbers: Numbers, ones: Tensor, dag: TypedDAG) -> tuple[Tensor, Tensor]:
    """[num_graphs, num_targets] numbers of zero inputs, and [num_nodes, num_targets] contributions.

    By the midpoint rule, with more steps while the sum of a graph is off by more than `TOLERANCE`,
    and a warning if it still is at the end. A smaller error is divided among the contributions in
    proportion to their sizes.

    Args:
        numbers: the explained numbers.
        ones: [num_nodes] the end of the path.
        dag: the graphs.
    """
    with torch.no_grad():
        base = numbers(torch.zeros_like(ones))
        wanted = numbers(ones) - base
    for steps in STEPS:
        middles = [(step + 0.5) / steps for step in range(steps)]
        gradients = (_gradients(numbers, ones * middle) for middle in middles)
        values = sum(gradients, torch.zeros(())) / steps
        error, sizes = wanted - _graph_sums(values, dag), _graph_sums(values.abs(), dag)
        is_off = error.abs() > TOLERANCE * sizes
        if not is_off.any():
            break
    else:
        file, line = dag.place(int(is_off.any(1).nonzero()[0]))
        warnings.warn(
            f"the contributions of {int(is_off.any(1).sum())} records, the first at {file}:{line}, "
            f"do not add up within {TOLERANCE:.0%} after {steps} steps.",
            stacklevel=2,
        )
    rest = torch.where(is_off | (sizes == 0), 0.0, error / sizes)
    return base, values + values.abs() * rest[dag.batch]


def _gradients(numbers: Numbers, scale: Tensor) -> Tensor:
    """[num_nodes, num_targets] the gradients of the scales."""
    scale.requires_grad_()
    with torch.enable_grad():
        sums = numbers(scale).sum(0)
    columns = [torch.autograd.grad(total, scale, retain_graph=True)[0] for total in sums]
    return torch.stack(columns, 1)


def _graph_sums(values: Tensor, dag: TypedDAG) -> Tensor:
    """[num_graphs, width] sums over the nodes of each graph."""
    sums = values.new_zeros(dag.num_graphs, values.shape[1])
    return sums.index_add_(0, dag.batch, values)
