"""Contributions of atoms, bonds and words to a prediction, by integrated gradients.

Sundararajan et al. (2017), https://arxiv.org/abs/1703.01365, equation 1: the contribution of an
input is the mean of its gradient along the straight path from zero inputs, times the input. The
inputs are the encoder's vectors of the nodes, which are sums of embeddings. The contributions of a
graph add up to its prediction less that of zero inputs, its base (their proposition 1).

A prediction is explained in its own units; yes or no, and the predicted one of several classes, as
its log-odds. Of a tree whose nodes are all predicted, the root's prediction is explained, and of an
ensemble the mean of its members.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

from graphfold.batching import Batch
from graphfold.dag import TypedDAG
from graphfold.errors import ConfigError
from graphfold.inference.prediction import node_facts
from graphfold.layers import ColumnEncoder, GraphModel, Model
from graphfold.layers.heads.output_column import seven_digits
from graphfold.layers.uncertainty.ensemble import members_of
from graphfold.training.run.trained import TrainedModel

#: Steps along the path, at first and at most; they are doubled until contributions add up.
FEWEST_STEPS, MOST_STEPS = 16, 256

#: The allowed error of the sum of a graph's contributions, relative to the sum of their sizes.
TOLERANCE = 0.02

#: Where bonds are nodes: their type, the relation to the atom where one ends, and the prefix of the
#: columns of the atom where it begins.
BOND, ARRIVES, SOURCE = "bond", "arrives", "source_"

#: [num_graphs, num_targets] the explained numbers, as a function of type name -> inputs of nodes.
Numbers: TypeAlias = Callable[[Mapping[str, Tensor]], Tensor]


@dataclass(frozen=True)
class Contributions:
    """The contributions of the parts of one graph.

    Args:
        parts: the facts of each part: type, span and text of a node; type and nodes of a bond.
        nodes: the node of each part, within the graph; of a bond its two atoms.
        values: target -> [num_parts] contributions.
        base: target -> the number without any input, to which the contributions are added.
    """

    parts: Sequence[Mapping[str, Any]]
    nodes: Sequence[tuple[int, ...]]
    values: Mapping[str, Sequence[float]]
    base: Mapping[str, float]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; with one target its name is left out."""
        listed = {
            target: [{**p, "contribution": v} for p, v in zip(self.parts, values, strict=True)]
            for target, values in self.values.items()
        }
        (target, *others) = listed
        if others:
            return {"base": dict(self.base), "contributions": listed}
        return {"base": self.base[target], "contributions": listed[target]}

    def listed(self, target: str, kind: str) -> list[Any]:
        """The numbers of all parts of a type; [atom, atom, number] of each bond."""
        return [
            [*nodes, value] if len(nodes) > 1 else value
            for part, nodes, value in zip(self.parts, self.nodes, self.values[target], strict=True)
            if part["type"] == kind
        ]


class Explainer:
    """Computes the contribution of each part of a graph to a prediction.

    If bonds are nodes, a bond is one part for both of its directions; the features of an atom that
    its input repeats count for the atom.

    Args:
        trained: the model.
        targets: the names of the targets; None for all.

    Raises:
        ConfigError: if the model cannot be explained.
    """

    def __init__(self, trained: TrainedModel, targets: Sequence[str] | None = None) -> None:
        self.trained = trained
        self.members = _members(trained.model)
        names = self.members[0].head.targets
        self.targets = tuple(targets or names)
        self._columns = [names.index(name) for name in self.targets]
        encoders = self.members[0].encoder.encoders
        self.kinds = [t.name for t in trained.schema.types if t.name in encoders]

    @property
    def columns(self) -> list[str]:
        """The columns of a table: TARGET_base and TARGET_TYPE_contributions, target by target."""
        kinds = [f"{kind}_contributions" for kind in self.kinds]
        return [f"{target}_{what}" for target in self.targets for what in ("base", *kinds)]

    def cells(self, contributions: Contributions) -> Iterator[Any]:
        """The numbers and lists of these columns."""
        for target in self.targets:
            yield contributions.base[target]
            for kind in self.kinds:
                yield contributions.listed(target, kind)

    def explain(self, dag: TypedDAG) -> list[Contributions]:
        """The contributions to the prediction for each graph.

        Args:
            dag: the graphs as the adapter reads them.

        Raises:
            ConfigError: if there is no single prediction for each graph.
        """
        encoded = self.trained.spec.encode(dag)
        batch = self.members[0].plan(encoded, "depth", share=False).to(self.trained.device)
        if self.members[0].head.level != "graph" and (batch.dag.output_ptr.diff() != 1).any():
            raise ConfigError(
                "the model predicts several nodes of each graph, and there is no single "
                "prediction to explain. Leave --explain out."
            )
        inputs = [
            {name: x.detach() for name, x in member.encoder(batch.dag).items()}
            for member in self.members
        ]
        pairs = list(zip(self.members, inputs, strict=True))
        classes = _predicted_classes(pairs, batch)
        base = contributions = torch.zeros(())
        for member, own_inputs in pairs:
            numbers = partial(_numbers, member, batch, classes, self._columns)
            shares = list(_shares(member, batch.dag))
            result = integrated_gradients(numbers, own_inputs, shares, batch.dag)
            base, contributions = base + result[0], contributions + result[1]
        count = len(self.members)
        return list(self._by_graph(dag, base / count, contributions / count))

    def _by_graph(self, dag: TypedDAG, base: Tensor, of_nodes: Tensor) -> Iterator[Contributions]:
        facts, ptr = list(node_facts(dag)), dag.node_ptr.tolist()
        values, bases = seven_digits(of_nodes.cpu()), seven_digits(base.cpu())
        parts = _parts(dag, self.kinds)
        for graph, (start, end) in enumerate(pairwise(ptr)):
            nodes = [node for node in range(start, end) if node in parts]
            within = [tuple(n - start for n in parts[node]) for node in nodes]
            yield Contributions(
                [
                    {"type": BOND, "nodes": list(ends)} if len(ends) > 1 else facts[node]
                    for node, ends in zip(nodes, within, strict=True)
                ],
                within,
                {t: [values[n][k] for n in nodes] for k, t in enumerate(self.targets)},
                dict(zip(self.targets, bases[graph], strict=True)),
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


def _raw(model: GraphModel, batch: Batch, inputs: Mapping[str, Tensor]) -> Tensor:
    """[num_graphs, ...] the raw outputs of the head."""
    rows = model.rows(model.states_from(batch, inputs), batch)
    if model.head.level == "node":
        rows = rows.index_select(0, batch.dag.output_index)
    raw: Tensor = model.head(rows)
    return raw


@torch.no_grad()
def _predicted_classes(
    pairs: Sequence[tuple[GraphModel, Mapping[str, Tensor]]], batch: Batch
) -> Tensor | None:
    """[num_graphs] the class with the largest mean probability; None without several classes."""
    if pairs[0][0].head.task != "multiclass":
        return None
    each = [_raw(model, batch, inputs).softmax(1) for model, inputs in pairs]
    return torch.stack(each).mean(0).argmax(1)


def _numbers(
    model: GraphModel,
    batch: Batch,
    classes: Tensor | None,
    columns: Sequence[int],
    inputs: Mapping[str, Tensor],
) -> Tensor:
    """[num_graphs, num_targets] the explained numbers; log p / (1 - p) of one class."""
    raw = _raw(model, batch, inputs)
    if classes is not None:
        is_chosen = torch.nn.functional.one_hot(classes, raw.shape[1]).bool()
        others = raw.masked_fill(is_chosen, -torch.inf).logsumexp(1)
        return (raw[is_chosen] - others).unsqueeze(1)
    numbers = raw if model.head.task == "binary" else model.head.predict(raw).value
    return numbers.view(len(raw), -1)[:, columns]


class Share(NamedTuple):
    """The share of some columns in the inputs of the nodes of one type.

    Args:
        node_type: the type.
        values: [num_nodes_of_type, width]; the shares of a type add up to the encoder's vectors.
        part: [num_nodes_of_type] the node to which the contribution of each row belongs.
    """

    node_type: str
    values: Tensor
    part: Tensor


@torch.no_grad()
def _shares(model: GraphModel, dag: TypedDAG) -> Iterator[Share]:
    for name, encoder in model.encoder.encoders.items():
        columns = dag.features(name)
        if name != BOND or not _has_bond_nodes(dag):
            yield Share(name, encoder(columns), dag.nodes_of_type(name))
            continue
        assert isinstance(encoder, ColumnEncoder)
        nodes, ends = _bond_ends(dag)
        of_atom = {column for column in columns if column.startswith(SOURCE)}
        first = nodes[::2].repeat_interleave(2)
        yield Share(name, encoder.share_of(columns.keys() - of_atom, columns), first)
        yield Share(name, encoder.share_of(of_atom, columns), ends[:, 0])


def _has_bond_nodes(dag: TypedDAG) -> bool:
    return ARRIVES in dag.relations and any(t.name == BOND for t in dag.schema.types)


def _bond_ends(dag: TypedDAG) -> tuple[Tensor, Tensor]:
    """[num_bonds] the bonds, and [num_bonds, 2] the atoms where they begin and end.

    The second direction of a bond follows the first.
    """
    relation, nodes = dag.relations[ARRIVES], dag.nodes_of_type(BOND)
    atoms = torch.arange(dag.num_nodes, device=nodes.device)
    end = torch.zeros_like(atoms)
    end[relation.index] = atoms.repeat_interleave(relation.ptr.diff())
    end = end[nodes]
    return nodes, torch.stack([end.view(-1, 2).flip(1).flatten(), end], dim=1)


def _parts(dag: TypedDAG, kinds: Sequence[str]) -> dict[int, tuple[int, ...]]:
    """Node -> the nodes of its part: itself, or the two atoms of a bond's first direction."""
    parts: dict[int, tuple[int, ...]] = {
        node: (node,) for kind in kinds for node in dag.nodes_of_type(kind).tolist()
    }
    if _has_bond_nodes(dag):
        nodes, ends = (column.tolist() for column in _bond_ends(dag))
        for first, second, atoms in zip(nodes[::2], nodes[1::2], ends[::2], strict=True):
            parts[first] = tuple(atoms)
            parts.pop(second, None)
    return parts


def integrated_gradients(
    numbers: Numbers, inputs: Mapping[str, Tensor], shares: Sequence[Share], dag: TypedDAG
) -> tuple[Tensor, Tensor]:
    """[num_graphs, num_targets] numbers of zero inputs, and [num_nodes, num_targets] contributions.

    By the midpoint rule, with more steps while the sum of a graph is off by more than `TOLERANCE`,
    and a warning if it still is at the end. A smaller error is divided among the contributions in
    proportion to their sizes.
    """
    with torch.no_grad():
        base = numbers({name: torch.zeros_like(x) for name, x in inputs.items()})
        wanted = numbers(inputs) - base
    steps = FEWEST_STEPS
    while True:
        total = wanted.new_zeros(dag.num_nodes, wanted.shape[1])
        _add_along_path(total, numbers, inputs, shares, steps)
        error = wanted - _graph_sums(total, dag)
        sizes = _graph_sums(total.abs(), dag)
        is_off = error.abs() > TOLERANCE * sizes
        if steps >= MOST_STEPS or not is_off.any():
            break
        steps *= 2
    if is_off.any():
        file, line = dag.place(int(is_off.any(1).nonzero()[0]))
        warnings.warn(
            f"the contributions of {int(is_off.any(1).sum())} records, the first at {file}:{line}, "
            f"do not add up within {TOLERANCE:.0%} after {steps} steps.",
            stacklevel=2,
        )
    rest = torch.where(is_off | (sizes == 0), 0.0, error / sizes)
    return base, total + total.abs() * rest[dag.batch]


def _add_along_path(
    total: Tensor,
    numbers: Numbers,
    inputs: Mapping[str, Tensor],
    shares: Sequence[Share],
    steps: int,
) -> None:
    """Adds the contributions to `total` [num_nodes, num_targets]."""
    names = [name for name, x in inputs.items() if x.shape[1]]
    for step in range(steps):
        scale = (step + 0.5) / steps
        scaled = {name: (x * scale).requires_grad_(name in names) for name, x in inputs.items()}
        with torch.enable_grad():
            values = numbers(scaled)
        for target, value in enumerate(values.sum(0)):
            gradients = torch.autograd.grad(
                value, [scaled[n] for n in names], retain_graph=True, materialize_grads=True
            )
            by_type = dict(zip(names, gradients, strict=True))
            for share in shares:
                rows = (by_type[share.node_type] * share.values).sum(1) / steps
                total[:, target].index_add_(0, share.part, rows)


def _graph_sums(values: Tensor, dag: TypedDAG) -> Tensor:
    """[num_graphs, width] sums over the nodes of each graph."""
    sums = values.new_zeros(dag.num_graphs, values.shape[1])
    return sums.index_add_(0, dag.batch, values)
