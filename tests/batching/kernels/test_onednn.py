"""Few rows are left to the default kernel and many cut in two, if a command says so."""

from __future__ import annotations

import pytest
import torch
from engine_cells import PhraseCell, chain, make_batch, make_network, make_x, random_dag, tree_cells
from torch.overrides import TorchFunctionMode

from graphfold.batching.kernels.onednn import FEW_ROWS, addmm, choose_onednn, mm, rows_mm

has_setting = hasattr(torch.backends.mkldnn, "matmul")
pytestmark = pytest.mark.skipif(not has_setting, reason="this torch has one setting for all")


@pytest.fixture(autouse=True)
def usual():
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    choose_onednn(True)
    yield
    choose_onednn(False)
    torch.set_float32_matmul_precision(before)


class Noting(PhraseCell):
    """Notes the number of nodes and the kernel."""

    def forward(self, x, children):
        self.seen.append((children.group_size, torch.backends.mkldnn.matmul.fp32_precision))
        return super().forward(x, children)


@pytest.fixture
def network():
    cell = Noting()
    cell.seen = []
    return make_network(cells=[{**tree_cells(), "phrase": cell}], trace_after=None), cell


def test_few_rows_have_a_kernel_of_their_own(network):
    network, cell = network
    dag = random_dag(20, 0)
    network(make_batch(dag, network), make_x(dag))["h"].sum().backward()
    assert {size > FEW_ROWS for size, _ in cell.seen} == {True, False}
    for size, precision in cell.seen:
        assert precision == ("ieee" if size <= FEW_ROWS else "bf16")
    assert torch.backends.mkldnn.matmul.fp32_precision == "bf16"
    assert torch.get_float32_matmul_precision() == "medium"


def test_the_setting_is_restored_after_an_error(network):
    network, cell = network
    cell.seen = None
    dag = chain(2)
    with pytest.raises(AttributeError):
        network(make_batch(dag, network), make_x(dag))
    assert torch.backends.mkldnn.matmul.fp32_precision == "bf16"


def test_the_library_changes_nothing_by_itself(network):
    network, cell = network
    choose_onednn(False)
    dag = chain(2)
    network(make_batch(dag, network), make_x(dag))
    assert {precision for _, precision in cell.seen} == {"bf16"}


@pytest.mark.parametrize("rows", [0, 1, 63, 64, 65, 128, 200])
@pytest.mark.parametrize("has_place", [False, True])
def test_products_in_blocks_are_the_products(rows, has_place):
    draw = torch.Generator().manual_seed(0)
    x, weight, bias = (torch.randn(s, generator=draw) for s in ((rows, 5), (5, 3), (3,)))
    x, weight, bias = x.double(), weight.double(), bias.double()
    for got, want in (
        (lambda out: addmm(bias, x, weight, out=out), bias + x @ weight),
        (lambda out: mm(x, weight, out=out), x @ weight),
    ):
        place = torch.full((rows, 3), torch.nan, dtype=torch.float64) if has_place else None
        torch.testing.assert_close(got(place), want)
        if place is not None:
            torch.testing.assert_close(place, want)
    torch.testing.assert_close(rows_mm(x, x[:, :2]), x.T @ x[:, :2])


class Shapes(TorchFunctionMode):
    """Notes the rows of every product."""

    def __init__(self):
        super().__init__()
        self.rows = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func in (torch.mm, torch.addmm):
            self.rows.append(args[-2].shape[0])
        return func(*args, **(kwargs or {}))


def test_many_rows_are_cut_where_shapes_come_again():
    weight = torch.randn(5, 3)
    with Shapes() as seen:
        for rows in range(64, 1024):
            mm(torch.randn(rows, 5), weight)
    assert len(set(seen.rows)) == 63 + 15  # the rests, and the multiples of 64
    choose_onednn(False)
    with Shapes() as seen:
        mm(torch.randn(100, 5), weight)
    assert seen.rows == [100]
