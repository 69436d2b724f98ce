"""The check of a cell of one's own: random graphs, against one node at a time."""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphfold.batching.cell import Cell, State
from graphfold.batching.check_cells import check_interface
from graphfold.batching.children import Children
from graphfold.batching.engine.compiled.choice import AUTO, REFERENCE
from graphfold.batching.network import Network
from graphfold.batching.scheduling.passes import Pass, Rounds, Up
from graphfold.dag import Column, EdgeType, GraphBuilder, NodeType, Schema, TypedDAG, split
from graphfold.errors import EngineError, ShapeError

#: The largest distance of sums in another order, relative to the largest number of a tensor.
TOLERANCE = 1e-9
#: The same of a derivative from a difference quotient, whose step is `STEP`.
QUOTIENT_TOLERANCE, STEP = 1e-5, 1e-6
NUM_GRAPHS = 6
BY_NODE = "Compute each node from its own input and children, without dimension 0 and group sizes."


@dataclass(frozen=True)
class CellCheck:
    """Measurements of `check` of a cell that is right.

    Attributes:
        cell: the class of the cell.
        values: the largest distance of a state from the reference, relative to the largest state.
        gradients: the same of the gradients of inputs and parameters.
        execution: "compiled (native)" or the like; or "eager" and why.
    """

    cell: str
    values: float
    gradients: float
    execution: str

    def __str__(self) -> str:
        return (
            f"{self.cell} is right: values differ by {self.values:.0e} from one node at a time, "
            f"gradients by {self.gradients:.0e}, and no graph reads another. It runs "
            f"{self.execution}."
        )


def check(
    cell: Cell,
    step: Pass | None = None,
    *,
    input_size: int | Mapping[str, int] = 0,
    edge_columns: Sequence[Column] = (),
    shared: Mapping[str, Tensor] | None = None,
    seed: int = 0,
) -> CellCheck:
    """Compares a cell with the definition, one node of one graph at a time, in float64.

        print(graphfold.check(AttentionCell(8, 16), input_size=8))

    Random graphs have nodes that several others read, and absent children or any number of them,
    as the arity allows. What a batch gives is compared with what each graph gives alone, so that no
    graph reads another: states, and gradients of inputs and parameters, which are compared with a
    difference quotient, too.

    Args:
        cell: the cell; a copy of it runs, in evaluation mode.
        step: the pass; by default two `Rounds` if the cell has an `initial` of its own, else `Up`.
        input_size: the width of its `x`, or of each part of `x` by name.
        edge_columns: the columns that it reads from `children.edge`; each relation has them.
        shared: the tensors that it reads from `children.shared`.
        seed: of the graphs and numbers.

    Raises:
        KindError: if it is no cell.
        ShapeError: if it takes inputs of another width.
        EngineError: if it is wrong; the message says what differs, and where.
    """
    check_interface(cell, "node")
    name, cell = type(cell).__name__, copy.deepcopy(cell).double().eval()
    if step is None:
        step = Up() if type(cell).initial is Cell.initial else Rounds("edge", 2)
    widths = {"": input_size} if isinstance(input_size, int) else dict(input_size)
    schema = _make_schema(cell, step, widths, edge_columns)
    cells = {"leaf": _Start(cell.fields), "node": cell}
    network = Network(schema, (step, {kind.name: cells[kind.name] for kind in schema.types}))
    runs = _Runs(network.double(), shared or {})
    dag = _make_graphs(schema, isinstance(step, Rounds), random.Random(seed))
    try:
        batch = runs.run(dag, AUTO)
    except (RuntimeError, ShapeError) as error:
        if any(widths.values()) or "shapes" not in str(error):
            raise
        raise ShapeError(f"{error} Give check its input_size, the width of x.") from error
    execution, want = network.execution["node"], runs.run_alone(dag)
    values = _require_same(name, "state", batch.states, want.states)
    gradients = _require_same(name, "gradient", batch.gradients, want.gradients)
    runs.require_quotient(dag, want, name, torch.Generator("cpu").manual_seed(seed))
    return CellCheck(name, values, gradients, execution)


class _Start(Cell):
    """A leaf whose fields are its input."""

    arity = 0

    def __init__(self, fields: Mapping[str, int]) -> None:
        super().__init__()
        self.fields = dict(fields)

    def forward(self, x: Mapping[str, Tensor], children: Children) -> State:
        return {name: x[name] for name in self.fields}


@dataclass(frozen=True)
class _Outcome:
    """The states of graphs, a loss over them, and its gradients."""

    states: Mapping[str, Tensor]  # field -> [num_nodes, width]
    loss: Tensor
    gradients: Mapping[str, Tensor]  # of parameters, and of inputs: "x of node" and the like


class _Runs:
    """Runs of a network over graphs whose features are its inputs.

    Args:
        network: the network, in float64.
        shared: its shared tensors.
    """

    def __init__(self, network: Network, shared: Mapping[str, Tensor]) -> None:
        self.network = network
        self.shared = {
            name: value.double() if value.is_floating_point() else value
            for name, value in shared.items()
        }
        cell = network.cells[0]["node"][0]  # type: ignore[index]
        self.parameters = {n: p for n, p in cell.named_parameters() if p.requires_grad}

    def run(self, dag: TypedDAG, way: str) -> _Outcome:
        """A forward and a backward."""
        self.network.run = way
        x = {kind.name: _as_leaves(dag.features(kind.name)) for kind in dag.schema.types}
        given = {name: parts.get("x", parts) for name, parts in x.items() if parts}
        states = self.network(dag, given, self.shared)
        weight = dag.node_targets["weight"]
        loss = torch.stack([_weighted(rows, weight) for rows in states.values()]).sum()
        named = {f"{c} of {kind}": part for kind, own in x.items() for c, part in own.items()}
        named |= self.parameters
        grads = torch.autograd.grad(loss, [*named.values()], materialize_grads=True)
        detached = {name: rows.detach() for name, rows in states.items()}
        return _Outcome(detached, loss.detach(), dict(zip(named, grads, strict=True)))

    def run_alone(self, dag: TypedDAG) -> _Outcome:
        """Each graph alone, by the reference."""
        alone = [self.run(one, REFERENCE) for one in split(dag)]
        gradients = {key: [own.gradients[key] for own in alone] for key in alone[0].gradients}
        return _Outcome(
            {key: torch.cat([own.states[key] for own in alone]) for key in alone[0].states},
            torch.stack([own.loss for own in alone]).sum(),
            {
                key: torch.stack(parts).sum(0) if key in self.parameters else torch.cat(parts)
                for key, parts in gradients.items()
            },
        )

    def require_quotient(
        self, dag: TypedDAG, found: _Outcome, cell: str, generator: torch.Generator
    ) -> None:
        """Raises EngineError unless the derivative along a direction is a difference quotient."""
        direction = {
            name: torch.randn(grad.shape, dtype=grad.dtype, device="cpu", generator=generator)
            for name, grad in found.gradients.items()
        }
        products = [(found.gradients[name] * along).sum() for name, along in direction.items()]
        derivative = float(torch.stack(products).sum())
        ahead, behind = (self._loss_at(dag, direction, step) for step in (STEP, -STEP))
        quotient = (ahead - behind) / (2 * STEP)
        if abs(quotient - derivative) > QUOTIENT_TOLERANCE * max(1.0, abs(quotient)):
            raise EngineError(
                f"the gradients of {cell} are wrong: along a random direction its derivative is "
                f"{derivative:.6g}, but the difference quotient is {quotient:.6g}. Correct the "
                "backward of its torch.autograd.Function, or what it detaches."
            )

    def _loss_at(self, dag: TypedDAG, direction: Mapping[str, Tensor], step: float) -> float:
        """The loss a step away from the inputs and the parameters."""
        columns = {
            f"type:{kind.name}": {
                name: column + step * direction[f"{name} of {kind.name}"]
                for name, column in dag.features(kind.name).items()
            }
            for kind in dag.schema.types
        }
        before = {name: parameter.detach().clone() for name, parameter in self.parameters.items()}
        with torch.no_grad():
            for name, parameter in self.parameters.items():
                parameter += step * direction[name]
        loss = self.run_alone(replace(dag, columns={**dag.columns, **columns})).loss
        with torch.no_grad():
            for name, parameter in self.parameters.items():
                parameter.copy_(before[name])
        return float(loss)


def _as_leaves(columns: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: column.clone().requires_grad_() for name, column in columns.items()}


def _weighted(rows: Tensor, weight: Tensor) -> Tensor:
    """A sum to which every number contributes differently."""
    by_unit = torch.arange(rows.shape[1], dtype=rows.dtype, device=rows.device).cos()
    return (rows * by_unit * weight.unsqueeze(1)).sum()


def _require_same(
    cell: str, what: str, got: Mapping[str, Tensor], want: Mapping[str, Tensor]
) -> float:
    """The largest distance, relative to the largest number; raises EngineError if it is too far."""
    filled = {name: tensor for name, tensor in want.items() if tensor.numel()}
    largest = max((float(tensor.abs().max()) for tensor in filled.values()), default=0.0)
    farthest = 0.0
    for name, expected in filled.items():
        distance = (got[name] - expected).abs().nan_to_num(float("inf")).max()
        relative = float(distance) / max(largest, 1e-30)
        if not relative <= TOLERANCE:
            raise EngineError(
                f"{cell} depends on the other nodes of its group: the {what} of '{name}' differs "
                f"from that of one node at a time, by {relative:.1e} of the largest. {BY_NODE}"
            )
        farthest = max(farthest, relative)
    return farthest


def _make_schema(
    cell: Cell, step: Pass, widths: Mapping[str, int], edge_columns: Sequence[Column]
) -> Schema:
    """Nodes of the cell; in a pass up the inputs, leaves as well."""
    along_inputs = isinstance(step, Up) and step.relation is None
    parts = tuple(Column(name or "x", "float64", (size,)) for name, size in widths.items() if size)
    node = NodeType("node", cell.arity if along_inputs else None, parts)
    leaf = NodeType(
        "leaf", 0, tuple(Column(name, "float64", (w,)) for name, w in cell.fields.items())
    )
    own = tuple(
        replace(column, dtype="float64") if column.torch_dtype.is_floating_point else column
        for column in edge_columns
    )
    return Schema(
        types=(leaf, node) if along_inputs and cell.arity != 0 else (node,),
        inputs=EdgeType("inputs", () if step.relations else own),
        relations=tuple(EdgeType(name, own) for name in step.relations),
        node_targets=(Column("weight", "float64"),),
    )


def _make_graphs(schema: Schema, cyclic: bool, numbers: random.Random) -> TypedDAG:
    """Random graphs: trees whose nodes may be read twice, or edges between any two nodes."""
    builder = GraphBuilder(schema)
    for _ in range(NUM_GRAPHS):
        below: list[int | None] = []
        if len(schema.types) > 1:
            below += [_add_node(builder, schema.types[0], (), numbers) for _ in range(3)]
        for _ in range(numbers.randint(2, 6)):
            inputs = _choose_inputs(schema, below, numbers)
            below.append(_add_node(builder, schema.types[-1], inputs, numbers))
        for relation in schema.relations:
            _add_edges(builder, relation, len(below), cyclic, numbers)
        builder.output(len(below) - 1)
        builder.finish()
    return builder.build()


def _choose_inputs(
    schema: Schema, below: Sequence[int | None], numbers: random.Random
) -> list[int | None]:
    """The inputs of a new node among those below, in any order; a fixed arity may lack some."""
    arity = schema.types[-1].arity
    if schema.relations or not below:
        return []
    if arity is None:
        return numbers.choices(below, k=numbers.randint(0, 4))
    return numbers.choices([*below, None], k=arity)


def _add_node(
    builder: GraphBuilder, kind: NodeType, inputs: Sequence[int | None], numbers: random.Random
) -> int:
    values = {column.name: _random_value(column, numbers) for column in kind.features}
    node = builder.node(kind.name, inputs, weight=numbers.gauss(0, 1), columns=values)
    if columns := builder.schema.inputs.features:
        rows = {c.name: [_random_value(c, numbers) for _ in inputs] for c in columns}
        builder.inputs(node, inputs, rows)
    return node


def _add_edges(
    builder: GraphBuilder, relation: EdgeType, num_nodes: int, cyclic: bool, numbers: random.Random
) -> None:
    """Edges between any nodes, some to themselves; without cycles, from earlier to later ones."""
    ends = [numbers.choices(range(num_nodes), k=2) for _ in range(2 * num_nodes)]
    if not cyclic:
        ends = [sorted(pair) for pair in ends if pair[0] != pair[1]]
    columns = {c.name: [_random_value(c, numbers) for _ in ends] for c in relation.features}
    builder.edges(relation.name, [a for a, _ in ends], [b for _, b in ends], columns)


def _random_value(column: Column, numbers: random.Random) -> Any:
    """A value of a column: a code if it has codes, else normal numbers."""
    if column.size is not None:
        return numbers.randrange(column.size)
    values = [numbers.gauss(0, 1) for _ in range(math.prod(column.shape))]
    return np.reshape(values, column.shape).tolist()
