"""Sums and messages between the processes of one training."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import distributed, nn
from torch.distributed.rendezvous import rendezvous

from graphfold.errors import ProcessError
from graphfold.training.process.launch import is_launched, num_processes
from graphfold.training.trainer import Trainer


@contextmanager
def joined(trainer: Trainer) -> Iterator[None]:
    """Within, the processes of one training know each other.

    Raises:
        ConfigError: if there are others than the trainer asks for.
        ProcessError: if they lose each other.
    """
    count = num_processes(trainer.devices)
    if count == 1:
        yield
        return
    device = own_device(trainer)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    store, number, _ = next(rendezvous("env://"))
    # Processes that torchrun has started again must not find the addresses of those before.
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    store = distributed.PrefixStore(attempt, store)  # type: ignore[attr-defined]
    backend = "nccl" if device.type == "cuda" else "gloo"
    distributed.init_process_group(backend, store=store, rank=number, world_size=count)
    try:
        yield
    except Exception as error:
        # Gloo has no class of its own for it.
        if isinstance(error, distributed.DistError) or "gloo/transport" in str(error):
            raise ProcessError(
                f"process {number} of {count} can no longer reach the others: one of them has "
                "ended, or the network has failed. The checkpoints of whole epochs are kept: the "
                "run goes on with resume=RUN."
            ) from error
        if number > 0:  # of which nothing else is printed
            print(f"error: process {number} of {count}: {error}", file=sys.stderr)
        raise
    finally:
        distributed.destroy_process_group()


def own_device(trainer: Trainer) -> torch.device:
    """The device of this process: of several on a machine each has a GPU of its own."""
    return trainer.device(int(os.environ["LOCAL_RANK"]) if is_launched() else 0)


def world() -> tuple[int, int]:
    """The number of this process among those that compute together, and how many they are."""
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    return 0, 1


def add_up(value: float, device: torch.device) -> float:
    """The sum of a number over all processes."""
    if world()[1] == 1:
        return value
    total = torch.tensor(value, dtype=torch.float64, device=device)
    distributed.all_reduce(total)
    return total.item()


def add_over_processes(parameters: Sequence[nn.Parameter]) -> None:
    """Replaces every gradient by its sum over all processes.

    An absent one counts as zero, and stays absent if no process has one: then no graph of the step
    used the parameter, and the optimizer leaves it as it is, as it does in one process.
    """
    grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
    flat = torch.cat([grad.reshape(-1) for grad in grads])
    has_grad = flat.new_tensor([p.grad is not None for p in parameters])
    flat = torch.cat([flat, has_grad])
    distributed.all_reduce(flat)
    *parts, counts = torch.split(flat, [*(p.numel() for p in parameters), len(parameters)])
    for parameter, part, count in zip(parameters, parts, counts.tolist(), strict=True):
        parameter.grad = part.view_as(parameter) if count else None


def share_buffers(model: nn.Module) -> None:
    """Gives all processes the buffers of the first one, such as statistics of normalisation."""
    for buffer in model.buffers():
        if buffer.dtype is not torch.bool:  # which gloo does not know, and nothing learns
            distributed.broadcast(buffer, 0)


def gather_objects(value: Any) -> list[Any]:
    """The values of all processes, in their order."""
    values: list[Any] = [value]
    if world()[1] > 1:
        values = [None] * world()[1]
        distributed.all_gather_object(values, value)
    return values
