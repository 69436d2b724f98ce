"""Descriptors: numbers of a whole molecule, as further inputs of a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rdkit import Chem, rdBase
from rdkit.Chem import Descriptors as rdkit_descriptors
from rdkit.Chem import rdFingerprintGenerator

from graphfold.dag import Column
from graphfold.errors import ConfigError, did_you_mean
from graphfold.options import as_written, refuse_unread

#: The largest count that a fingerprint keeps: it is stored in a byte.
LARGEST_COUNT = 255


class Descriptors:
    """The descriptors of a molecule, each a column of numbers of its graph.

    - `rdkit2d`: all descriptors of RDKit's `Descriptors.descList`, in its order. One that is
      undefined for a molecule, or not finite in single precision, is missing (NaN).
    - `morgan`: how often each circular substructure occurs (Rogers and Hahn 2010,
      https://doi.org/10.1021/ci100050t), hashed to `fingerprint_size` counts of at most 255;
    - `atom_pairs`: the same of pairs of atoms and the bonds between them (Carhart et al. 1985,
      https://doi.org/10.1021/ci00046a002);
    - `torsions`: the same of paths of four atoms (Nilakantan et al. 1987,
      https://doi.org/10.1021/ci00054a008).

    Args:
        names: the descriptors, in order.
        morgan_radius: the most bonds from the centre of a substructure.
        fingerprint_size: the number of counts of each of the others than `rdkit2d`.
        num_molecules: the molecules of a graph, 2 for a reaction, whose numbers are side by side.

    Attributes:
        columns: the columns of the schema.

    Raises:
        ConfigError: if a name is unknown or repeated, or radius or size are out of range.
    """

    def __init__(
        self,
        names: Sequence[str] = (),
        morgan_radius: int = 2,
        fingerprint_size: int = 2048,
        num_molecules: int = 1,
    ) -> None:
        for name in names:
            if name not in DESCRIPTORS:
                raise ConfigError(
                    f"there are no descriptors '{name}'.{did_you_mean(name, DESCRIPTORS)} Use "
                    f"some of {', '.join(DESCRIPTORS)}."
                )
        if len({*names}) < len(names):
            raise ConfigError(f"descriptors names one twice: {', '.join(names)}. Name each once.")
        if morgan_radius < 0 or fingerprint_size < 1:
            raise ConfigError(
                f"morgan_radius is {morgan_radius} and fingerprint_size {fingerprint_size}. Give a "
                "radius from 0 on and a size from 1 on."
            )
        counts = [name for name in names if name != "rdkit2d"]
        beside, remedy = f"descriptors={as_written(names)}", "Add morgan to descriptors"
        if "morgan" not in names:
            refuse_unread("morgan_radius", morgan_radius, 2, beside, remedy)
        if not counts:
            refuse_unread("fingerprint_size", fingerprint_size, 2048, beside, remedy)
        self.names = tuple(names)
        self.morgan_radius = morgan_radius
        self.fingerprint_size = fingerprint_size
        self.columns = tuple(self._column(name, num_molecules) for name in names)

    def values(self, *molecules: Chem.Mol) -> dict[str, NDArray[np.generic]]:
        """name -> the numbers of its column."""
        return {
            name: np.concatenate([DESCRIPTORS[name](self, molecule) for molecule in molecules])
            for name in self.names
        }

    def _column(self, name: str, num_molecules: int) -> Column:
        if name == "rdkit2d":
            return Column(name, "float32", (num_molecules * len(rdkit_descriptors.descList),))
        return Column(name, "uint8", (num_molecules * self.fingerprint_size,))


def rdkit2d(_: Descriptors, molecule: Chem.Mol) -> NDArray[np.float32]:
    """[number of RDKit's descriptors] NaN where one is undefined."""
    compute: Any = rdkit_descriptors.CalcMolDescriptors  # it has no types
    with rdBase.BlockLogs(), np.errstate(over="ignore"):
        computed = compute(molecule, float("nan"), silent=True)
        values = np.array([*computed.values()], dtype=np.float64).astype(np.float32)
    return np.where(np.isfinite(values), values, np.float32("nan"))


def morgan(options: Descriptors, molecule: Chem.Mol) -> NDArray[np.uint8]:
    """[fingerprint_size] counts of circular substructures."""
    make, size = rdFingerprintGenerator.GetMorganGenerator, options.fingerprint_size
    return _counts(make(radius=options.morgan_radius, fpSize=size), molecule)


def atom_pairs(options: Descriptors, molecule: Chem.Mol) -> NDArray[np.uint8]:
    """[fingerprint_size] counts of pairs of atoms."""
    make, size = rdFingerprintGenerator.GetAtomPairGenerator, options.fingerprint_size
    return _counts(make(fpSize=size), molecule)


def torsions(options: Descriptors, molecule: Chem.Mol) -> NDArray[np.uint8]:
    """[fingerprint_size] counts of paths of four atoms."""
    make, size = rdFingerprintGenerator.GetTopologicalTorsionGenerator, options.fingerprint_size
    return _counts(make(fpSize=size), molecule)


def _counts(generator: Any, molecule: Chem.Mol) -> NDArray[np.uint8]:
    counts: NDArray[np.uint32] = generator.GetCountFingerprintAsNumPy(molecule)
    return counts.clip(max=LARGEST_COUNT).astype(np.uint8)


#: The descriptors by name.
DESCRIPTORS: Mapping[str, Callable[[Descriptors, Chem.Mol], NDArray[np.generic]]] = {
    "rdkit2d": rdkit2d,
    "morgan": morgan,
    "atom_pairs": atom_pairs,
    "torsions": torsions,
}
