"""Query plans of PostgreSQL: an adapter and a cell of one's own. README.md has the commands."""

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
