"""What does chemprop's message passing make of a small graph? Golden numbers for a test.

Run it with the Python of an environment where chemprop 2 is installed:

    python scripts/make_chemprop_encoder.py tests/training/run/chemprop_encoder.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import torch

#: The bonds of a graph with a ring and a branch.
BONDS = [(0, 1), (1, 2), (2, 3), (3, 1), (3, 4)]
SIZES = {"d_v": 4, "d_e": 3, "d_h": 5, "depth": 4}


def main(output: Path) -> None:
    """Writes weights, inputs and the states of the atoms."""
    import chemprop
    from chemprop.data import BatchMolGraph
    from chemprop.data.molgraph import MolGraph
    from chemprop.nn import BondMessagePassing

    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    atoms = rng.normal(size=(5, SIZES["d_v"])).round(3).astype(np.float32)
    of_bonds = rng.normal(size=(len(BONDS), SIZES["d_e"])).round(3).astype(np.float32)
    edges = np.array([pair for a, b in BONDS for pair in ((a, b), (b, a))]).T
    reverse = np.arange(edges.shape[1]).reshape(-1, 2)[:, ::-1].flatten()
    graph = MolGraph(atoms, of_bonds.repeat(2, axis=0), edges, reverse)
    encoder = BondMessagePassing(**SIZES).eval()
    with torch.no_grad():
        states = encoder(BatchMolGraph([graph]))
    content = {
        "chemprop": chemprop.__version__,
        "hyper_parameters": {**SIZES, "bias": False, "activation": "relu", "undirected": False},
        "state_dict": {name: value.tolist() for name, value in encoder.state_dict().items()},
        "bonds": BONDS,
        "atom_features": atoms.tolist(),
        "bond_features": of_bonds.tolist(),
        "states": states.tolist(),
    }
    output.write_text(json.dumps(content) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
