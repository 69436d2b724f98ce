"""RoundTrial: one round of message passing over a made-up graph."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from torch import Tensor

from graphfold.batching.children import Children
from graphfold.batching.engine.compiled.compiled_cell import CompiledCell
from graphfold.batching.engine.compiled.rounds import RoundsInputs, run_compiled_rounds
from graphfold.batching.engine.compiled.trial import Trial
from graphfold.batching.engine.links import Links, RoundReader
from graphfold.batching.engine.round_inputs import RoundInputs
from graphfold.batching.engine.selected import Selected
from graphfold.batching.engine.typed_fields import TypedFields
from graphfold.batching.kernels.segment_kernels import NATIVE
from graphfold.batching.scheduling.pass_schedule import PassSchedule
from graphfold.batching.scheduling.passes import Rounds
from graphfold.batching.scheduling.schedule import build_schedule
from graphfold.dag import EdgeType, GraphBuilder, NodeType, Schema

_SCHEMA = Schema((NodeType("node"),), relations=(EdgeType("link"),))
#: How many rows the tables have that cells make of the edges' columns.
_NUM_KINDS = 3


class RoundTrial(Trial):
    """All nodes are of one type; each reads some others, or itself."""

    in_rounds = True

    def _make(self, most: int) -> None:
        signature, plan = self.signature, _plan(self.size, most)
        num_edges = len(plan.edge)
        states = self._states(self.size)
        dtype = signature.dtype
        absent = {n: torch.zeros(1, s.shape[1], dtype=dtype) for n, s in states.items()}
        self._state = TypedFields(plan, {n: {0: state} for n, state in states.items()}, absent)
        self._edge = self._parts(signature.edge, _NUM_KINDS if signature.has_tables else num_edges)
        kind = torch.arange(num_edges) % _NUM_KINDS
        self._number = kind if signature.has_tables else torch.arange(num_edges)
        x = self._x()
        self._inputs = RoundsInputs(
            unrolled=plan.unrolled(1),
            state=self._state,
            begun=frozenset(),
            cells={1: self.cell},  # of type 0 in the first round
            x={1: x},
            edge={} if signature.has_tables else self._edge,
            tables={1: self._edge} if signature.has_tables else {},
            kind=kind if signature.has_tables else None,
            shared=self._shared(),
            kernel=NATIVE,
        )

    def run_compiled(self, compiled: CompiledCell) -> list[Tensor]:
        found = run_compiled_rounds(self._inputs, {1: compiled})
        return [found.part(name, 0) for name in self.cell.fields]

    def run_eager(self) -> list[Tensor]:
        inputs, plan = self._inputs, self._state.plan
        links = Links(plan.groups[0], RoundInputs(plan, len(plan.edge), {}, {}, {}, NATIVE))
        children = Children(
            RoundReader(links, self._state),
            self.size,
            self.cell.arity,
            Selected(self._edge, self._number.index_select(0, plan.edge)),
            inputs.shared,
            NATIVE,
        )
        new = self.cell(inputs.x[1], children)
        return [new[name] for name in self.cell.fields]


@cache
def _plan(size: int, most: int) -> PassSchedule:
    """A round of a graph whose nodes have so many neighbours at most."""
    rng, builder = np.random.default_rng(size + most), GraphBuilder(_SCHEMA)
    nodes = [builder.node("node") for _ in range(size)]
    target = [node for node in nodes for _ in range(rng.integers(0, most + 1))]
    builder.edges("link", rng.integers(0, size, len(target)).tolist(), target)
    builder.output(nodes[-1])
    builder.finish()
    return build_schedule(builder.build(), [Rounds("link", 1)]).passes[0]
