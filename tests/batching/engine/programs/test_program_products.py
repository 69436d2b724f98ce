"""Products of programs: who gets packed weights, and which children stay where they lie."""

from __future__ import annotations

import pytest
import torch
from fusion_checks import WIDTH, joint_of
from torch import nn

from graphfold.batching import Cell, Children
from graphfold.batching.cell import NodeInput, State
from graphfold.batching.engine.programs.joint import Joint
from graphfold.batching.engine.programs.program import Program, Slot
from graphfold.batching.engine.programs.trace import trace
from graphfold.batching.kernels import c_kernels, products
from graphfold.batching.kernels.c_compiler import find_compiler
from graphfold.batching.kernels.products import multiply, pack
from graphfold.batching.kernels.segment_kernels import NATIVE
from graphfold.layers import NaryTreeLSTMCell, TreeFCCell, TreeRNNCell

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="there is no C compiler")


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels of products are taken on any processor."""
    monkeypatch.setattr(products, "are_quick", lambda dtype: dtype in c_kernels.REALS)


class Joined(Cell):
    """Children are multiplied side by side, and `use` decides what else is done with them."""

    arity = 2

    def __init__(self, use: str = "") -> None:
        super().__init__()
        self.fields = {"h": WIDTH}
        self.linear = nn.Linear(2 * WIDTH, WIDTH)
        self.other = nn.Linear(2 * WIDTH, WIDTH, bias=False)
        self.use = use

    def forward(self, x: NodeInput, children: Children) -> State:
        h = children.stack("h")
        found = self.linear(h.flatten(1))
        if self.use == "twice":
            found = found + self.other(h.flatten(1))
        elif self.use == "sum":
            found = found + h.sum(1)
        elif self.use == "product of rows":
            found = found + h.flatten(1) @ h.flatten(1).mean(0).view(-1, 1)
        elif self.use == "own weight":
            found = torch.addmm(found, h.flatten(1), self.other.weight.T)
        elif self.use.startswith("relu"):
            found = torch.relu(found) + (found if self.use == "relu and more" else 1)
        elif self.use == "one bias":
            found = found + torch.addmm(self.linear.bias[:1], h.flatten(1), self.other.weight.T)
        elif self.use == "scaled weight":
            found = found + h.flatten(1) @ (2 * self.other.weight).T
        return {"h": found}


def targets(function: object) -> list[object]:
    return [node.target for node in function.__self__.graph.nodes]  # type: ignore[attr-defined]


def program_of(cell: Cell, has_x: bool = False) -> Program:
    return trace(joint_of(cell, has_x=has_x), fuse=True)


def apart(program: Program) -> list[str]:
    return [slot.name for slot in program.slots if slot.is_apart]


@pytest.mark.parametrize("use", ["", "twice"])
def test_children_that_are_only_multiplied_stay_where_they_lie(use):
    program = program_of(Joined(use))
    assert apart(program) == ["h"]
    products = 1 if not use else 2
    assert targets(program.forward).count(multiply) == products
    assert targets(program.backward.without()).count(multiply) == products
    assert targets(program.constants).count(pack) == 2 * products


@pytest.mark.parametrize("use", ["sum", "product of rows", "scaled weight"])
def test_children_that_are_read_otherwise_are_gathered(use):
    program = program_of(Joined(use))
    assert apart(program) == []
    assert multiply in targets(program.forward)


@pytest.mark.parametrize("use", ["own weight", "one bias"])
def test_what_is_added_has_to_be_a_bias(use):
    program = program_of(Joined(use))
    assert apart(program) == []
    assert targets(program.forward).count(multiply) == 1


@pytest.mark.parametrize(("use", "taken"), [("relu", True), ("relu and more", False)])
def test_a_relu_that_alone_reads_a_product_is_part_of_it(use, taken):
    program = program_of(Joined(use))
    (product,) = [n for n in program.forward.__self__.graph.nodes if n.target is multiply]
    assert (product.args[2:] == (True,)) is taken


class PerEdge(Cell):
    """Each of any number of children is multiplied."""

    arity = None

    def __init__(self) -> None:
        super().__init__()
        self.fields = {"h": WIDTH}
        self.linear = nn.Linear(WIDTH, WIDTH, dtype=torch.float64)

    def forward(self, x: NodeInput, children: Children) -> State:
        return {"h": children.sum(torch.tanh(self.linear(children.rows("h"))))}


def test_children_of_any_number():
    like, number = torch.rand(2, WIDTH, dtype=torch.float64), torch.arange(2)
    slots = [
        Slot("rows", "h", like, "edge", True),
        Slot("parent", "", number, "edge", False),
        Slot("ptr", "", number, "ptr", False),
    ]
    program = trace(Joint(PerEdge(), slots, NATIVE, True, [torch.float64]), fuse=True)
    assert apart(program) == ["h"]
    assert targets(program.forward).count(multiply) == 1


@pytest.mark.parametrize(
    ("cell", "has_x", "expected"),
    [
        (TreeFCCell(WIDTH), False, ["h"]),
        (TreeRNNCell(WIDTH, WIDTH), True, ["h"]),
        (NaryTreeLSTMCell(WIDTH, WIDTH, 2), True, ["h"]),
        (NaryTreeLSTMCell(WIDTH, WIDTH, 1), True, ["h"]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_our_cells(cell, has_x, expected):
    program = program_of(cell, has_x)
    assert apart(program) == expected
    for function in (program.forward, program.backward.without(placed=True)):
        assert not {torch.mm, torch.addmm} & set(targets(function))


def test_plain_programs_have_torch_s_products():
    program = trace(joint_of(Joined(), has_x=False), fuse=False)
    assert apart(program) == []
    assert multiply not in targets(program.forward)


def test_there_are_no_kernels_for_half_precision():
    cell, like = Joined().bfloat16(), torch.rand(2, WIDTH).bfloat16()
    joint = Joint(cell, [Slot("rows", "h", like, "child", True)], NATIVE, True, [torch.bfloat16])
    program = trace(joint, fuse=True)
    assert apart(program) == []
    assert multiply not in targets(program.forward)
