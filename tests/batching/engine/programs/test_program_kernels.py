"""Programs call graphfold's kernels where the cell does, and so give its very numbers."""

from __future__ import annotations

import pytest
import torch
from engine_cells import make_batch, make_x, random_dag
from program_checks import assert_same, cell_of, num_programs, run, traced, with_engine
from torch import Tensor, nn

from graphfold.batching import Network, Up
from graphfold.dag import GraphBuilder, NodeType, Schema, TypedDAG
from graphfold.layers import ChildSumTreeLSTMCell, LeafLSTMCell, NaryTreeLSTMCell
from graphfold.training.products import products_in_use, use_products

#: More words than 512 / SIZE, so that their tanh is NumPy's.
DAG = random_dag(150, 0)


def floats(dag=DAG):
    return {k: v.detach().float().requires_grad_() for k, v in make_x(dag).items()}


def own_tanh(cell: nn.Module, x: Tensor) -> Tensor:
    return cell.linear(x).tanh()


def tanh_of_torch(cell: nn.Module, x: Tensor) -> Tensor:
    """The tanh within a part of torch: nobody else sees it."""
    return cell.rnn(x)


@pytest.mark.parametrize("function", [own_tanh, tanh_of_torch])
def test_a_program_has_the_very_numbers_of_its_cell(function, numpys):
    network = traced(function, rnn=nn.RNNCell(3, 3)).float()
    want = run(with_engine(network), DAG, floats())
    asked_by_cells = len(numpys)
    run(network, DAG, floats())
    assert num_programs(cell_of(network)) == 1
    del numpys[:]
    assert_same(run(network, DAG, floats()), want, 0)
    assert len(numpys) == asked_by_cells
    assert any(len(shape) for shape in numpys) == (function is own_tanh)


def test_the_reference_and_the_plain_engine_have_torchs(numpys):
    network = traced(own_tanh).float()
    for engine in ("reference", "autograd"):
        other = with_engine(network, engine)
        other(make_batch(DAG, other), floats())
    assert not numpys


def combs() -> TypedDAG:
    """Trees whose groups get smaller, down to a single node."""
    schema = Schema((NodeType("leaf", 0), NodeType("node", 2)))
    builder = GraphBuilder(schema)
    for size in (1, 2, 3, 9, 9):
        top = builder.node("leaf")
        for _ in range(size):
            top = builder.node("node", [top, builder.node("leaf")])
        builder.output(top)
        builder.finish()
    return builder.build()


#: Cells of the node, by what they multiply: all children at once, and each by itself.
CELLS = {"joined": lambda: NaryTreeLSTMCell(0, 150), "each": lambda: ChildSumTreeLSTMCell(0, 150)}


@pytest.mark.parametrize("products", ["default", "onednn"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", CELLS)
def test_programs_have_the_bits_of_cells_in_groups_of_any_size(name, dtype, products):
    torch.manual_seed(0)
    before = products_in_use()
    dag = combs()
    leaves = torch.randn(dag.num_nodes_by_type[0], 30, dtype=dtype, requires_grad=True)
    x = {"leaf": leaves, "node": torch.zeros(dag.num_nodes_by_type[1], 0, dtype=dtype)}
    cells = {"leaf": LeafLSTMCell(30, 150), "node": CELLS[name]()}
    network = Network(dag.schema, [Up()], [cells], trace_after=None).to(dtype)

    def results() -> list[Tensor]:
        h = network(make_batch(dag, network), x)["h"]
        return [h, *torch.autograd.grad(h.pow(2).sum(), [leaves, *network.parameters()])]

    use_products(products)
    try:
        want = results()
        network.trace_after = 1
        for _ in range(2):
            got = results()
    finally:
        use_products(before)
    assert num_programs(network.cells[0]["node"][0]) == 1
    for one, other in zip(got, want, strict=True):
        assert torch.equal(one, other)
