"""Few rows are left to the default kernel, if a command says so."""

from __future__ import annotations

import pytest
import torch
from engine_cells import PhraseCell, chain, make_batch, make_network, make_x, random_dag, tree_cells

from graphfold.batching.kernels.onednn import (
    FEW_ROWS,
    choose_onednn,
    is_onednn_at_work,
    product_kernel,
)

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


def test_a_pass_within_a_group_leaves_the_setting_as_it_was():
    device = torch.device("cpu")
    with product_kernel(device) as outer:
        outer.choose(1)
        assert not is_onednn_at_work()
        with product_kernel(device) as inner:
            inner.choose(1)
            inner.choose(FEW_ROWS + 1)
        assert not is_onednn_at_work()
        outer.choose(FEW_ROWS + 1)
        assert is_onednn_at_work()
    assert torch.backends.mkldnn.matmul.fp32_precision == "bf16"
