"""The products alone: as many and as large as the computation has."""

from __future__ import annotations

import torch
from torch.utils.flop_counter import FlopCounterMode

from graphfold.batching import Batch, Up, build_schedule
from graphfold.bench.products import Product, ProductFloor, group_sizes
from graphfold.bench.treefc import NODE, random_trees


def flops(floor: ProductFloor, phase: str) -> int:
    with FlopCounterMode(display=False) as counter:
        floor.run(phase)
    return counter.get_total_flops()


def test_forward_and_backward_take_the_products_of_linear_layers() -> None:
    weight, frozen = torch.randn(5, 3), torch.randn(2, 4)
    floor = ProductFloor([Product(weight, [7, 1, 2]), Product(frozen, [6], needs_input_grad=False)])
    assert flops(floor, "inference") == 2 * (10 * 5 * 3 + 6 * 2 * 4)
    assert flops(floor, "train") == 2 * (3 * 10 * 5 * 3 + 2 * 6 * 2 * 4)


def test_group_sizes_are_those_of_the_schedule() -> None:
    dag = random_trees(3)
    sizes = group_sizes(Batch(dag, build_schedule(dag, [Up()])), NODE)
    assert sum(sizes) == 3 * 127
    assert len(sizes) == int(dag.depth.max())
