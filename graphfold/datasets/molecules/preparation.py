"""Preparation: salts stripped or refused, and structures standardised, before a graph is made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from rdkit import Chem, rdBase
from rdkit.Chem.MolStandardize import rdMolStandardize

from graphfold.errors import ConfigError, RecordError, did_you_mean, shortened

Salts = Literal["keep", "strip", "refuse"]
Standardize = Literal["none", "cleanup", "parent", "tautomer"]

#: RDKit's functions by name. `cleanup` parts metals, writes groups in one way and puts charges
#: where they belong; `parent` also keeps the largest part only, and neutralises it; `tautomer`
#: cleans up, and takes the canonical tautomer, which may take a second for a molecule.
_FUNCTIONS: Mapping[str, Callable[[Chem.Mol], Chem.Mol]] = {
    "cleanup": rdMolStandardize.Cleanup,
    "parent": rdMolStandardize.ChargeParent,
    "tautomer": rdMolStandardize.TautomerParent,
}


@dataclass(frozen=True)
class Preparation:
    """The changes to a molecule before its graph is made.

    Args:
        salts: "keep" takes salts and mixtures as they are, "strip" leaves the largest of several
            parts, "refuse" takes only molecules in one.
        standardize: "none", or the function of RDKit's `rdMolStandardize`, which comes after.

    Raises:
        ConfigError: with the nearest choice if an option is none.
    """

    salts: Salts = "keep"
    standardize: Standardize = "none"

    def __post_init__(self) -> None:
        for name, kind in (("salts", Salts), ("standardize", Standardize)):
            value, choices = getattr(self, name), get_args(kind)
            if value not in choices:
                raise ConfigError(
                    f"{name} is '{value}'.{did_you_mean(str(value), choices)} Use one of "
                    f"{', '.join(choices)}."
                )

    @property
    def changes(self) -> bool:
        """True if some molecules may be changed or refused."""
        return self != Preparation()

    def changed(self, molecule: Chem.Mol) -> str | None:
        """The SMILES of the prepared molecule, or None if nothing changes.

        Args:
            molecule: the molecule, which is not modified.

        Raises:
            RecordError: if it has several parts and they are refused, or RDKit cannot standardise
                it.
        """
        prepared = molecule
        num_parts = len(Chem.GetMolFrags(molecule)) if self.salts != "keep" else 1
        if num_parts > 1 and self.salts == "refuse":
            raise RecordError(
                f"the molecule has {num_parts} parts that are not bound to each other",
                "Take the counter-ions out, or set data.salts=strip.",
            )
        with rdBase.BlockLogs():
            try:
                if num_parts > 1:
                    prepared = rdMolStandardize.LargestFragmentChooser().choose(prepared)
                if self.standardize != "none":
                    prepared = _FUNCTIONS[self.standardize](prepared)
            except (RuntimeError, ValueError) as error:
                reason = shortened(str(error).splitlines()[0], 160)
                raise RecordError(
                    f"RDKit cannot standardise the molecule ({reason})",
                    "Set data.standardize=none.",
                ) from error
        before, after = Chem.MolToSmiles(molecule), Chem.MolToSmiles(prepared)
        return None if before == after else after
