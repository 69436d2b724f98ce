"""Nodes that stand for bonds where bonds have targets."""

from __future__ import annotations

from graphfold.dag import NodeType

#: A bond with a target: its inputs are its two atoms. It has no features, and no cell computes it:
#: `BondReadout` reads its atoms.
BOND_ENDS = NodeType("bond_ends", 2, inputs=("atom",))
