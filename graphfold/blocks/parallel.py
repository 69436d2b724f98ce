"""Lowering in several processes: each takes a run of the examples, and the runs are joined."""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import TYPE_CHECKING, Any

from graphfold.blocks.lowering import lower
from graphfold.blocks.widen import widen
from graphfold.dag import TypedDAG, collate
from graphfold.errors import ConfigError

if TYPE_CHECKING:
    from graphfold.blocks.compiled import CompiledModel

#: Runs per process, so that one with large examples does not keep the others waiting.
RUNS_PER_PROCESS = 4

#: What the processes find in their copy of the memory: blocks hold functions, which cannot be sent.
_SHARED: dict[str, Any] = {}


def lower_in_processes(model: CompiledModel, examples: Sequence[Any], num_workers: int) -> TypedDAG:
    """The graphs of some examples, as `lower` makes them, their types in the same order.

    Args:
        model: the model.
        examples: the examples.
        num_workers: how many processes.

    Raises:
        ConfigError: if this system cannot fork processes.
        GraphfoldError: if an example does not fit; a note names it.
    """
    if "fork" not in multiprocessing.get_all_start_methods():
        raise ConfigError(
            "examples are lowered by forked processes, which this system lacks. Use num_workers=0."
        )
    size = max(1, -(-len(examples) // (num_workers * RUNS_PER_PROCESS)))
    bounds = [(start, start + size) for start in range(0, len(examples), size)]
    _SHARED["model"], _SHARED["examples"] = model, examples
    try:
        context = multiprocessing.get_context("fork")
        with ProcessPoolExecutor(num_workers, mp_context=context) as pool:
            parts = list(pool.map(_lower_run, bounds))
    finally:
        _SHARED.clear()
    for part in parts:
        model.node_types.learn(part.schema)
    schema = model.node_types.schema
    return collate([widen(part, schema) for part in parts])


def _lower_run(bounds: tuple[int, int]) -> TypedDAG:
    model, examples = _SHARED["model"], _SHARED["examples"]
    return lower(model.node_types, model.results, examples[slice(*bounds)], first=bounds[0])
