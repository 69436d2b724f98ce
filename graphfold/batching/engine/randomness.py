"""States of random generators, by which randomness is found where it would go wrong silently."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from graphfold.errors import EngineError


@contextmanager
def refuse_random(what: str, device: torch.device, why: str) -> Iterator[None]:
    """Raises if the block draws from torch's generator of the CPU or of `device`.

    Generators of one's own, of torch, numpy or Python, are not seen.

    Args:
        what: what the block runs, for the message.
        device: where the block computes.
        why: what is wrong with that, and what to do.

    Raises:
        EngineError: if a random number was drawn.
    """
    before = generator_states(device)
    yield
    if any(
        not torch.equal(old, new) for old, new in zip(before, generator_states(device), strict=True)
    ):
        raise EngineError(f"{what} drew random numbers, but {why}")


def generator_states(device: torch.device) -> list[Tensor]:
    """Those of torch's generators for the CPU and for a device."""
    states = [torch.get_rng_state()]
    if device.type == "cuda":
        states.append(torch.cuda.get_rng_state(device))
    return states


def restore_generators(states: Sequence[Tensor], device: torch.device) -> None:
    """Sets the generators back to what `generator_states` gave."""
    torch.set_rng_state(states[0])
    if device.type == "cuda":
        torch.cuda.set_rng_state(states[1], device)
