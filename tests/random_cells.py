"""Cells of random parts: every way to read children, every way to use a weight."""

from __future__ import annotations

from collections.abc import Sequence

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

    def forward(self, x: dict[str, Tensor], children: Children) -> Tensor:
        found: Tensor = getattr(self, f"_{self.kind}")(x, children)
        return found

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

    def _count(self, x, children):
        return x["x"] * children.count.unsqueeze(1)

    def _stack(self, x, children):
        return self.wide(children.stack("h").flatten(1)) + x["x"]

    def _stack_both(self, x, children):
        return children.stack("h")[:, 0] - self.narrow(children.stack("c").sum(1))

    def _previous(self, x, children):
        return self.linear(children.previous("h")) + self.narrow(children.previous("c"))


OWN = ("linear", "twice", "tied", "plain", "product", "both", "embedding", "index")
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
    """Cells of some parts, the first of which reads x."""
    kinds = draw(st.lists(st.sampled_from(parts), max_size=max_parts - 1))
    first = draw(st.sampled_from(OWN))
    return RandomCell(
        [first, *kinds], draw(st.booleans()), draw(_layers(SIZE)), draw(_layers(2)), arity
    )
