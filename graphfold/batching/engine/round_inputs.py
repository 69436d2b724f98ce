"""What an engine gets for rounds of message passing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from graphfold.batching.kernels.kinds import Kinds, find_kinds
from graphfold.batching.kernels.segment_kernels import Kernel
from graphfold.batching.scheduling.schedule import PassSchedule


@dataclass(frozen=True, eq=False)
class RoundInputs:
    """What is the same in all rounds of a pass."""

    plan: PassSchedule
    num_edges: int  # of the relation
    edge: Mapping[str, Tensor]  # column -> [num_edges, ...] in the order of the relation
    absent: Mapping[str, Tensor]  # field -> [width] what an absent child reads; zeros if not here
    shared: Mapping[str, Tensor]
    kernel: Kernel
    fuse: bool = False  # whether linear layers are native products

    @cached_property
    def edge_kinds(self) -> Kinds:
        """The kinds of the relation's edges."""
        return find_kinds(self.edge, self.num_edges)
