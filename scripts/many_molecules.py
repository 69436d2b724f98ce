"""Writes a million different molecules into 20 CSV files: those of ZINC, and variants of them.

A variant has other elements at one to three places where these fit as well: a carbon of a ring
becomes a nitrogen, a methyl group a fluorine, and so on. So sizes, rings and chains stay those of
drug-like molecules. No two of the molecules are equal. Their order is random, by a seed.

    python scripts/many_molecules.py ZINC_FOLDER FOLDER [COUNT]
"""

from __future__ import annotations

import csv
import gzip
import random
import sys
from collections.abc import Iterator
from multiprocessing import Pool
from pathlib import Path

from rdkit import Chem, rdBase
from rdkit.Chem.Crippen import MolLogP

NUM_FILES = 20
SEED = 0

#: Element, aromatic or not, number of hydrogens -> the elements that fit in its place.
SWAPS = {
    (6, True, 1): (7,),
    (7, True, 0): (6,),
    (6, False, 3): (7, 8, 9, 17, 35),
    (6, False, 2): (7, 8, 16),
    (6, False, 1): (7,),
    (8, False, 0): (6, 16),
    (16, False, 0): (6, 8),
    (9, False, 0): (6, 17, 35),
    (17, False, 0): (6, 9, 35),
    (7, False, 1): (6, 8),
}


def zinc(folder: Path) -> list[str]:
    """The SMILES of ZINC."""
    smiles = []
    for path in sorted(folder.glob("*.csv.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as file:
            smiles += [row["smiles"] for row in csv.DictReader(file)]
    return smiles


def varied(smiles: str, rng: random.Random) -> Iterator[tuple[str, float]]:
    """Variants of a molecule without end, some of them equal; the molecule itself at first."""
    whole = Chem.MolFromSmiles(smiles)
    yield Chem.MolToSmiles(whole), MolLogP(whole)
    kinds = [(a.GetAtomicNum(), a.GetIsAromatic(), a.GetTotalNumHs()) for a in whole.GetAtoms()]
    places = [place for place, kind in enumerate(kinds) if kind in SWAPS]
    for _ in range(200 if places else 0):
        molecule = Chem.RWMol(whole)
        for place in rng.sample(places, min(rng.randint(1, 3), len(places))):
            atom = molecule.GetAtomWithIdx(place)
            atom.SetAtomicNum(rng.choice(SWAPS[kinds[place]]))
            atom.SetNumExplicitHs(0)
            atom.SetNoImplicit(False)
        try:
            Chem.SanitizeMol(molecule)
        except ValueError:
            continue
        Chem.AssignStereochemistry(molecule, cleanIt=True, force=True)
        yield Chem.MolToSmiles(molecule), MolLogP(molecule)


def different(given: tuple[str, int]) -> dict[str, float]:
    """So many different variants of a molecule, or as many as there are, with their logP."""
    smiles, count = given
    found: dict[str, float] = {}
    with rdBase.BlockLogs():
        for variant, value in varied(smiles, random.Random(f"{SEED} {smiles}")):
            found.setdefault(variant, value)
            if len(found) == count:
                break
    return found


def main(source: Path, folder: Path, count: int) -> None:
    """Writes `count` molecules, made of those in `source`, into files of `folder`."""
    smiles = zinc(source)
    each = count // len(smiles) + 4
    found: dict[str, float] = {}
    with Pool(2) as pool:
        for more in pool.imap(different, ((text, each) for text in smiles), chunksize=64):
            found |= more
    if len(found) < count:
        raise SystemExit(
            f"{len(found)} different molecules, and {count} are wanted. Ask for fewer."
        )
    rows = random.Random(SEED).sample(sorted(found.items()), count)
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(NUM_FILES):
        with (folder / f"part-{number:02}.csv").open("w", encoding="utf-8", newline="") as file:
            table = csv.writer(file, lineterminator="\n")
            table.writerow(["smiles", "logP"])
            table.writerows([text, f"{value:.5f}"] for text, value in rows[number::NUM_FILES])


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int((sys.argv[3:] or [1_000_000])[0]))
