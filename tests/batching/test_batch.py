"""A batch: graphs and the schedule that was built for them."""

from __future__ import annotations

import dataclasses

import torch
from engine_cells import make_batch, make_network, random_dag

from graphfold.batching import Batch


def test_a_batch_on_the_device_is_returned_unchanged() -> None:
    batch = make_batch(random_dag(1, 0), make_network())
    assert batch.to("cpu") is batch
    moved = batch.to(torch.device("meta"))
    assert moved is not batch
    assert moved.dag.op_type.is_meta
    assert moved.schedule.passes[0].row.is_meta


def test_a_batch_is_no_dataclass() -> None:
    """Lightning takes dataclasses apart, and moves what lies in them by itself."""
    assert not dataclasses.is_dataclass(Batch)
