"""The state of every random generator, as tensors and plain values."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch


def seed_generators(seed: int) -> None:
    """Seeds Python's, NumPy's and torch's generators."""
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002
    torch.manual_seed(seed)


def member_seed(seed: int, member: int) -> int:
    """The seed of a member of an ensemble: of the first one that of the run itself.

    Those of the others are far apart, so that runs with neighbouring seeds share no member.
    """
    drawn = np.random.SeedSequence([seed, member]).generate_state(1)
    return seed if member == 0 else int(drawn[0])


def capture_generators() -> dict[str, Any]:
    """The state of Python's, NumPy's, torch's and every GPU's generator."""
    version, words, gauss = random.getstate()
    name, keys, position, has_gauss, cached = np.random.get_state(legacy=True)  # noqa: NPY002
    return {
        "python": {"version": version, "words": torch.tensor(words), "gauss": gauss},
        "numpy": {
            "name": str(name),
            "keys": torch.from_numpy(np.asarray(keys).astype(np.int64)),
            "position": int(position),
            "has_gauss": int(has_gauss),
            "cached": float(cached),
        },
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
    }


def restore_generators(state: dict[str, Any]) -> None:
    """Puts every generator where `capture_generators` found it."""
    python, numpy = state["python"], state["numpy"]
    random.setstate((python["version"], tuple(python["words"].tolist()), python["gauss"]))
    keys = numpy["keys"].numpy().astype(np.uint32)
    rest = (numpy["position"], numpy["has_gauss"], numpy["cached"])
    np.random.set_state((numpy["name"], keys, *rest))  # noqa: NPY002
    torch.set_rng_state(state["torch"].cpu())
    if state["cuda"] and torch.cuda.device_count() == len(state["cuda"]):
        torch.cuda.set_rng_state_all([item.cpu() for item in state["cuda"]])
