"""Penalised logP: how greasy a molecule is, less how hard to make and how large its rings.

And the tables of ZINC molecules whose penalised logP is to be predicted.
"""

from __future__ import annotations

import csv
import io
import random
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from rdkit import Chem
from rdkit.Chem.rdMolDescriptors import CalcCrippenDescriptors

from graphfold.datasets.files.tables import open_table
from graphfold.datasets.molecules.molecule import read_molecule
from graphfold.errors import DataError
from graphfold.files import write_text

#: (mean, standard deviation) over ZINC-250k as You et al. (2018), https://arxiv.org/abs/1806.02473,
#: publish them in their program. Published values make results comparable and let no test molecule
#: into the scale. They took rings from another cycle basis than RDKit's smallest rings.
LOG_P = (2.4570953396190123, 1.434324401111988)
SYNTHETIC_ACCESSIBILITY = (3.0525811293166134, 0.8335207024513095)
RING_EXCESS = (0.0485696876403053, 0.2860212110245455)

#: Atoms of the largest ring that costs nothing.
FREE_RING = 6


class PenalisedLogP(NamedTuple):
    """Penalised logP and its parts.

    Args:
        total: each part standardised: logP less the other two.
        log_p: octanol/water logP by Wildman and Crippen (1999), https://doi.org/10.1021/ci990307l.
        accessibility: score of Ertl and Schuffenhauer (2009),
            https://doi.org/10.1186/1758-2946-1-8, from 1 (easy to make) to 10.
        ring_excess: atoms that the largest ring has over six.
    """

    total: float
    log_p: float
    accessibility: float
    ring_excess: int


def penalised_logp(molecule: Chem.Mol) -> PenalisedLogP:
    """Penalised logP as Kusner et al. (2017), https://arxiv.org/abs/1703.01925, define it.

    Raises:
        DataError: if this rdkit carries no program for the accessibility.
    """
    log_p, _ = CalcCrippenDescriptors(molecule)
    accessibility = _scorer().calculateScore(molecule)
    largest = max(map(len, molecule.GetRingInfo().AtomRings()), default=0)
    excess = max(largest - FREE_RING, 0)
    total = (
        _standardised(log_p, LOG_P)
        - _standardised(accessibility, SYNTHETIC_ACCESSIBILITY)
        - _standardised(excess, RING_EXCESS)
    )
    return PenalisedLogP(total, log_p, accessibility, excess)


def _standardised(value: float, scale: tuple[float, float]) -> float:
    return (value - scale[0]) / scale[1]


@cache
def _scorer() -> Any:
    """RDKit's own program, which its wheels carry among the contributions."""
    try:
        from rdkit.Contrib.SA_Score import sascorer
    except ImportError:
        raise DataError(
            "this rdkit has no rdkit.Contrib.SA_Score, which its wheels carry. Install rdkit with "
            "`pip install --force-reinstall rdkit`, or use another corpus."
        ) from None
    return sascorer


#: The columns of the tables.
COLUMNS = ("smiles", "plogp", "logP", "SA", "ring_excess")


def write_zinc_plogp(
    paths: Mapping[str, Path], sizes: Mapping[str, int], sources: Sequence[Path], seed: int
) -> None:
    """Writes a table for each part: different molecules, drawn at random from the sources.

    Args:
        paths: part -> the table, written whole or not at all.
        sizes: part -> how many molecules.
        sources: tables of molecules with a column `smiles`.
        seed: of the choice.

    Raises:
        DataError: if the sources have too few different molecules.
        RecordError: if RDKit cannot read one of them.
    """
    drawn = _different(sources, seed)
    for part, size in sizes.items():
        text = io.StringIO()
        rows = csv.writer(text, lineterminator="\n")
        rows.writerow(COLUMNS)
        for count in range(size):
            found = next(drawn, None)
            if found is None:
                raise DataError(
                    f"there are molecules for {count} of the {size} records of {part}. Set smaller "
                    "sizes of the parts."
                )
            smiles, molecule = found
            rows.writerow([smiles, *penalised_logp(molecule)])
        write_text(paths[part], text.getvalue())


def _different(sources: Sequence[Path], seed: int) -> Iterator[tuple[str, Chem.Mol]]:
    """Molecules in random order, each once, with their SMILES as it stands in the source."""
    texts = []
    for source in sources:
        table = open_table(source)
        (column,) = table.find(["smiles"], "another table")
        texts += [row.cells[column].strip() for row in table.rows()]
    random.Random(seed).shuffle(texts)
    known = set()
    for text in texts:
        molecule = read_molecule(text)
        canonical = Chem.MolToSmiles(molecule)
        if canonical not in known:
            known.add(canonical)
            yield text, molecule
