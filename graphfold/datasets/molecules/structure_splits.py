"""Groups of molecules by structure, for splits: Bemis-Murcko scaffolds and Butina clusters.

A reaction counts as its reactants, as in chemprop.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rdkit import rdBase
from rdkit.Chem.rdFingerprintGenerator import GetMorganGenerator
from rdkit.Chem.Scaffolds.MurckoScaffold import MurckoScaffoldSmiles

from graphfold.datasets.molecules.molecule import read_in_silence, read_molecule, sides_of


def murcko_scaffolds(smiles: Sequence[str]) -> list[str]:
    """The scaffold of each molecule as RDKit's canonical SMILES without stereo marks.

    The scaffold is the rings, what links them, and what these hold by double bonds (Bemis and
    Murcko 1996, https://doi.org/10.1021/jm9602928); "" for a molecule without rings.

    Raises:
        RecordError: if RDKit cannot read one of the SMILES.
    """
    scaffold: Any = MurckoScaffoldSmiles  # it has no types
    with rdBase.BlockLogs():
        scaffolds = {
            t: scaffold(mol=read_in_silence(sides_of(t)[0])) for t in dict.fromkeys(smiles)
        }
    return [scaffolds[text] for text in smiles]


#: Molecules of a cluster are at least so similar (Tanimoto) to its centre.
SIMILARITY = 0.35

_RADIUS, _NUM_BITS = 2, 2048

#: Molecules that are compared with all others at once.
_BLOCK = 256


def butina_clusters(smiles: Sequence[str]) -> list[int]:
    """The number of the cluster of each molecule, in the order in which clusters are made.

    The molecule with the most neighbours is the centre of a cluster of all its neighbours, then the
    next of the remaining molecules, by the number of neighbours counted at the start (Butina
    1999, https://doi.org/10.1021/ci9803381); of equal ones the later record comes first. Equals
    `rdkit.ML.Cluster.Butina.ClusterData`, whose distances however need memory for all pairs.

    Neighbours have a Tanimoto similarity of at least `SIMILARITY`, over Morgan fingerprints of
    radius 2 with 2,048 bits.

    Raises:
        RecordError: if RDKit cannot read one of the SMILES.
    """
    generator = GetMorganGenerator(radius=_RADIUS, fpSize=_NUM_BITS)
    bits = np.zeros((len(smiles), _NUM_BITS), np.float32)
    for row, text in enumerate(smiles):
        bits[row, list(generator.GetFingerprint(read_molecule(sides_of(text)[0])).GetOnBits())] = 1
    neighbours = _neighbours(bits)
    counts = [len(near) for near in neighbours]
    cluster = np.full(len(smiles), -1)
    number = 0
    for centre in sorted(range(len(smiles)), key=lambda k: (counts[k], k), reverse=True):
        if cluster[centre] >= 0:
            continue
        near = neighbours[centre]
        cluster[near[cluster[near] < 0]] = number
        cluster[centre] = number  # an empty fingerprint is similar to nothing
        number += 1
    return [int(number) for number in cluster]


def _neighbours(bits: NDArray[np.float32]) -> list[NDArray[np.intp]]:
    """The molecules that are similar to each one; a molecule is similar to itself.

    Counts of common bits are products of matrices, which are several times as fast as
    `BulkTanimotoSimilarity` and its lists; float32 holds them exactly.
    """
    size = bits.sum(1, dtype=np.float64)
    neighbours: list[NDArray[np.intp]] = []
    for first in range(0, len(bits), _BLOCK):
        rows = slice(first, first + _BLOCK)
        common = (bits[rows] @ bits.T).astype(np.float64)
        # A molecule without a bit is similar to none, so to itself neither.
        alike = common / np.maximum(size[rows, None] + size - common, 1) >= SIMILARITY
        neighbours += [np.flatnonzero(row) for row in alike]
    return neighbours
