"""Operations on rows of nodes and of children: compiled, against the cell's own code."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable

import pytest
import torch
from compiled_checks import assert_gives, states_and_gradients
from thinned import thinned
from torch import Tensor, nn
from torch.nn import functional as F

from graphfold.batching import Cell, Children, Network, Up
from graphfold.dag import Column, EdgeType, GraphBuilder, NodeType, Schema, TypedDAG

WIDTH = 6
SCHEMA = Schema(
    types=(
        NodeType("word", 0),
        NodeType("phrase", None),
        NodeType("triple", 3),
        NodeType("single", 1),
    ),
    inputs=EdgeType("inputs", (Column("weight", "float64"), Column("vector", "float64", (WIDTH,)))),
)
Function = Callable[["Trial", Tensor, Children], Tensor]


def graph() -> TypedDAG:
    """Three levels, more nodes than one block has, phrases of none to five children."""
    torch.manual_seed(0)
    builder = GraphBuilder(SCHEMA)
    below = list(builder.nodes("word", 150))
    for count in (230, 40):
        made = []
        for number in range(count):
            is_triple = number % 2
            wanted = 3 if is_triple else (number // 2) % 6
            inputs = [below[n] for n in torch.randint(len(below), (wanted,)).tolist()]
            if is_triple and number % 7 == 0:
                inputs[number % 3] = None
            node = builder.node("triple" if is_triple else "phrase")
            builder.inputs(
                node,
                inputs,
                weight=[None if i is None else 0.5 for i in inputs],
                vector=[None if i is None else torch.randn(WIDTH).tolist() for i in inputs],
            )
            made.append(node)
        for number in range(0, count, 3):
            child = None if number % 7 == 0 else below[number % len(below)]
            weight, vector = (None, None) if child is None else (0.5, torch.randn(WIDTH).tolist())
            made.append(builder.node("single"))
            builder.inputs(made[-1], [child], weight=[weight], vector=[vector])
        below = [*below[:20], *made]
    builder.output(below[-1])
    builder.finish()
    return builder.build()


class Word(Cell):
    arity = 0

    def __init__(self) -> None:
        super().__init__()
        self.fields = {"h": WIDTH, "c": 2}
        self.linear = nn.Linear(WIDTH, WIDTH + 2)

    def forward(self, x, children):
        h, c = self.linear(x).split([WIDTH, 2], 1)
        return {"h": h, "c": c}


class Trial(Cell):
    """A function for `h`; has parameters for it."""

    def __init__(self, function: Function, arity: int | None) -> None:
        super().__init__()
        self.fields, self.arity, self.function = {"h": WIDTH, "c": 2}, arity, function
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.narrow = nn.Linear(WIDTH, 2)
        self.wide = nn.Linear(3 * WIDTH, WIDTH)
        self.matrix = nn.Parameter(torch.randn(WIDTH, WIDTH))
        self.norm = nn.LayerNorm(WIDTH)
        self.vector = nn.Parameter(torch.randn(WIDTH))
        self.score = nn.Linear(WIDTH, 1)
        with warnings.catch_warnings():  # their weights have no numbers to begin with
            warnings.simplefilter("ignore")
            self.nothing, self.to_nothing = nn.Linear(0, WIDTH), nn.Linear(WIDTH, 0)

    def forward(self, x, children):
        h = self.function(self, x, children)
        return {"h": torch.tanh(h), "c": self.narrow(x)}


def turned(x: Tensor) -> Tensor:
    return x.unflatten(1, (2, 3)).transpose(1, 2).flatten(1)


def known(column: Tensor) -> Tensor:
    """Of absent children, columns have no value."""
    return torch.where(column == column, column, 0.5)


ROWS: dict[str, Function] = {
    "slice": lambda p, x, c: torch.cat([x[:, 3:], x[:, :3]], 1),
    "slice with a step": lambda p, x, c: torch.cat([x[:, ::2], x[:, 1::2]], -1),
    "select": lambda p, x, c: x[:, 2].unsqueeze(1) * x + x[:, -1].unsqueeze(1),
    "split": lambda p, x, c: torch.cat(x.split(4, 1)[::-1], 1),
    "split with sizes": lambda p, x, c: torch.cat(x.split([1, 2, 3], 1)[::-1], 1),
    "chunk": lambda p, x, c: x.chunk(2, 1)[0].repeat_interleave(1, 0) @ p.matrix[:3],
    "unbind": lambda p, x, c: torch.stack(x.unbind(1)[::-1], 1),
    "stack": lambda p, x, c: torch.stack([x, x * 2], 1).sum(1),
    "permute": lambda p, x, c: x.view(-1, 2, 3).permute(0, 2, 1).reshape(-1, WIDTH),
    "transpose": lambda p, x, c: turned(x),
    "three dimensions": lambda p, x, c: (x.view(-1, 2, 3, 1) * p.vector[:2]).sum(3).flatten(1),
    "expand": lambda p, x, c: x[:, :1].expand(-1, WIDTH) * x,
    "expand_as": lambda p, x, c: x[:, 1:2].expand_as(x) + x,
    "unsqueeze and squeeze": lambda p, x, c: (x.unsqueeze(1) * 2).squeeze(1),
    "reshape": lambda p, x, c: x.reshape(-1, 3, 2)[:, :, 0].repeat_interleave(1, 0) @ p.matrix[:3],
    "sum": lambda p, x, c: x.sum(1, keepdim=True) * x,
    "sum over two": lambda p, x, c: x.view(-1, 2, 3).sum((1, 2)).unsqueeze(1) + x,
    "mean": lambda p, x, c: x - x.mean(-1, keepdim=True),
    "amax": lambda p, x, c: x - x.amax(1, keepdim=True),
    "amax of ties": lambda p, x, c: x * F.relu(x).amax(1, keepdim=True),
    "softmax": lambda p, x, c: F.softmax(x, 1),
    "softmax in the middle": lambda p, x, c: F.softmax(x.view(-1, 2, 3), 1).flatten(1),
    "log of softmax": lambda p, x, c: torch.log(torch.softmax(x, -1)),
    "layer_norm": lambda p, x, c: p.norm(x),
    "layer_norm without weights": lambda p, x, c: F.layer_norm(x, (WIDTH,)),
    "layer_norm over two": lambda p, x, c: F.layer_norm(x.view(-1, 2, 3), (2, 3)).flatten(1),
    "linear": lambda p, x, c: p.linear(x),
    "linear of two dimensions": lambda p, x, c: p.linear(p.linear(x)[:, None])[:, 0],
    "product": lambda p, x, c: x @ p.matrix,
    "product transposed": lambda p, x, c: x @ p.matrix.t(),
    "product of a part": lambda p, x, c: x[:, 1:4] @ p.matrix[2:5],
    "product of what is turned": lambda p, x, c: turned(x) @ p.matrix.sigmoid(),
    "one weight twice": lambda p, x, c: p.linear(p.linear(x)) + p.linear.weight.sum(0),
    "linear of nothing": lambda p, x, c: p.nothing(x[:, :0]) * x,
    "linear to nothing": lambda p, x, c: torch.cat([p.to_nothing(x), x], 1),
    "relu of a product": lambda p, x, c: F.relu(p.linear(x)),
    "row added to a product": lambda p, x, c: p.linear(x) + x,
    "product added to a row": lambda p, x, c: F.relu(turned(x) + x @ p.matrix),
    "product added to a product": lambda p, x, c: F.relu(p.linear(x) + x @ p.matrix),
    "product added to itself": lambda p, x, c: (lambda y: F.relu(y + y))(p.linear(x)),
    "product read twice": lambda p, x, c: (lambda y: y * F.relu(y))(p.linear(x)),
    "sum with a product read twice": lambda p, x, c: (lambda y: y * F.relu(y))(p.linear(x) + x),
    "number added to a product": lambda p, x, c: F.relu(p.linear(x) + 0.1),
    "column added to a product": lambda p, x, c: F.relu(p.linear(x) + x[:, :1]),
    "relu of a part of a product": lambda p, x, c: x * F.relu(p.linear(x)[:, 1:2]),
    "relu of a product turned": lambda p, x, c: F.relu(turned(p.linear(x))) + x,
    "times one": lambda p, x, c: (x * 1.0) * (1 * p.linear(x * 1)),
    "addmm": lambda p, x, c: torch.addmm(p.vector, x, p.matrix),
    "baddmm by hand": lambda p, x, c: (x.unsqueeze(1) * p.matrix).sum(2) + p.vector,
    "detach": lambda p, x, c: x.detach() * x + p.matrix.detach()[0],
    "clone": lambda p, x, c: x.clone().contiguous().add_(1),
    "change in place": lambda p, x, c: (x * 2).add_(p.vector).sub_(1).sigmoid_(),
    "change of a parameter's copy": lambda p, x, c: x * p.vector.clone().mul_(2),
    "zeros": lambda p, x, c: torch.zeros(len(x), WIDTH, dtype=x.dtype, device=x.device) + x,
    "full": lambda p, x, c: x + x.new_full((len(x), 1), 0.25),
    "ones": lambda p, x, c: (
        torch.ones_like(x) * x + torch.ones(len(x), 1, dtype=x.dtype, device=x.device)
    ),
    "group_size": lambda p, x, c: x.new_zeros(c.group_size, WIDTH) + x,
    "x itself": lambda p, x, c: x,
    "mean over heads": lambda p, x, c: torch.stack([x, p.linear(x), x * p.vector]).mean(0),
    "softmax over heads": lambda p, x, c: (lambda h: (F.softmax(h, 0) * h).sum(0))(
        torch.stack([x, p.linear(x)])
    ),
    "heads times weights": lambda p, x, c: (
        torch.stack([x, p.linear(x)]) * p.vector[:2].view(2, 1, 1) + x
    ).amax(0),
    "heads joined": lambda p, x, c: torch.cat([x[None], torch.stack([x, 2 * x])]).sum(0),
    "first of heads": lambda p, x, c: torch.stack([x, p.linear(x)])[1] + x,
    "heads apart": lambda p, x, c: sum(torch.stack([x, p.linear(x)]).unbind(0), x),
    "heads side by side": lambda p, x, c: (
        torch.stack([x[:, :3], p.linear(x)[:, 3:]]).permute(1, 0, 2).flatten(1)
    ),
    "columns first": lambda p, x, c: (x.t() * p.vector.view(-1, 1)).t(),
    "shape": lambda p, x, c: x.view(*x.shape[:-1], 2, 3).sum(1) @ p.matrix[:3],
    "sizes in comparisons": lambda p, x, c: (
        x * 2 if x.shape[0] == c.group_size >= 1 and len(x) and max(len(x), 1) > 0 else x
    ),
    "without a gradient": lambda p, x, c: x * torch.no_grad()(p.linear)(x),
}
CHILDREN: dict[str, Function] = {
    "rows": lambda p, x, c: c.sum(c.rows("h") * 2),
    "sum": lambda p, x, c: c.sum("h") + x,
    "sum of a width": lambda p, x, c: c.sum("c") @ p.matrix[:2],
    "weighted": lambda p, x, c: c.sum("h", known(c.edge["weight"])),
    "edge": lambda p, x, c: c.sum(known(c.edge["vector"]) * c.rows("h")),
    "learned weight": lambda p, x, c: c.sum("h", torch.sigmoid(p.score(c.rows("h")))[:, 0]),
    "mean": lambda p, x, c: c.mean("h"),
    "mean of values": lambda p, x, c: c.mean(torch.exp(c.rows("h"))),
    "max": lambda p, x, c: c.max("h"),
    "max of ties": lambda p, x, c: c.max(F.relu(c.rows("h"))),
    "softmax": lambda p, x, c: c.sum(c.softmax(c.rows("h")) * c.rows("h")),
    "attend": lambda p, x, c: c.attend("h", p.score(c.rows("h"))[:, 0]),
    "attend to values": lambda p, x, c: c.attend(p.linear(c.rows("h")), p.score(c.rows("h"))),
    "expand": lambda p, x, c: c.sum(c.rows("h") * c.expand(x)),
    "relu of messages": lambda p, x, c: c.sum(F.relu(c.rows("h") + known(c.edge["vector"]))),
    "relu of a row's product": lambda p, x, c: c.sum(F.relu(p.linear(c.rows("h")) + c.expand(x))),
    "expand read twice": lambda p, x, c: (lambda own: c.sum(F.relu(own) * (own - c.rows("h"))))(
        c.expand(x)
    ),
    "expand of rows": lambda p, x, c: c.sum(c.rows("h") * c.expand(c.sum("h"))),
    "part of rows": lambda p, x, c: c.sum(c.rows("h")[:, 1:4] * c.expand(x)[:, 2:5]) @ p.matrix[:3],
    "negative messages": lambda p, x, c: c.sum(torch.tanh(-c.rows("h") - 2 * c.expand(x))),
    "linear of rows": lambda p, x, c: c.sum(torch.tanh(p.linear(c.rows("h")))),
    "rows of two fields": lambda p, x, c: c.sum(torch.cat([c.rows("h"), c.rows("c")], 1))[:, 2:],
    "rows in parts": lambda p, x, c: c.sum(torch.cat(c.rows("h").chunk(3, 1)[::-1], 1)),
    "count": lambda p, x, c: x * c.count.unsqueeze(1),
    "count as numbers": lambda p, x, c: x / (1.0 + c.count.to(x.dtype)).sqrt()[:, None],
    "position": lambda p, x, c: c.sum(c.rows("h") / (1 + c.position.unsqueeze(1))),
    "child_count": lambda p, x, c: c.sum(c.rows("h") / (1 + c.child_count.unsqueeze(1))),
    "is_self": lambda p, x, c: c.sum(c.rows("h") * (1 - c.is_self).unsqueeze(1)),
    "rows three times": lambda p, x, c: c.sum(c.rows("h") * c.rows("h")) + c.max("h") + c.mean("h"),
    "rows of more dimensions": lambda p, x, c: c.sum(c.rows("h").view(-1, 2, 3)).flatten(1),
}
STACKS: dict[str, Function] = {
    "stack": lambda p, x, c: p.wide(c.stack("h").flatten(1)),
    "stack summed": lambda p, x, c: c.stack("h").sum(1) + x,
    "first and last": lambda p, x, c: c.stack("h")[:, 0] - 2 * c.stack("h")[:, -1],
    "unbind": lambda p, x, c: c.stack("h").unbind(1)[1] * x,
    "stack by rows": lambda p, x, c: p.linear(c.stack("h")).sum(1),
    "softmax over children": lambda p, x, c: (F.softmax(c.stack("h"), 1) * c.stack("h")).sum(1),
    "amax over children": lambda p, x, c: c.stack("h").amax(1),
    "mean over children": lambda p, x, c: c.stack("h").mean(1),
    "gate of each child": lambda p, x, c: (
        torch.sigmoid(p.score(c.stack("h"))) * (c.stack("h") + x.unsqueeze(1))
    ).sum(1),
    "joined with x": lambda p, x, c: p.wide(torch.cat([c.stack("h")[:, :2].flatten(1), x], 1)),
    "children the other way round": lambda p, x, c: p.wide(
        torch.cat([c.stack("h")[:, n] for n in (2, 0, 1)], 1)
    ),
    "transposed": lambda p, x, c: (
        c.stack("h").transpose(1, 2).reshape(len(x), -1) @ p.wide.weight.t()
    ),
    "sum and rows": lambda p, x, c: c.sum("h") * c.stack("h")[:, 1] + c.sum(c.rows("h") ** 2),
    "rows as a stack": lambda p, x, c: p.wide(c.rows("h").view(len(x), -1)),
    "stack as rows": lambda p, x, c: c.sum(p.linear(c.stack("h")).reshape(-1, WIDTH)),
    "edges as a stack": lambda p, x, c: (
        c.stack("h") * known(c.edge["weight"]).view(len(x), 3, 1)
    ).sum(1),
}


@pytest.fixture(scope="module")
def dag() -> TypedDAG:
    return graph()


ARITIES = {"phrase": None, "triple": 3, "single": 1}


@functools.cache
def plain_cells() -> dict[str, Cell]:
    """The cells that no test is about, which are compiled once for all."""
    torch.manual_seed(0)
    trials = {kind: Trial(lambda p, x, c: p.linear(x), n) for kind, n in ARITIES.items()}
    return {"word": Word(), **trials}


def check(function: Function, dag: TypedDAG, kind: str, backend: str) -> None:
    """Compares with the cell's own code, for native code also without gradients."""
    torch.manual_seed(0)
    cells = {**plain_cells(), kind: Trial(function, ARITIES[kind])}
    network = Network(SCHEMA, (Up(), cells), learned_absent=["h"]).double()
    nn.init.normal_(network.absent["h"])
    x = {
        t.name: torch.randn(count, WIDTH, dtype=torch.float64)
        for t, count in zip(SCHEMA.types, dag.num_nodes_by_type, strict=True)
    }
    network.run = "eager"
    want = states_and_gradients(network, dag, x)
    network.run = "compiled"
    assert_gives(want, network, dag, x)
    if backend == "native":
        with torch.no_grad():
            assert_gives(want, network, dag, x)


@pytest.mark.parametrize("name", ROWS)
def test_rows_of_nodes(name, dag, backend):
    check(ROWS[name], dag, "triple", backend)


#: All of any number of children, and every third of three and of one.
KINDS = [(name, kind) for name in CHILDREN for kind in ("phrase", "triple", "single")]
FEW = [(name, kind) for n, (name, kind) in enumerate(KINDS) if kind == "phrase" or n // 3 % 3 == 0]


@pytest.mark.parametrize(("name", "kind"), thinned(KINDS, FEW))
def test_any_number_of_children(name, kind, dag, backend):
    check(CHILDREN[name], dag, kind, backend)


@pytest.mark.parametrize("name", STACKS)
def test_a_fixed_number_of_children(name, dag, backend):
    check(STACKS[name], dag, "triple", backend)


#: Of one child.
SINGLES: dict[str, Function] = {
    "rows": lambda p, x, c: c.rows("h") * x,
    "rows and stack": lambda p, x, c: p.linear(c.rows("h")) + c.stack("h")[:, 0],
    "rows as a stack": lambda p, x, c: c.rows("h").view(len(x), 1, WIDTH).sum(1) + x,
    "edge": lambda p, x, c: known(c.edge["vector"]) * c.rows("h") + c.position.unsqueeze(1),
    "expand": lambda p, x, c: torch.relu(p.linear(c.rows("h")) + c.expand(x)),
    "sum of rows": lambda p, x, c: c.sum(c.rows("h") * x) + c.max(c.rows("h")) + c.mean("h"),
    "heads": lambda p, x, c: torch.stack([c.rows("h"), c.sum("h"), x]).mean(0),
}


@pytest.mark.parametrize("name", SINGLES)
def test_one_child(name, dag, backend):
    check(SINGLES[name], dag, "single", backend)
