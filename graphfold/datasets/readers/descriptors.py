"""Molecules whose targets are computed: RDKit's descriptors, to pre-train on."""

from __future__ import annotations

from dataclasses import replace
from functools import wraps
from typing import Any

from graphfold.dag import Column, Schema
from graphfold.datasets.molecules.descriptors import NAMES, describe_molecule
from graphfold.datasets.readers.smiles import SmilesAdapter
from graphfold.errors import ConfigError

#: Options of `SmilesAdapter` that say which cells of a table are targets, and how they are read.
_OF_CELLS = (
    *("target_columns", "atom_target_columns", "bond_target_columns", "task", "num_classes"),
    *("class_names", "positive", "units", "bounded_targets"),
)


class DescriptorsAdapter(SmilesAdapter):
    """Reads molecules as `SmilesAdapter` does; the targets are `NAMES`.

    They are computed once, while a file is packed; no column but that of the SMILES is needed.

    Raises:
        ConfigError: if an option is about columns of targets.
    """

    @wraps(SmilesAdapter.__init__)  # type: ignore[misc]  # for its signature: the same options
    def __init__(self, **options: Any) -> None:
        given = [name for name in _OF_CELLS if options.get(name) not in (None, "regression")]
        useless = [name for name in given if options[name]]
        if useless:
            raise ConfigError(
                f"the targets of the adapter descriptors are computed. Leave "
                f"{' and '.join(useless)} out, or use the adapter smiles."
            )
        super().__init__(**options)

    @property
    def schema(self) -> Schema:
        """That of `SmilesAdapter`, with the descriptors as targets."""
        return self._schema

    @schema.setter
    def schema(self, schema: Schema) -> None:
        targets = tuple(Column(name, "float32") for name in NAMES)
        self._schema = replace(schema, graph_targets=targets)

    computes_more = True  # the targets are computed

    def _computed(self, molecule: Any) -> dict[str, Any]:
        found = super()._computed(molecule)
        return found | describe_molecule(molecule) if self.reads_targets else found
