"""Programs call graphfold's kernels where the cell does, and so give its very numbers."""

from __future__ import annotations

import pytest
from engine_cells import make_batch, make_x, random_dag
from program_checks import assert_same, cell_of, num_programs, run, traced, with_engine
from torch import Tensor, nn

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
