"""Set2Set, gated and attentive readouts, beside what other tests compare with PyTorch Geometric."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from graphfold.layers import AttentiveReadout, GatedReadout, Set2SetReadout

PTR = torch.tensor([0, 3, 3, 4, 6])
READOUTS = [GatedReadout, Set2SetReadout, AttentiveReadout]
every = pytest.mark.parametrize("readout", READOUTS)


def rows() -> Tensor:
    return torch.randn(6, 4, dtype=torch.float64, requires_grad=True)


@every
def test_graphs_do_not_mix_and_empty_ones_are_zero(readout):
    made, h = readout(4).double(), rows()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.uniform_(-1, 1)
    together = made.reduce(h, PTR)
    assert together.shape == (4, made.output_size)
    assert not together[1].any()
    for graph in (0, 2, 3):
        own = h[PTR[graph] : PTR[graph + 1]]
        alone = made.reduce(own, torch.tensor([0, len(own)]))
        torch.testing.assert_close(alone[0], together[graph])
    turned = made.reduce(h[[2, 0, 1, 3, 5, 4]], PTR)
    torch.testing.assert_close(turned, together)


@every
def test_gradcheck(readout):
    torch.manual_seed(0)
    made = readout(4).double()
    assert torch.autograd.gradcheck(lambda h: made.reduce(h, PTR), rows())


def test_gated_is_the_sum_of_gates_times_values():
    made, h = GatedReadout(4).double(), rows()
    each = torch.sigmoid(made.gate(h)) * torch.tanh(made.value(h))
    torch.testing.assert_close(made.reduce(h, PTR)[3], each[4] + each[5])
