"""Molecules whose targets are computed: RDKit's descriptors, to pre-train on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from graphfold.dag import Column, Schema
from graphfold.datasets.adapters.smiles import SmilesAdapter
from graphfold.datasets.molecules.descriptor_targets import NAMES, describe_molecule
from graphfold.errors import ConfigError


class DescriptorsAdapter(SmilesAdapter):
    """Reads molecules as `SmilesAdapter` does; the targets are `descriptor_targets.NAMES`.

    They are computed once, while a file is packed; no column but that of the SMILES is needed.

    Raises:
        ConfigError: if target columns are named, too.
    """

    @property
    def schema(self) -> Schema:
        """That of `SmilesAdapter`, with the descriptors as targets."""
        return self._schema

    @schema.setter
    def schema(self, schema: Schema) -> None:
        if schema.graph_targets:
            raise ConfigError(
                "the targets of the adapter descriptors are computed. Leave target_columns out, or "
                "use the adapter smiles."
            )
        targets = tuple(Column(name, "float32") for name in NAMES)
        self._schema = replace(schema, graph_targets=targets)

    computes_more = True  # the targets are computed

    def _computed(self, molecule: Any) -> dict[str, Any]:
        found = super()._computed(molecule)
        return found | describe_molecule(molecule) if self.reads_targets else found
