"""RoundTrial: one round of message passing over a made-up graph."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from torch import Tensor

from graphfold.batching.engine.compiled.compiled_cell import CompiledCell
from graphfold.batching.engine.compiled.rounds import run_compiled_rounds
from graphfold.batching.engine.compiled.trial import Trial
from graphfold.batching.engine.eager import run_eager_rounds
from graphfold.batching.engine.rounds import RoundsInputs
from graphfold.batching.engine.typed_fields import TypedFields
from graphfold.batching.kernels.segment_kernels import NATIVE
from graphfold.batching.scheduling.passes import Rounds
from graphfold.batching.scheduling.schedule import Schedule, build_schedule
from graphfold.dag import EdgeType, GraphBuilder, NodeType, Schema

_SCHEMA = Schema((NodeType("node"),), relations=(EdgeType("link"),))


class RoundTrial(Trial):
    """All nodes are of one type; each reads some others, or itself."""

    in_rounds = True

    def _make(self, most: int) -> None:
        schedule = _schedule(self.size, most)
        (plan,), (unrolled,) = schedule.passes, schedule.unrolled
        assert unrolled is not None
        states = {name: {0: rows} for name, rows in self._states(self.size).items()}
        absent = {
            n: torch.zeros(1, s[0].shape[1], dtype=self.signature.dtype) for n, s in states.items()
        }
        self._inputs = RoundsInputs(
            unrolled=unrolled,
            state=TypedFields(plan, states, absent),
            initial=states,
            absent=absent,
            cells={1: self.cell},  # of type 0 in the first round
            x={1: self._x()},
            shared=self._shared(),
            kernel=NATIVE,
            **self._edges(1, len(plan.edge)),
        )

    def run_compiled(self, compiled: CompiledCell) -> list[Tensor]:
        return self._own(run_compiled_rounds(self._inputs, {1: compiled}))

    def run_eager(self) -> list[Tensor]:
        return self._own(run_eager_rounds(self._inputs, use_native=False))

    def _own(self, found: TypedFields) -> list[Tensor]:
        return [found.part(name, 0) for name in self.cell.fields]


@cache
def _schedule(size: int, most: int) -> Schedule:
    """A round of a graph whose nodes have so many neighbours at most."""
    rng, builder = np.random.default_rng(size + most), GraphBuilder(_SCHEMA)
    nodes = [builder.node("node") for _ in range(size)]
    target = [node for node in nodes for _ in range(rng.integers(0, most + 1))]
    builder.edges("link", rng.integers(0, size, len(target)).tolist(), target)
    builder.output(nodes[-1])
    builder.finish()
    return build_schedule(builder.build(), [Rounds("link", 1)])
