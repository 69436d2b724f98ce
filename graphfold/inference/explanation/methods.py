"""Methods that divide a prediction among the nodes and bonds of a graph.

- gradient times input: the first-order share of each unit;
- integrated gradients: shares that add up to the difference from an empty input;
- masking: the change of a prediction when the input of one unit is taken away.

`Explained` is the number that is divided, `Units` are the parts that it is divided among.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from graphfold.batching import Batch, Rounds
from graphfold.dag import Schema, TypedDAG
from graphfold.errors import ConfigError
from graphfold.layers import ColumnEncoder, GraphModel, Head, Model
from graphfold.layers.uncertainty.ensemble import members_of


def networks_of(model: Model) -> list[GraphModel]:
    """The networks whose predictions a model averages: one, or those of an ensemble.

    Of samples with dropout the network without it is explained.

    Raises:
        ConfigError: if there is a model that has no inputs of nodes.
    """
    networks = []
    for member in members_of(model):
        if not isinstance(member, GraphModel):
            raise ConfigError(
                f"a {type(member).__name__} cannot be explained: it has no inputs of atoms, bonds "
                "or nodes that its prediction can be divided among. Train a network, such as "
                "model=dmpnn, or leave --explain out."
            )
        networks.append(member)
    return networks


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


#: Where bonds are nodes: their type, the relation to the atom where one ends, and the prefix of the
#: columns of the atom where it begins.
BOND, ARRIVES, SOURCE = "bond", "arrives", "source_"


@dataclass(frozen=True, eq=False)
class InputShare:
    """The share of some columns in the inputs of the nodes of one type.

    Args:
        node_type: the type.
        values: [num_nodes_of_type, width]; the shares of a type add up to what the encoder gives.
        unit: [num_nodes_of_type] the unit that each row belongs to.
    """

    node_type: str
    values: Tensor
    unit: Tensor


@dataclass(frozen=True, eq=False)
class Kind:
    """Units of one kind, such as atoms.

    Args:
        name: the name of the node type or relation.
        unit: [count] their numbers; a node has its own number, edges those after all nodes.
        graph: [count] the graph of each, never decreasing.
        ends: [count, 2] the nodes that each joins; None where units are no bonds.
    """

    name: str
    unit: Tensor
    graph: Tensor
    ends: Tensor | None = None


@dataclass(frozen=True, eq=False)
class Units:
    """All units of a batch.

    A node is one unit, with its whole input. Where bonds are nodes, the two directions of a bond
    are one unit; the features of an atom that a bond's input repeats belong to that atom. Where
    bonds are edges with features, both edges between two nodes are one unit; it has no share of the
    input of nodes, so that only masking can say what it contributes.

    Args:
        count: numbers of units are below this.
        shares: the inputs of nodes, divided among units.
        kinds: the units by kind.
        edges: relation -> [num_edges] the unit of each edge with features.
    """

    count: int
    shares: tuple[InputShare, ...]
    kinds: tuple[Kind, ...]
    edges: dict[str, Tensor]


def kind_names(model: GraphModel, schema: Schema) -> list[str]:
    """The names of all kinds of units: node types with features, then relations with features."""
    types = [t.name for t in schema.types if t.name in model.encoder.encoders]
    return types + _relations_with_features(model, schema)


def find_units(model: GraphModel, batch: Batch) -> Units:
    """The units of a batch, whose schedule shares nothing."""
    dag, count = batch.dag, batch.dag.num_nodes
    shares: list[InputShare] = []
    kinds: list[Kind] = []
    for node_type in dag.schema.types:
        nodes = dag.nodes_of_type(node_type.name)
        if node_type.name not in model.encoder.encoders:
            continue  # no features: it says nothing of its own
        if _is_directed_bond(node_type.name, dag.schema):
            shares += _shares_of_bonds(model, dag, nodes)
            ends = _ends_of_bonds(dag, nodes)[::2]
            kinds.append(Kind(BOND, nodes[::2], dag.batch[nodes[::2]], ends))
            continue
        values = model.encoder.encoders[node_type.name](dag.features(node_type.name))
        shares.append(InputShare(node_type.name, values.detach(), nodes))
        kinds.append(Kind(node_type.name, nodes, dag.batch[nodes]))
    edges: dict[str, Tensor] = {}
    for name in _relations_with_features(model, dag.schema):
        kind, edges[name] = _units_of_edges(dag, name, count)
        count += len(kind.unit)
        kinds.append(kind)
    return Units(count, tuple(shares), tuple(kinds), edges)


def _is_directed_bond(name: str, schema: Schema) -> bool:
    return name == BOND and any(relation.name == ARRIVES for relation in schema.relations)


def _shares_of_bonds(model: GraphModel, dag: TypedDAG, nodes: Tensor) -> Iterator[InputShare]:
    """The share of the features of the bond, and that of the atom where it begins."""
    encoder, columns = model.encoder.encoders[BOND], dag.features(BOND)
    assert isinstance(encoder, ColumnEncoder)
    of_atom = {name for name in columns if name.startswith(SOURCE)}
    undirected = nodes[torch.arange(len(nodes), device=nodes.device) // 2 * 2]
    for names, unit in (
        (columns.keys() - of_atom, undirected),
        (of_atom, _ends_of_bonds(dag, nodes)[:, 0]),
    ):
        yield InputShare(BOND, encoder.share_of(names, columns).detach(), unit)


def _ends_of_bonds(dag: TypedDAG, bonds: Tensor) -> Tensor:
    """[num_bonds, 2] the atoms where each directed bond begins and ends."""
    relation = dag.relations[ARRIVES]
    ends = torch.zeros(dag.num_nodes, dtype=torch.int64, device=bonds.device)
    ends[relation.index] = _receivers(relation.ptr)
    end = ends[bonds]
    return torch.stack([end.view(-1, 2).flip(1).flatten(), end], dim=1)


def _receivers(ptr: Tensor) -> Tensor:
    """[num_edges] the node that receives each edge."""
    return torch.repeat_interleave(torch.arange(len(ptr) - 1, device=ptr.device), ptr.diff())


def _relations_with_features(model: GraphModel, schema: Schema) -> list[str]:
    followed = {item.relation for item in model.passes if isinstance(item, Rounds)}
    return [edge.name for edge in schema.relations if edge.features and edge.name in followed]


def _units_of_edges(dag: TypedDAG, name: str, first: int) -> tuple[Kind, Tensor]:
    """The edges between two nodes as one unit, and the unit of each edge."""
    relation = dag.relations[name]
    ends = torch.stack([relation.index, _receivers(relation.ptr)], dim=1).sort(dim=1).values
    pairs, place = torch.unique(ends, dim=0, return_inverse=True)
    units = torch.arange(first, first + len(pairs), device=ends.device)
    return Kind(name, units, dag.batch[pairs[:, 0]], pairs), place + first


def gradient_times_input(explained: Explained, units: Units) -> Tensor:
    """[num_units, num_targets] the gradient at a unit's input times that input, summed.

    Shrikumar et al. (2016), https://arxiv.org/abs/1605.01713. The input is the encoder's vector of
    a node, a sum of embeddings. Edges have none, so that they get 0.
    """
    _, gradients = gradients_at(explained, explained.inputs)
    return times_input(gradients, units)


def gradients_at(
    explained: Explained, inputs: Mapping[str, Tensor]
) -> tuple[Tensor, list[dict[str, Tensor]]]:
    """[num_graphs, num_targets] the explained numbers, and for each target their gradients."""
    leaves = {name: x.detach().requires_grad_() for name, x in inputs.items() if x.shape[1]}
    with torch.enable_grad():
        numbers = explained({**inputs, **leaves})
    found = []
    for target in range(numbers.shape[1]):
        gradients = torch.autograd.grad(
            numbers[:, target].sum(),
            list(leaves.values()),
            retain_graph=target + 1 < numbers.shape[1],
            materialize_grads=True,
        )
        found.append(dict(zip(leaves, gradients, strict=True)))
    return numbers.detach(), found


def times_input(gradients: list[dict[str, Tensor]], units: Units) -> Tensor:
    """[num_units, num_targets] gradients times the shares of the input, summed by unit."""
    columns = []
    for by_type in gradients:
        total = next(iter(by_type.values())).new_zeros(units.count)
        for share in units.shares:
            total.index_add_(0, share.unit, (by_type[share.node_type] * share.values).sum(1))
        columns.append(total)
    return torch.stack(columns, dim=1)


#: Steps along the path, at first and at most; they are doubled until the shares add up.
FEWEST_STEPS, MOST_STEPS = 16, 256

#: The error of the sum of a graph's shares that is allowed, as a part of their absolute sum.
TOLERANCE = 0.02


def integrated_gradients(explained: Explained, units: Units) -> Tensor:
    """[num_units, num_targets] the mean gradient between no input and the input, times the input.

    Equation 1 of Sundararajan et al. (2017), https://arxiv.org/abs/1703.01365, along the straight
    path from inputs of zero, by the midpoint rule. Completeness, their proposition 1: the shares of
    a graph add up to its number less that of zero inputs. It is checked: there are more steps while
    the sum is off by more than `TOLERANCE` somewhere, and a warning if it still is. What is then
    missing, if it is no more than that, is divided among the shares in proportion to their sizes.
    Edges keep their features along the path.
    """
    with torch.no_grad():
        difference = explained(explained.inputs) - explained.base()
    steps = FEWEST_STEPS
    while True:
        shares = _along_path(explained, units, steps)
        error, scale = _error(shares, units, difference)
        is_off = error.abs() > TOLERANCE * scale
        missing = is_off.any(1).nonzero().view(-1)
        if steps >= MOST_STEPS or not len(missing):
            break
        steps *= 2
    if len(missing):
        file, line = explained.batch.dag.place(int(missing[0]))
        warnings.warn(
            f"the contributions of {len(missing)} records, the first at {file}:{line}, do not add "
            f"up within {TOLERANCE:.0%} after {steps} steps. Take --explain masking to check them.",
            stacklevel=2,
        )
    correction = torch.where(is_off | (scale == 0), 0.0, error / scale)
    for kind in units.kinds:
        own = shares[kind.unit]
        shares[kind.unit] = own + own.abs() * correction[kind.graph]
    return shares


def _along_path(explained: Explained, units: Units, steps: int) -> Tensor:
    """The shares by the midpoint rule."""
    total = None
    for step in range(steps):
        scale = (step + 0.5) / steps
        inputs = {name: x * scale for name, x in explained.inputs.items()}
        _, gradients = gradients_at(explained, inputs)
        shares = times_input(gradients, units) / steps
        total = shares if total is None else total + shares
    assert total is not None
    return total


def _error(shares: Tensor, units: Units, difference: Tensor) -> tuple[Tensor, Tensor]:
    """[num_graphs, num_targets] what the sum of the shares lacks, and the sum of their sizes."""
    total, scale = torch.zeros_like(difference), torch.zeros_like(difference)
    for kind in units.kinds:
        own = shares[kind.unit]
        total.index_add_(0, kind.graph, own)
        scale.index_add_(0, kind.graph, own.abs())
    return difference - total, scale


@torch.no_grad()
def mask_each(explained: Explained, units: Units) -> Tensor:
    """[num_units, num_targets] the number less what it is without the input of a unit.

    Occlusion, Zeiler and Fergus (2014), https://arxiv.org/abs/1311.2901, section 4.2. The vector of
    a node is set to zero, the features of an edge are set to missing. Graphs do not depend on each
    other, so one unit of every graph is masked at a time.
    """
    whole = explained(explained.inputs)
    found = whole.new_zeros(units.count, whole.shape[1])
    for kind in units.kinds:
        counts = torch.bincount(kind.graph, minlength=explained.batch.num_graphs)
        start = counts.cumsum(0) - counts
        number = torch.arange(len(kind.unit), device=start.device) - start[kind.graph]
        for turn in range(int(counts.max())):
            now = number == turn
            changed = whole - _without(explained, units, kind.unit[now])
            found[kind.unit[now]] = changed[kind.graph[now]]
    return found


def _without(explained: Explained, units: Units, masked: Tensor) -> Tensor:
    """The numbers without the inputs of some units."""
    is_kept = torch.ones(units.count, dtype=torch.bool, device=masked.device)
    is_kept[masked] = False
    inputs = dict(explained.inputs)
    for share in units.shares:
        gone = share.values * ~is_kept[share.unit].unsqueeze(1)
        inputs[share.node_type] = inputs[share.node_type] - gone
    batch, dag = explained.batch, explained.batch.dag
    for name, unit in units.edges.items():
        dag = _without_features(dag, f"relation:{name}", is_kept[unit])
    return explained(inputs, Batch(dag, batch.schedule))


def _without_features(dag: TypedDAG, space: str, is_kept: Tensor) -> TypedDAG:
    """The graphs with missing features in some rows."""
    columns = {}
    for name, column in dag.columns[space].items():
        kept = is_kept.view(-1, *[1] * (column.dim() - 1))
        if column.is_floating_point():
            columns[name] = torch.where(kept, column, torch.nan)
        else:  # int64, for a missing code is -1
            columns[name] = torch.where(kept, column.long(), -1)
    return replace(dag, columns={**dag.columns, space: columns})
