"""Query plans of PostgreSQL: an adapter, a cell, a head and a metric; see README.md."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from graphfold.batching import Cell, Children
from graphfold.dag import Column, GraphBuilder, NodeType, Schema
from graphfold.datasets import Adapter, Record
from graphfold.errors import LeftOut, RecordError
from graphfold.layers import Head
from graphfold.metrics import metric

#: What the planner expects of an operator. What ANALYZE measured is no feature.
ESTIMATES = ("Plan Rows", "Plan Width", "Startup Cost", "Total Cost")
#: How an operator works, where there are several ways.
VARIANTS = ("Join Type", "Strategy", "Scan Direction", "Command", "Operation")


class PlansAdapter(Adapter):
    """Reads `EXPLAIN (ANALYZE, FORMAT JSON)`, one statement on each line.

    A node is an operator; its inputs are the operators whose rows it reads, and the output is the
    last operator. Costs and cardinalities range over ten orders of magnitude, so that features are
    log10(1 + estimate).

    Args:
        target: the key of the measured number, which is above zero.
        unit: the unit of the target.
    """

    def __init__(self, target: str = "Execution Time", unit: str = "ms") -> None:
        self.target = target
        self.reads_target = True
        features = (Column("operator", "string"), Column("variant", "string"))
        features += tuple(Column(name) for name in ESTIMATES)
        self.schema = Schema(
            types=(NodeType("operator", None, features),),
            graph_targets=(Column(target, unit=unit),),
        )

    def records(self, path: Path) -> Iterator[Record]:
        """One record for each line that is not blank."""
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield Record(number, line)

    def parse(self, record: Record, graph: GraphBuilder) -> None:
        """Writes one plan."""
        statement = read_statement(record.content)
        graph.output(write_plan(statement["Plan"], graph))
        cost = self.cost(statement) if self.reads_target else None
        graph.finish(line=record.line, columns={self.target: cost})

    def without_targets(self) -> PlansAdapter:
        """For prediction: plans that were explained without ANALYZE."""
        adapter = copy.copy(self)
        adapter.reads_target = False
        return adapter

    def cost(self, statement: dict[str, Any]) -> float:
        """The measured number."""
        if self.target not in statement:
            raise LeftOut(f"the statement has no '{self.target}'", "Explain it with ANALYZE.")
        return number_of(statement, self.target)


def read_statement(text: str) -> dict[str, Any]:
    """The statement of a line, in the list that PostgreSQL prints or without it."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RecordError(f"the line is no JSON ({error})") from error
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if not isinstance(value, dict) or not isinstance(value.get("Plan"), dict):
        raise RecordError("the line has no 'Plan'", "Give the output of EXPLAIN (FORMAT JSON).")
    return value


def write_plan(plan: dict[str, Any], graph: GraphBuilder) -> int:
    """Adds the operators of a plan, inputs first; returns the node of the last operator."""
    operators, stack = [], [plan]
    while stack:
        operators.append(stack.pop())
        stack += operators[-1].get("Plans", ())
    nodes: dict[int, int] = {}
    for operator in reversed(operators):
        nodes[id(operator)] = graph.node(
            "operator",
            inputs=[nodes[id(part)] for part in operator.get("Plans", ())],
            operator=str(operator.get("Node Type")),
            variant=" ".join(str(operator[key]) for key in VARIANTS if key in operator),
            **{name: math.log10(1 + number_of(operator, name)) for name in ESTIMATES},
        )
    return nodes[id(plan)]


def number_of(item: dict[str, Any], key: str) -> float:
    """A number of 0 or more."""
    value = item.get(key)
    if not isinstance(value, int | float) or value < 0:
        raise RecordError(f"'{key}' is {value!r}, which is no number of 0 or more")
    return float(value)


class OperatorCell(Cell):
    """One network for every operator: h = ReLU(W x + U Σ_k h_k + b).

    A plan-structured network (Marcus and Papaemmanouil 2019, https://arxiv.org/abs/1902.00132).
    Difference from the paper: operators share weights, and their kind is a feature.

    Args:
        input_size: width of the node features.
        hidden_size: width of `h`.
    """

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.fields = {"h": hidden_size}
        self.from_x = nn.Linear(input_size, hidden_size)
        self.from_inputs = nn.Linear(hidden_size, hidden_size, bias=False)

    def before(self, x: Tensor) -> Tensor:
        """W x + b, for all operators at once."""
        projected: Tensor = self.from_x(x)
        return projected

    def forward(self, x: Tensor, children: Children) -> dict[str, Tensor]:
        """The state of operators whose inputs are computed."""
        return {"h": torch.relu(x + self.from_inputs(children.sum("h")))}


class CostHead(Head):
    """Predicts times; learns their logarithms, whose errors are factors.

    Args:
        input_size: width of the row that the readout gives each plan.
        schema: the schema of the plans.
        level: what a row stands for.
    """

    losses_may_be_negative = False

    def __init__(self, input_size: int, schema: Schema, level: str = "graph") -> None:
        super().__init__(schema, level, None)
        self.linear = nn.Linear(input_size, len(self.columns))

    @property
    def metrics(self) -> tuple[str, ...]:
        """The q-error chooses the epoch."""
        return ("postgresql_plans.q_error", "mae")

    @classmethod
    def refuses(cls, column: Column) -> str | None:
        """Only numbers have a logarithm."""
        is_number = column.torch_dtype.is_floating_point
        return None if is_number else f"'{column.name}', which is no number."

    def forward(self, rows: Tensor) -> Tensor:
        """The logarithms."""
        logarithms: Tensor = self.linear(rows)
        return logarithms

    def losses(self, raw: Tensor, targets: Tensor) -> Tensor:
        """The absolute errors of the logarithms."""
        known = self.measured(targets)
        errors = (raw - targets.where(known, 1.0).log()).abs()
        return torch.where(known, errors, 0.0).mean(1)

    def decode(self, raw: Tensor) -> Tensor:
        """The times."""
        return raw.exp()


@metric(task="regression", higher_is_better=False)
def q_error(predicted: Tensor, target: Tensor) -> Tensor:
    """Median of the factor by which a prediction is wrong, Moerkotte et al. (2009)."""
    return (predicted.double().log() - target.double().log()).abs().exp().median()
