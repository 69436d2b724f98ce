"""A batch: graphs and the schedule that was built for them."""

from __future__ import annotations

import pytest
import torch
from engine_cells import make_batch, make_network, make_x, random_dag
from torch import Tensor


def test_a_batch_that_is_on_a_device_is_itself_there() -> None:
    batch = make_batch(random_dag(1, 0), make_network())
    assert batch.to("cpu") is batch
    moved = batch.to(torch.device("meta"))
    assert moved is not batch
    assert moved.dag.op_type.is_meta
    assert moved.schedule.passes[0].row.is_meta


def test_lightning_converts_what_lies_beside_a_batch() -> None:
    collections = pytest.importorskip("lightning_utilities.core.apply_func")
    dag = random_dag(2, 0)
    batch, x = make_batch(dag, make_network()), make_x(dag)
    found = collections.apply_to_collection((batch, x), Tensor, Tensor.half)
    assert found[0] is batch
    assert all(value.dtype is torch.float16 for value in found[1].values())
