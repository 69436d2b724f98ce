"""Descriptors as targets: numbers of a whole molecule that a model can be pre-trained on."""

from __future__ import annotations

from rdkit.Chem import Descriptors, Mol

from graphfold.datasets.molecules.descriptors import calculate

#: `Ipc` grows exponentially with the size of a molecule, beyond single precision; `AvgIpc`, its
#: mean, is among the others.
LEFT_OUT = ("Ipc",)

#: The largest number that is a target: single precision holds it and its square.
LARGEST = 1e18

#: RDKit's two-dimensional descriptors, in its order.
NAMES = tuple(name for name, _ in Descriptors.descList if name not in LEFT_OUT)


def describe_molecule(molecule: Mol) -> dict[str, float | None]:
    """name -> descriptor; None where it is undefined, or too large for single precision."""
    found = calculate(molecule)
    return {name: _finite(found[name]) for name in NAMES}


def _finite(value: float) -> float | None:
    return value if abs(value) < LARGEST else None  # NaN is not less
