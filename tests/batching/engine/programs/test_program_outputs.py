"""Programs of cells with unusual outputs, weights or inputs."""

from __future__ import annotations

import pytest
import torch
from engine_cells import SIZE, chain, make_x, random_dag
from program_checks import SumCell, assert_same, cell_of, check, num_programs, run, traced
from torch import nn

from graphfold.batching import Cell, Down, Network, Up
from graphfold.batching.engine.programs import programs
from graphfold.batching.engine.programs.program import Program
from graphfold.dag import Column, EdgeType, GraphBuilder, NodeType, Schema

DAG = random_dag(5, 2)


def two_values(cell, x):
    return cell.double_linear(x).view(-1, SIZE, 2)


def overwritten(cell, x):
    h = cell.linear(x)
    h[:, 0] = x[:, 1]
    return h


OUTPUTS = {
    "x itself": lambda cell, x: x,
    "x twice": lambda cell, x: {"h": x, "c": x},
    "one tensor twice": lambda cell, x: dict.fromkeys("hc", cell.linear(x)),
    "one in terms of the other": lambda cell, x: {"h": (c := cell.linear(x).tanh()) * 2, "c": c},
    "a column expanded": lambda cell, x: cell.linear(x)[:, :1].expand(-1, SIZE),
    "a bias expanded": lambda cell, x: cell.linear.bias.expand(x.shape[0], SIZE),
    "a transposed slice": lambda cell, x: two_values(cell, x).transpose(1, 2)[:, 1],
    "a slice": lambda cell, x: dict(zip("hc", two_values(cell, x).unbind(2), strict=True)),
    "chunks": lambda cell, x: dict(zip("hc", cell.double_linear(x).chunk(2, 1), strict=True)),
    "flipped": lambda cell, x: cell.linear(x).flip(1),
    "broadcast": lambda cell, x: cell.linear(x) + x[:, :1] * cell.linear.bias[0],
    "no parameter": lambda cell, x: {"h": x.tanh(), "c": x.relu()},
    "constants": lambda cell, x: cell.linear(x) * torch.full_like(x, 0.5) + torch.ones(SIZE),
    "in place": lambda cell, x: cell.linear(x).mul_(2).add_(1),
    "in place where": lambda cell, x: (h := 4 * cell.linear(x)).masked_fill_(h > 0.8, 0.8),
    "sorted": lambda cell, x: cell.linear(x).sort(1).values,
}


@pytest.mark.parametrize("name", OUTPUTS)
def test_unusual_outputs_of_programs(name):
    network = traced(OUTPUTS[name], double_linear=nn.Linear(SIZE, 2 * SIZE))
    check(network)
    assert num_programs(cell_of(network)) == 1


@pytest.mark.parametrize("name", ["written into", "float32"])
def test_other_outputs_are_the_same_whether_or_not_they_have_a_program(name):
    function = {"written into": overwritten, "float32": lambda cell, x: cell.linear(x).float()}
    network = traced(function[name])
    x = make_x(DAG)
    first = run(network, DAG, x)
    assert first["h"].dtype == torch.float64
    for _ in range(2):
        assert_same(run(network, DAG, x), first, 0)


def far_away(dag):
    return {name: (100 * value.detach()).requires_grad_() for name, value in make_x(dag).items()}


def clamped(cell, x):
    h = cell.linear(x)
    h[:, :2].clamp_(-20, 20)
    return h


@pytest.mark.parametrize("wanted", [True, False])
def test_a_part_changed_in_place_where_small_numbers_do_not_show_it(wanted):
    network = traced(clamped)
    network.requires_grad_(wanted)

    def make(dag):
        return {name: value.requires_grad_(wanted) for name, value in far_away(dag).items()}

    check(network, make=make)


class Stretched(Cell):
    """Has rows of x that do not lie in one piece."""

    arity = 0

    def __init__(self) -> None:
        super().__init__()
        self.fields = {"h": SIZE, "c": SIZE}
        self.linear = nn.Linear(2 * SIZE, SIZE)

    def before(self, x):
        return torch.stack([x, x.sin(), x.cos()], 1)[:, :2].transpose(1, 2)

    def forward(self, x, children):
        return {"h": self.linear(x.flatten(1)), "c": x[:, :, 0]}


def test_rows_of_x_need_not_lie_in_one_piece():
    network = traced()
    network.cells[0]["word"][0] = Stretched().double()
    check(network)


# --- Weights


@pytest.mark.parametrize("frozen", ["all", "cell", "weight", "bias"])
def test_frozen_parameters(frozen):
    network = traced()
    cell = cell_of(network)
    parts = {"all": network, "cell": cell}
    parts |= {"weight": cell.linear.weight, "bias": cell.linear.bias}
    parts[frozen].requires_grad_(False)
    check(network)
    check(network, make=lambda dag: {name: t.detach() for name, t in make_x(dag).items()})
    assert num_programs(cell) >= 1


def test_weights_tied_between_cells():
    network = traced()
    cell_of(network, "phrase").linear.weight = cell_of(network).linear.weight
    check(network)
    assert num_programs(cell_of(network)) == num_programs(cell_of(network, "phrase")) == 1


def test_one_cell_for_two_passes():
    cell = SumCell()
    types = ("word", "phrase", "pair")
    network = Network(DAG.schema, [Up(), Down()], [dict.fromkeys(types, cell)] * 2, trace_after=1)
    check(network.double())
    assert num_programs(cell) >= 1


class Previous(Cell):
    """Reads the state of a pass before."""

    def __init__(self) -> None:
        super().__init__()
        self.fields = {"d": SIZE}
        self.linear = nn.Linear(SIZE, SIZE)

    def forward(self, x, children):
        return {"d": self.linear(children.previous("h")) + children.sum("d") + x}


@pytest.mark.parametrize("frozen", [False, True])
def test_a_pass_upon_one_that_is_frozen(frozen):
    up, down = traced(), Previous()
    cells = [{name: cells[0] for name, cells in up.cells[0].items()}]
    cells.append(dict.fromkeys(cells[0], down))
    network = Network(DAG.schema, [Up(), Down()], cells, trace_after=1).double()
    network.cells[0].requires_grad_(not frozen)
    check(network, make=lambda dag: {name: t.detach() for name, t in make_x(dag).items()})


# --- Inputs


class Total(Cell):
    """Of any width: the sum of all that the children have."""

    reads = ("h",)

    def __init__(self) -> None:
        super().__init__()
        self.fields = {"total": 1}
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x, children):
        return {"total": children.sum("h").sum(1, keepdim=True) * self.scale + x[:, :1]}


class Leaf(Cell):
    """A word of some width."""

    arity = 0

    def __init__(self, width: int) -> None:
        super().__init__()
        self.fields = {"h": width}
        self.linear = nn.Linear(SIZE, width)

    def forward(self, x, children):
        return {"h": self.linear(x)}


def test_one_cell_in_networks_of_different_widths():
    total, dag = Total(), star_of_words(0)
    for width in (SIZE, 5):
        cells = {"word": Leaf(width), "phrase": total}
        check(Network(dag.schema, [Up()], [cells], trace_after=1).double(), [dag])


def star_of_words(*labels):
    """A schema with codes on its edges; a phrase of words, one for each label."""
    schema = Schema(
        types=(NodeType("word", 0), NodeType("phrase", None)),
        inputs=EdgeType("inputs", (Column("label", "int64", size=3),)),
    )
    builder = GraphBuilder(schema)
    words = list(builder.nodes("word", 3))
    if labels:
        root = builder.node("phrase")
        builder.inputs(root, words[: len(labels)], label=list(labels))
    builder.output(builder.num_nodes - 1)
    builder.finish()
    return builder.build()


def test_a_batch_without_edges_says_nothing_of_the_cell():
    cell = Leaf(SIZE)
    cells = {"word": cell, "phrase": SumOf()}
    network = Network(star_of_words().schema, [Up()], [cells], trace_after=1).double()
    check(network, [star_of_words(), star_of_words(0, 2)])
    assert num_programs(cell) == 1


class Weighed(Cell):
    """A pair whose children are weighed by a column of their edges."""

    arity = 2

    def __init__(self) -> None:
        super().__init__()
        self.fields = {"h": SIZE, "c": SIZE}
        self.linear = nn.Linear(2 * SIZE, SIZE)

    def forward(self, x, children):
        rows = children.rows("h") * children.edge["weight"].unsqueeze(1)
        return {"h": self.linear(rows.view(-1, 2 * SIZE)) + x, "c": children.sum("c")}


def test_a_cell_of_fixed_arity_may_read_its_edges():
    network = traced()
    network.cells[0]["pair"][0] = Weighed().double()
    check(network)
    assert num_programs(cell_of(network, "pair")) == 1


class SumOf(Cell):
    """The sum of its children."""

    def __init__(self) -> None:
        super().__init__()
        self.fields = {"h": SIZE}

    def forward(self, x, children):
        return {"h": children.sum("h") + x}


def test_inputs_of_several_parts_codes_and_no_width():
    class Parts(Leaf):
        def __init__(self) -> None:
            super().__init__(SIZE)
            self.table = nn.Embedding(2, SIZE)

        def before(self, x):
            return {"code": (x[:, 0] > 0).long(), "empty": x[:, :0].detach(), "value": x}

        def forward(self, x, children):
            joined = torch.cat([x["empty"], x["value"]], 1)
            return {"h": self.linear(joined) + self.table(x["code"])}

    cell = Parts()
    cells = {"word": cell, "phrase": SumOf()}
    network = Network(star_of_words().schema, [Up()], [cells], trace_after=1).double()
    check(network, [star_of_words(0, 1), star_of_words(2)])
    assert num_programs(cell) == 1


def test_a_chain_and_a_star_after_a_trace_of_a_single_node():
    network = traced()
    check(network, [chain(0), chain(1)], times=1)
    check(network, [chain(300)], times=1)
    assert num_programs(cell_of(network, "phrase")) == 1


class NoChildren(Leaf):
    """Stacks the states of its children, of which it has none."""

    reads = ("h",)

    def __init__(self) -> None:
        super().__init__(SIZE)

    def forward(self, x, children):
        return {"h": self.linear(x) + children.stack("h").sum(1) + children.sum("h")}


def test_a_leaf_may_stack_its_children():
    cell = NoChildren()
    cells = {"word": cell, "phrase": SumOf()}
    network = Network(star_of_words().schema, [Up()], [cells], trace_after=1).double()
    check(network, [star_of_words(0, 1), star_of_words(2)])
    assert num_programs(cell) == 1


class Constant(Leaf):
    """Does not look at x, but for one part of it."""

    def before(self, x):
        return {"used": x, "unused": 2 * x, "without gradient": x.detach()}

    def forward(self, x, children):
        return {"h": self.linear(x["used"])}


def test_code_is_given_only_what_it_reads():
    cell = Constant(SIZE)
    cells = {"word": cell, "phrase": SumOf()}
    network = Network(star_of_words().schema, [Up()], [cells], trace_after=1).double()
    check(network, [star_of_words(0, 1), star_of_words(2)])
    (program,) = programs._KNOWN[cell].values()
    assert [slot.name for slot in program.slots] == ["used", "unused", "without gradient"]
    assert "without gradient" not in [program.slots[index].name for index in program.reads]


# --- Memory


def written_over(function):
    """What a program writes over, by the operation that does."""
    nodes = function.__self__.graph.nodes
    over = [(node, node.kwargs["out"]) for node in nodes if "out" in node.kwargs]
    return {node.target.__name__ for node, place in over if place.op != "placeholder"}


OVER = {
    "a sum": (lambda cell, x: (cell.linear(x) * x + 1).exp().cumsum(1), {"mul", "add", "exp"}),
    "read twice": (lambda cell, x: (e := cell.linear(x).exp()) * e.cumsum(1), {"exp"}),
    "a slice": (lambda cell, x: cell.double_linear(x)[:, SIZE:] * x, set()),
    "wider than before": (lambda cell, x: cell.linear(x)[:, :1] * 2 + x, set()),
}


@pytest.mark.parametrize("name", OVER)
def test_results_go_over_what_is_read_for_the_last_time(name):
    function, expected = OVER[name]
    network = traced(function, double_linear=nn.Linear(SIZE, 2 * SIZE))
    check(network)
    with torch.no_grad():  # there backward needs none of it
        for _ in range(2):
            run(
                network,
                DAG,
                {k: v.detach() for k, v in make_x(DAG).items()},
                lambda _: torch.zeros(()),
            )
    kept, free = (p for p in programs._KNOWN[cell_of(network)].values() if isinstance(p, Program))
    assert written_over(free.forward) == expected
    if name == "a sum":  # the derivative of exp is its value
        assert written_over(kept.forward) == {"add", "exp"}
