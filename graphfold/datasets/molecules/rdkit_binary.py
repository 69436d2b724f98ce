"""A molecule as RDKit writes it in binary: all atoms and bonds by one call instead of ten each.

RDKit's `ToBinary` numbers the versions of its form, and this file knows one of them (16.4). It also
knows no atom maps, dummy labels, queries and more than 255 atoms. For all else `cut_molecule` gives
None, and the facts come from RDKit's documented calls (see `fact_table`).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

from rdkit import Chem
from rdkit.Chem.rdchem import BondType, HybridizationType

from graphfold.datasets.molecules.facts import AtomFacts, BondFacts

_HEADER = struct.pack("<I4i", 0xDEADBEEF, 0, 16, 4, 0)
_ATOMS, _BONDS, _RINGS = b"\x80\x01", 0x0B, 0x42  # marks where each part begins
_FIRST_ATOM = 30

# Bits of the second byte of an atom.
_AROMATIC, _NO_IMPLICIT = 0x40, 0x20
# Bits of the third byte of an atom: which values follow, one byte each. `CENTRE` is set where it is
# a stereo centre.
_CHARGE, CENTRE, _HYBRID, _EXPLICIT, _VALENCE, _IMPLICIT, _RADICALS = (1 << i for i in range(1, 8))
# Bits of the first byte of a bond: `STEREO` is set where it has a configuration.
STEREO, _DIRECTION, _ORDER, _CONJUGATED = 0x02, 0x04, 0x08, 0x20
_KNOWN_OF_BONDS = STEREO | _DIRECTION | _ORDER | _CONJUGATED | _AROMATIC


class CutMolecule(NamedTuple):
    """The parts of a molecule's binary form.

    Args:
        atoms: the bytes of each atom; equal atoms have equal bytes.
        ends: [2 * num_bonds] the first and the last atom of each bond.
        bonds: the bytes of each bond without its atoms.
        rings: the numbers of the atoms of each ring, in the order of the ring.
    """

    atoms: list[bytes]
    ends: bytearray
    bonds: list[bytes]
    rings: list[bytes]


def cut_molecule(molecule: Chem.Mol) -> CutMolecule | None:
    """The parts of a sanitised molecule, or None if something in it is unknown here."""
    data: bytes = molecule.ToBinary(0)
    num_atoms, num_bonds = struct.unpack_from("<2i", data, len(_HEADER))
    if not data.startswith(_HEADER) or data[28:30] != _ATOMS or num_atoms > 255:
        return None
    atoms, place = _cut_atoms(data, num_atoms)
    if len(atoms) < num_atoms or data[place] != _BONDS:
        return None
    ends = bytearray()
    bonds: list[bytes] = []
    place += 1
    for _ in range(num_bonds):
        flags = data[place + 2]
        if flags & ~_KNOWN_OF_BONDS:
            return None
        ends += data[place : place + 2]
        after = place + 3 + (flags & _KNOWN_VALUES).bit_count()
        bonds.append(data[place + 2 : after])
        place = after + 1 + data[after] if flags & STEREO else after
    if data[place] != _RINGS:
        return None
    return CutMolecule(atoms, ends, bonds, _cut_rings(data, place + 1))


_KNOWN_VALUES = STEREO | _DIRECTION | _ORDER


def _cut_atoms(data: bytes, num_atoms: int) -> tuple[list[bytes], int]:
    """The bytes of the atoms up to the first unknown one, and the place after them."""
    sizes = _atom_sizes()
    atoms: list[bytes] = []
    place = _FIRST_ATOM
    for _ in range(num_atoms):
        size = sizes.get(data[place + 1 : place + 6])
        if size is None:
            break
        atoms.append(data[place : place + size])
        place += size
    return atoms, place


def _cut_rings(data: bytes, place: int) -> list[bytes]:
    (count,) = struct.unpack_from("<i", data, place)
    place += 4
    rings = []
    for _ in range(count):
        first, place = place + 1, place + 1 + data[place]
        rings.append(data[first:place])
    return rings


@cache
def _atom_sizes() -> Mapping[bytes, int]:
    """The bytes of an atom from the second to the sixth -> how many it has."""
    return {
        struct.pack("<Bi", flags, values | isotope << 8): 6 + values.bit_count() + 4 * isotope
        for flags in (0, _AROMATIC, _NO_IMPLICIT, _AROMATIC | _NO_IMPLICIT)
        for values in range(0, 256, 2)
        for isotope in (0, 1)
    }


def decode_atom(atom: bytes, label: str | None) -> AtomFacts:
    """The facts of an atom, as if it had no neighbours and were in no ring.

    Args:
        atom: its bytes.
        label: its CIP label.
    """
    present, values = atom[2], iter(atom[6:])

    def value(bit: int, default: int = 0) -> int:
        return next(values) if present & bit else default

    charge = value(_CHARGE)
    chiral_tag = value(CENTRE)
    hybridization = value(_HYBRID, int(HybridizationType.SP3))
    hydrogens = value(_EXPLICIT)
    value(_VALENCE)
    hydrogens += value(_IMPLICIT)
    return AtomFacts(
        element=atom[0],
        charge=charge - 256 if charge > 127 else charge,
        chiral_tag=chiral_tag,
        label=label,
        hybridization=hybridization,
        aromatic=bool(atom[1] & _AROMATIC),
        hydrogens=hydrogens,
        degree=hydrogens,
        radicals=value(_RADICALS),
        isotope=int.from_bytes(bytes(values), "little"),
        in_ring=False,
    )


def decode_bond(bond: bytes, label: str | None) -> BondFacts:
    """The facts of a bond, as if it were in no ring.

    Args:
        bond: its bytes.
        label: its CIP label.
    """
    flags = bond[0]
    return BondFacts(
        order=bond[1] if flags & _ORDER else int(BondType.SINGLE),
        stereo=bond[-1] if flags & STEREO else 0,
        label=label,
        conjugated=bool(flags & _CONJUGATED),
        in_ring=False,
    )
