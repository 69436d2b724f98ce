"""Cells and graphs that put every feature of the engine to use."""

from __future__ import annotations

import random

import torch
from torch import Tensor, nn

from graphfold.batching import Batch, Cell, Children, Network, Pass, Rounds, Up, build_schedule
from graphfold.dag import Column, EdgeType, GraphBuilder, NodeType, Schema, TypedDAG

SIZE = 3
SCHEMA = Schema(
    types=(NodeType("word", 0), NodeType("phrase", None), NodeType("pair", 2)),
    inputs=EdgeType("inputs", (Column("weight", "float64"),)),
    relations=(EdgeType("next"),),
)


def random_dag(num_graphs: int, seed: int, size: int = 8) -> TypedDAG:
    """Graphs with shared children, absent slots, mixed arity and a cyclic relation."""
    rng = random.Random(seed)
    builder = GraphBuilder(SCHEMA)
    for _ in range(num_graphs):
        nodes = [builder.node("word") for _ in range(rng.randint(1, 5))]
        for _ in range(rng.randint(0, size)):
            if rng.random() < 0.5:
                inputs = [rng.choice([*nodes, None]), rng.choice(nodes)]
                nodes.append(builder.node("pair"))
            else:
                inputs = [rng.choice(nodes) for _ in range(rng.randint(1, 3))]
                nodes.append(builder.node("phrase"))
            builder.inputs(
                nodes[-1], inputs, weight=[None if i is None else rng.random() for i in inputs]
            )
        ends = [rng.choice(nodes) for _ in range(12)]
        builder.edges("next", ends[:6], ends[6:])
        builder.output(nodes[-1])
        builder.finish()
    return builder.build()


def chain(length: int) -> TypedDAG:
    """A word, and `length` phrases one upon the other."""
    builder = GraphBuilder(SCHEMA)
    node = builder.node("word")
    for _ in range(length):
        below, node = node, builder.node("phrase")
        builder.inputs(node, [below], weight=[1.0])
    builder.output(node)
    builder.finish()
    return builder.build()


class WordCell(Cell):
    arity = 0

    def __init__(self, size: int = SIZE) -> None:
        super().__init__()
        self.fields = {"h": size, "c": size}
        self.linear = nn.Linear(SIZE, 2 * size)

    def forward(self, x: Tensor, children: Children) -> dict[str, Tensor]:
        h, c = self.linear(x).chunk(2, 1)
        return {"h": h.tanh(), "c": c}


class PhraseCell(Cell):
    """Reads its children in every way."""

    def __init__(self, size: int = SIZE) -> None:
        super().__init__()
        self.fields = {"h": size, "c": size}
        self.input = nn.Linear(SIZE, size)
        self.sum = nn.Linear(size, size, bias=False)
        self.rows = nn.Linear(size, size)
        self.scale = nn.Parameter(torch.ones(size))

    def before(self, x: Tensor) -> dict[str, Tensor]:
        return {"input": self.input(x), "raw": x}

    def forward(self, x: dict[str, Tensor], children: Children) -> dict[str, Tensor]:
        rows = children.rows("h")
        gate = torch.sigmoid(self.rows(rows) + children.expand(x["input"]))
        weight = children.edge["weight"].to(gate.dtype).unsqueeze(1)
        c = children.sum(gate * weight * children.rows("c")) + children.mean("c") * self.scale
        c = torch.tanh(c + children.attend("c", rows[:, 0]) + children.max("h"))
        return {"c": c, "h": torch.tanh(self.sum(children.sum("h")) + c + x["raw"][:, :1])}


class PairCell(Cell):
    arity = 2

    def __init__(self, size: int = SIZE) -> None:
        super().__init__()
        self.fields = {"h": size, "c": size}
        self.linear = nn.Linear(2 * size, 2 * size)

    def forward(self, x: Tensor, children: Children) -> dict[str, Tensor]:
        h, c = self.linear(children.stack("h").flatten(1)).chunk(2, 1)
        return {"h": h.tanh(), "c": c + children.stack("c").sum(1)}

    def after(self, state: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"score": state["h"].sum(1, keepdim=True)}


class MessageCell(Cell):
    reads = ("m",)

    def __init__(self, size: int = SIZE) -> None:
        super().__init__()
        self.fields = {"m": size}
        self.linear = nn.Linear(2 * size, size)

    def initial(self, x: Tensor) -> dict[str, Tensor]:
        return {"m": x}

    def forward(self, x: Tensor, children: Children) -> dict[str, Tensor]:
        joined = torch.cat([children.sum("m") + x, children.previous("m")], 1)
        return {"m": self.linear(joined).tanh()}


def tree_cells() -> dict[str, Cell]:
    return {"word": WordCell(), "phrase": PhraseCell(), "pair": PairCell()}


def make_network(
    passes: list[Pass] | None = None,
    cells: list[dict[str, Cell]] | None = None,
    run: str = "auto",
    **options: object,
) -> Network:
    """A network in float64; by default one pass up with the cells of a tree."""
    passes = passes or [Up()]
    cells = cells or [tree_cells()]
    return Network(SCHEMA, *zip(passes, cells, strict=True), run=run, **options).double()  # type: ignore[arg-type]


def make_batch(dag: TypedDAG, network: Network, policy: str = "depth") -> Batch:
    return Batch(dag, build_schedule(dag, network.passes, policy))


def make_x(dag: TypedDAG, seed: int = 0) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {
        node_type.name: torch.randn(
            count, SIZE, dtype=torch.float64, generator=generator
        ).requires_grad_()
        for node_type, count in zip(dag.schema.types, dag.num_nodes_by_type, strict=True)
    }


def message_cells() -> dict[str, Cell]:
    cell = MessageCell()
    return {"word": cell, "phrase": cell, "pair": cell}


def rounds(count: int = 3) -> Rounds:
    return Rounds("next", count)
