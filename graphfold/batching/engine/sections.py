"""Sections: the types of a pass that run together, compiled or eager.

A cell that cannot be compiled takes only its own type out of a compiled pass, and types that it
reads and that read it. The others run in sections of their own, one after the other over the same
plan; in each, the types of other sections are types without a cell, whose state is given.
"""

from __future__ import annotations

from collections.abc import Collection, Set

from graphfold.batching.scheduling.pass_schedule import PassSchedule


def find_sections(plan: PassSchedule, types: Set[int], refused: Collection[int]) -> list[Set[int]]:
    """The types of each section, in an order in which each reads only itself and those before.

    Args:
        plan: of the pass.
        types: those that have cells; those without nodes are in the first section.
        refused: those whose cells cannot be compiled. A section of both kinds runs as it is.
    """
    refused, left = plan.types.keys() & refused, plan.types.keys() & types
    if not refused or left <= refused:
        return [types]
    found: list[Set[int]] = []
    while left:
        parts = [_read_by(plan, op_type, left) for op_type in left]
        compiled = [part for part in parts if not part & refused]
        alike = compiled or [part for part in parts if part <= refused]
        found.append(frozenset().union(*alike) if alike else min(parts, key=len))
        left -= found[-1]
    return [found[0] | types - plan.types.keys(), *found[1:]]


def _read_by(plan: PassSchedule, op_type: int, among: Set[int]) -> Set[int]:
    """A type, with all that it reads of some types, and that these read."""
    found = {op_type}
    while more := {read for reader, read in plan.read_types if reader in found} & among - found:
        found |= more
    return found
