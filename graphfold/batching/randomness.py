"""Randomness where equal nodes are computed once: found out, for each should have its own draw."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from graphfold.errors import EngineError


@contextmanager
def refuse_random(what: str, device: torch.device) -> Iterator[None]:
    """Raises if the block draws from torch's generator of the CPU or of `device`.

    Generators of one's own, of torch, numpy or Python, are not seen.

    Args:
        what: what the block runs, for the message.
        device: where the block computes.

    Raises:
        EngineError: if a random number was drawn.
    """
    before = _states(device)
    yield
    if any(not torch.equal(old, new) for old, new in zip(before, _states(device), strict=True)):
        raise EngineError(
            f"{what} drew random numbers, but the schedule computes equal nodes once, so they "
            "would all have the same. Build it with share=False (data.share=false)."
        )


def _states(device: torch.device) -> list[Tensor]:
    states = [torch.get_rng_state()]
    if device.type == "cuda":
        states.append(torch.cuda.get_rng_state(device))
    return states
