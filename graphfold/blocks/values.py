"""Values in flight: what stands for a tensor while an example is lowered.

A tensor that comes from the example itself is a numpy array; tuples are tuples, sequences are lists
and endless ones `itertools.repeat`.
"""

from __future__ import annotations

from typing import NamedTuple


class Output(NamedTuple):
    """A tensor that a node will compute."""

    node: int  # its number in the example
    number: int  # which of the node's outputs


class Constant(NamedTuple):
    """A tensor that is the same for every example, perhaps learned."""

    name: str  # of the module that holds it
