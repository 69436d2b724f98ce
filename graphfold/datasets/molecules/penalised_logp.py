"""Penalised logP of a molecule: how greasy it is, less how hard to make and how large its rings."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from rdkit import Chem
from rdkit.Chem.rdMolDescriptors import CalcCrippenDescriptors

from graphfold.errors import DataError

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
