"""Whether equal nodes of a batch may be computed once: found out by a trial with the model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from graphfold.dag import TypedDAG, select
from graphfold.datasets.data_module import DataModule
from graphfold.errors import EngineError
from graphfold.layers import Model

#: Graphs of a trial; each is there twice, so that there is something to share.
NUM_GRAPHS = 4

#: Products differ a little with the number of rows; masks and means over the batch by far more.
TOLERANCE = 1e-3


def choose_sharing(data: DataModule, part: str, model: Model, training: bool) -> bool:
    """What `data.share` says; where it says "auto", what a trial on a part shows.

    Args:
        data: the data, prepared.
        part: train, val or test.
        model: the model.
        training: whether it trains on the part or is evaluated.
    """
    if data.share != "auto":
        return bool(data.share)
    numbers = data.split.part(part)[:NUM_GRAPHS]
    return can_share(model, select(data.encoded(), numbers), training)


def can_share(model: Model, dag: TypedDAG, training: bool = False) -> bool:
    """Whether a model computes the same when equal nodes of a batch are computed once.

    It does unless something before its readout is random (dropout in training) or looks at the
    whole batch (batch normalisation in training). The model is run on a few graphs both ways, and
    is left as it was, random generators included.

    Args:
        model: the model.
        dag: graphs as the model reads them, on the CPU; the first are tried.
        training: whether the model is to be in training mode.
    """
    few = list(range(min(NUM_GRAPHS, dag.num_graphs)))
    if not few:
        return False
    dag = select(dag, [*few, *few])
    with _as_it_was(model, training):
        try:
            alone, shared = _states(model, dag, share=False), _states(model, dag, share=True)
        except EngineError:
            return False
    return all(_is_close(shared[name], value) for name, value in alone.items())


def _states(model: Model, dag: TypedDAG, share: bool) -> dict[str, Tensor]:
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    batch = model.plan(dag, share=share).to(device)
    return dict(model.states(batch))


def _is_close(got: Tensor, want: Tensor) -> bool:
    scale = float(want.abs().max()) if want.numel() else 0.0
    return torch.allclose(got, want, rtol=TOLERANCE, atol=TOLERANCE * scale, equal_nan=True)


@contextmanager
def _as_it_was(model: Model, training: bool) -> Iterator[None]:
    """The model in a mode, without gradients; what the block changes is put back."""
    was_training = {module: module.training for module in model.modules()}
    buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
    try:
        with torch.random.fork_rng(), torch.no_grad():
            model.train(training)
            yield
    finally:
        with torch.no_grad():
            for buffer, value in buffers:
                buffer.copy_(value)
        for module, mode in was_training.items():
            module.training = mode
