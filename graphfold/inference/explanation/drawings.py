"""Drawings of explained molecules: an SVG file for each molecule and target, beside the output."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

from graphfold.errors import RecordError
from graphfold.files import write_text
from graphfold.inference.explanation.explain import Contributions, Explainer


class Drawings:
    """The folder of the drawings of one output, made with the first of them.

    A file is called after the line of its record, and with several targets after the target too.

    Args:
        output: the file of the predictions; the folder is called after it.
        explainer: what the contributions come from.
    """

    def __init__(self, output: Path, explainer: Explainer) -> None:
        self.folder = drawings_folder(output)
        self.explainer = explainer

    def draw(self, line: int, found: Contributions) -> None:
        """Draws a molecule; other graphs are not drawn, and what cannot be is warned of."""
        if found.smiles is None:
            return
        self.folder.mkdir(exist_ok=True)
        for number, target in enumerate(found.values):
            name = str(line)
            if len(found.values) > 1:
                name += f"_{number}_{re.sub(r'[^A-Za-z0-9]+', '_', target)}"
            try:
                drawing = draw(self.explainer, found, target)
            except RecordError as error:
                warnings.warn(f"line {line} is not drawn: {error.fault}.", stacklevel=2)
                return
            write_text(self.folder / f"{name}.svg", drawing)


def drawings_folder(output: Path) -> Path:
    """The folder of the drawings beside an output: of `a.csv` it is `a_drawings`."""
    return output.with_name(f"{output.name.partition('.')[0]}_drawings")


def draw(explainer: Explainer, found: Contributions, target: str) -> str:
    """A molecule with the contributions to one target, as an SVG element."""
    from graphfold.datasets.molecules.drawing import draw_contributions

    hydrogens = getattr(explainer.predictor.adapter, "explicit_hydrogens", False)
    bonds = found.listed(target, "bond") if "bond" in found.values[target] else []
    atoms = found.listed(target, "atom")
    return draw_contributions(found.smiles or "", atoms, bonds, hydrogens)
