"""Cells of random parts: every way to read children, every way to use a weight."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from graphfold.batching import Cell, Children
from graphfold.dag import Column, EdgeType, GraphBuilder, NodeType, Schema, TypedDAG

SIZE, NUM_CODES = 3, 4
SCHEMA = Schema(
    types=(NodeType("word", 0), NodeType("phrase", None), NodeType("pair", 2)),
    inputs=EdgeType(
        "inputs", (Column("weight", "float64"), Column("label", "int64", size=NUM_CODES))
    ),
)
FIELDS = {"h": SIZE, "c": 2}


def full(lonely: bool = False) -> TypedDAG:
    """A batch with all types and with edges; if `lonely`, words and a phrase without children."""
    builder = GraphBuilder(SCHEMA)
    words = list(builder.nodes("word", 3))
    inputs = [] if lonely else [("phrase", words), ("pair", words[:2]), ("phrase", [3, 4, 4])]
    for name, children in [*inputs, ("phrase", [])]:
        node = builder.node(name)
        weight = [0.5 * number for number in range(len(children))]
        builder.inputs(node, children, weight=weight, label=[n % 3 for n in children])
    builder.output(node)
    builder.finish()
    return builder.build()


@functools.lru_cache
def made_once(width: int) -> Tensor:
    return torch.linspace(0.5, 1.5, width, dtype=torch.float64)


KEPT: list[Tensor] = []


class Part(nn.Module):
    """One way to make [group_size, SIZE] numbers; has what any of them may need."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.linear = nn.Linear(SIZE, SIZE)
        self.narrow = nn.Linear(2, SIZE, bias=False)
        self.wide = nn.Linear(2 * SIZE, SIZE)
        self.matrix = nn.Parameter(torch.randn(SIZE, SIZE))
        self.scale = nn.Parameter(torch.randn(SIZE))
        self.table = nn.Embedding(NUM_CODES, SIZE)
        self.tied = nn.Linear(SIZE, SIZE)
        self.tied.weight = self.linear.weight
        self.register_buffer("factors", torch.tensor([0.5, 2.0, -1.0], dtype=torch.float64))
        self.cache: dict[object, Tensor] = {}

    def forward(self, x: dict[str, Tensor], children: Children) -> Tensor:
        result: Tensor = getattr(self, f"_{self.kind}")(x, children)
        return result

    def _linear(self, x, children):
        return self.linear(x["x"])

    def _twice(self, x, children):
        return self.linear(torch.tanh(self.linear(x["x"])))

    def _tied(self, x, children):
        return self.linear(x["x"]) * torch.sigmoid(self.tied(x["x"]))

    def _plain(self, x, children):
        return x["x"] * self.scale + self.matrix.sum(0)

    def _product(self, x, children):
        return x["x"] @ self.matrix

    def _both(self, x, children):  # lazily and plainly
        return x["x"] @ self.matrix + x["x"] * self.matrix[0] + F.linear(x["x"], self.matrix.t())

    def _embedding(self, x, children):
        return self.table(x["code"]) + x["x"]

    def _index(self, x, children):
        return self.table.weight[x["code"]] * x["x"]

    def _sum(self, x, children):
        return self.linear(children.sum("h") + x["x"])

    def _two_sums(self, x, children):
        return children.sum("h") * self.scale + self.narrow(children.sum("c"))

    def _mean(self, x, children):
        return self.narrow(children.mean("c")) + x["x"]

    def _max(self, x, children):
        return children.max("h") - x["x"]

    def _attend(self, x, children):
        return children.attend("h", self.narrow(children.rows("c"))[:, 0])

    def _rows(self, x, children):
        gate = torch.sigmoid(self.linear(children.rows("h")) + children.expand(x["x"]))
        return children.sum(gate * self.narrow(children.rows("c")))

    def _edge(self, x, children):
        return children.sum(children.rows("h") * children.edge["weight"].unsqueeze(1))

    def _weighted(self, x, children):
        return children.sum("h", children.edge["weight"])

    def _label(self, x, children):
        return children.sum(self.table(children.edge["label"]) * children.rows("h"))

    def _position(self, x, children):
        return children.sum(children.rows("h") / (1 + children.position.unsqueeze(1)))

    def _child_count(self, x, children):
        return children.sum(children.rows("h") / (1 + children.child_count.unsqueeze(1)))

    def _is_self(self, x, children):
        return children.sum(children.rows("h") * (1 - children.is_self).unsqueeze(1))

    def _count(self, x, children):
        return x["x"] * children.count.unsqueeze(1)

    def _stack(self, x, children):
        return self.wide(children.stack("h").flatten(1)) + x["x"]

    def _stack_both(self, x, children):
        return children.stack("h")[:, 0] - self.narrow(children.stack("c").sum(1))

    def _previous(self, x, children):
        return self.linear(children.previous("h")) + self.narrow(children.previous("c"))

    # Unusual ways to read: without gradients first, by numbers, row by row, from caches, by size.

    def _sum_without_gradient_first(self, x, children):
        with torch.no_grad():
            largest = children.sum("h").abs().amax(1, keepdim=True) + 1
        return children.sum("h") / largest

    def _rows_without_gradient_first(self, x, children):
        with torch.no_grad():
            mean = children.mean("c")
        return self.narrow(children.sum(children.rows("c") * children.expand(mean)))

    def _rows_without_gradient(self, x, children):
        with torch.no_grad():
            rows, x = children.rows("h"), self.linear(x["x"])
        return children.sum(rows * children.expand(x)) * self.scale

    def _edge_without_gradient_first(self, x, children):
        with torch.no_grad():
            total = children.sum(children.edge["weight"].unsqueeze(1))
        return x["x"] * total + children.sum("h", children.edge["weight"])

    def _previous_without_gradient_first(self, x, children):
        with torch.no_grad():
            gate = torch.sigmoid(children.previous("h"))
        return gate * children.previous("h") + self.narrow(children.previous("c"))

    def _in_inference_mode_first(self, x, children):
        with torch.inference_mode():
            children.sum("h"), children.rows("c"), children.edge["weight"]
        return children.sum("h") + self.narrow(children.sum(children.rows("c")))

    def _twice_and_partly(self, x, children):
        one, other = children.rows("h")[:, :1], children.rows("h")[:, 1:]
        return children.sum(torch.cat([other, one], 1)) + children.sum("h") * x["x"][:, 1:2]

    def _numbers(self, x, children):
        first, *_ = self.factors.tolist()
        return x["x"] * first

    def _item(self, x, children):
        return x["x"] * self.factors[0].item() * float(self.factors[1])

    def _array(self, x, children):
        return x["x"] * torch.from_numpy(np.tanh(self.factors.numpy()))

    def _text(self, x, children):
        return x["x"] * float(f"{self.factors[1]:.3f}")

    def _row_by_row(self, x, children):
        return torch.stack([self.linear(row) for row in x["x"]])

    def _numbered_rows(self, x, children):
        return torch.stack([self.linear(x["x"][n]) for n in range(len(x["x"]))])

    def _cached(self, x, children):
        if "ones" not in self.cache:
            self.cache["ones"] = torch.full((SIZE,), 2.0, dtype=torch.float64)
        return x["x"] * self.cache["ones"]

    def _cached_by_function(self, x, children):
        return x["x"] * made_once(SIZE)

    def _remembered(self, x, children):
        KEPT.append(x["x"].detach())
        del KEPT[:-2]
        self.last = x["x"].sum(1)
        return x["x"] * self.scale

    def _halves(self, x, children):
        half = children.group_size // 2
        return torch.cat([self.linear(x["x"][:half]), self.linear(x["x"][half:])])

    def _divided_by_size(self, x, children):
        return x["x"] / x["x"].shape[0] * len(x["x"])

    def _branch_on_size(self, x, children):
        if 2 <= children.group_size < 500:
            return self.linear(x["x"] * 2)
        return self.linear(x["x"] + x["x"])

    def _heads(self, x, children):
        heads = torch.stack([x["x"], self.linear(x["x"]), x["x"] @ self.matrix])
        return (torch.softmax(heads, 0) * heads).mean(0)


UNUSUAL_OWN = (
    *("numbers", "item", "array", "text", "row_by_row", "numbered_rows", "cached", "remembered"),
    *("cached_by_function", "halves", "divided_by_size", "branch_on_size", "heads"),
)
UNUSUAL_READS = (
    *("sum_without_gradient_first", "rows_without_gradient_first", "rows_without_gradient"),
    *("edge_without_gradient_first", "in_inference_mode_first", "twice_and_partly"),
)
UNUSUAL_DOWN = (*UNUSUAL_READS, "previous_without_gradient_first")

OWN = ("linear", "twice", "tied", "plain", "product", "both", "embedding", "index")
#: The parts of `OWN` without codes.
PARTS = tuple(name for name in OWN if name not in ("embedding", "index"))
SUMS = ("sum", "two_sums")  # of fields
READS = (
    "mean",
    "max",
    "attend",
    "rows",
    "edge",
    "weighted",
    "label",
    "child_count",
    "is_self",
    "position",
    "count",
)
STACKS = ("stack", "stack_both")


class RandomCell(Cell):
    """Parts added up or gated by each other, and a module for each field."""

    def __init__(
        self, kinds: Sequence[str], gated: bool, h: nn.Module, c: nn.Module, arity: int | None
    ) -> None:
        super().__init__()
        self.fields, self.arity, self.gated = FIELDS, arity, gated
        self.parts = nn.ModuleList(map(Part, kinds))
        self.h = h
        self.c = nn.Sequential(nn.Linear(SIZE, 2), c)

    def before(self, x: Tensor) -> dict[str, Tensor]:
        return {"x": x, "code": (x[:, 0] > 0).long() + (x[:, 1] > 0).long()}

    def forward(self, x: dict[str, Tensor], children: Children) -> dict[str, Tensor]:
        total, *others = (part(x, children) for part in self.parts)
        for other in others:
            total = total * torch.sigmoid(other) if self.gated else total + other
        return {"h": self.h(total), "c": self.c(total)}


def _layers(width: int) -> st.SearchStrategy[nn.Module]:
    """Modules that keep the width."""
    flat = st.sampled_from(
        [
            lambda: nn.Linear(width, width),
            lambda: nn.LayerNorm(width),
            lambda: nn.Sequential(nn.Linear(width, 2 * width), nn.GLU()),
            lambda: nn.Sequential(
                nn.Linear(width, 5, bias=False), nn.Softplus(), nn.Linear(5, width)
            ),
            nn.Identity,
            nn.Tanh,
            nn.ReLU,
            nn.GELU,
            nn.Sigmoid,
            nn.SiLU,
            lambda: nn.Softmax(1),
            lambda: nn.LeakyReLU(0.2),
        ]
    ).map(lambda make: make())
    return st.recursive(flat, lambda m: st.lists(m, max_size=3).map(_in_a_row), max_leaves=4)


def _in_a_row(modules: list[nn.Module]) -> nn.Module:
    return nn.Sequential(*modules)


@st.composite
def random_cells(
    draw: st.DrawFn, arity: int | None, parts: Sequence[str], max_parts: int = 3
) -> RandomCell:
    """Cells of some parts; the first part reads x."""
    kinds = draw(st.lists(st.sampled_from(parts), max_size=max_parts - 1))
    first = draw(st.sampled_from(OWN))
    return RandomCell(
        [first, *kinds], draw(st.booleans()), draw(_layers(SIZE)), draw(_layers(2)), arity
    )


def features(dag: TypedDAG) -> dict[str, Tensor]:
    """Random features in float64 for the nodes of each type."""
    return {
        t.name: torch.randn(count, SIZE, dtype=torch.float64)
        for t, count in zip(dag.schema.types, dag.num_nodes_by_type, strict=True)
    }
