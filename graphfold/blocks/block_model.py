"""BlockModel: blocks as the model of an experiment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from graphfold.batching import Batch, Pass, States
from graphfold.batching.batch import LoweredBatch
from graphfold.blocks.block import walk
from graphfold.blocks.block_errors import BlockTypeError
from graphfold.blocks.function import Function
from graphfold.blocks.graph_objects import Graphs
from graphfold.blocks.inference.types import ResultType, TensorType
from graphfold.blocks.node_rows import ROWS, in_node_order, without_labels
from graphfold.blocks.running.compiled import PASSES, CompiledModel
from graphfold.dag import Schema, TypedDAG
from graphfold.errors import ConfigError, did_you_mean
from graphfold.layers import Head, Model
from graphfold.layers.encoders.feature_encoder import GraphInputs
from graphfold.layers.factories import build
from graphfold.layers.model import Lowering

LEVELS = ("graph", "node", "output")


class BlockModel(Model):
    """A model from a root block and a head.

    The root takes a `graphfold.blocks.graph_objects.Graph`. The rows of the head are the root's
    output, if there is one per graph; if there is one per node, or per output node, they come from
    `NodeRows` inside the root. Inputs of graphs (`Schema.graph_inputs`) are joined to the rows.

    Args:
        schema: the schema of the graphs, its string features encoded as codes.
        root: makes the root block; called with `schema` and `level` if it takes them.
        head: makes the `Head`; called as in `GraphModel`.
        level: the meaning of a row, "graph", "node" or "output" (an output node).
        scalers: target name -> (mean, standard deviation) of the training part.
        run: how functions run, "auto", "compiled", "eager" or "reference"; see `Network`.
        backend: what runs compiled functions; see `Network`.

    Raises:
        ConfigError: if there is no such level, or root or head cannot be made.
        BlockTypeError: if a check of the blocks fails, or they do not give rows of that level.
    """

    def __init__(
        self,
        schema: Schema,
        root: Callable[..., Any],
        head: Callable[..., Head],
        level: str = "graph",
        scalers: Mapping[str, tuple[float, ...]] | None = None,
        run: str = "auto",
        backend: str = "auto",
    ) -> None:
        super().__init__()
        self._made_in = torch.get_default_dtype()  # the blocks know it from their types
        if level not in LEVELS:
            raise ConfigError(
                f"model.level is '{level}'.{did_you_mean(level, LEVELS)} Use one of "
                f"{', '.join(LEVELS)}."
            )
        self.level = level
        self._parts = {"schema": schema, "root": root, "head": head, "scalers": scalers}
        root_block = build(root, schema=schema, level=level)
        self.network = CompiledModel(root_block, run, backend=backend)
        self.inputs = GraphInputs(schema)
        self.head = build(
            head,
            input_size=self._rows_type().shape[-1] + self.inputs.size,
            schema=schema,
            level=level,
            scalers=scalers,
        )
        ndim, wanted = (2, "pairs of vectors") if self.head.pairs else (1, "vectors")
        if self._rows_type().ndim != ndim:
            raise _refusal(self._rows_type(), level, wanted)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and pickles by building the model again: blocks may hold functions of any kind."""
        parts = {
            **self._parts,
            "level": self.level,
            "run": self.network.run,
            "backend": self.network.backend,
        }
        tensors = [*self.parameters(), *self.buffers()]
        modes = [module.training for module in self.modules()]
        learned = [parameter.requires_grad for parameter in self.parameters()]
        return _rebuild, (parts, self._made_in, [t.detach() for t in tensors], modes, learned)

    @property
    def passes(self) -> tuple[Pass, ...]:
        """One pass, every node after its inputs."""
        return PASSES

    @property
    def lowering(self) -> Lowering:
        """The method `lower`."""
        return self.lower

    def lower(self, dag: TypedDAG, num_workers: int = 0) -> TypedDAG:
        """For each graph the graph of its function calls: the slow part, to be done once.

        Args:
            dag: the graphs, encoded.
            num_workers: the number of processes that share the work; 0 for this one alone.

        Raises:
            GraphfoldError: if a graph does not fit the blocks; a note names it.
        """
        lowered = self.network.lower(Graphs(dag), num_workers)
        if self.level != "graph":
            nodes = torch.arange(dag.num_nodes) if self.level == "node" else dag.output_index
            lowered = in_node_order(lowered, self.network.results.metric_slot(ROWS), dag, nodes)
        return replace(without_labels(lowered), origin=dag.origin, files=dag.files)

    def state_parts(self) -> list[Callable[..., Any]]:
        """The modules and the functions in the blocks."""
        functions = (b.fn for b in walk(self.network.root) if isinstance(b, Function))
        return [*self.network.modules(), *functions]

    def states(self, batch: Batch) -> States:
        """The states of all nodes of the lowered graphs."""
        assert isinstance(batch, LoweredBatch)
        states: States = self.network.states(batch.computed)
        return states

    def rows(self, states: States, batch: Batch) -> Tensor:
        """[num_rows, width], or [num_rows, 2, width] for pairs."""
        assert isinstance(batch, LoweredBatch)
        result = self.network.collect(batch.computed, states)
        rows: Tensor = result.output if self.level == "graph" else result.metrics[ROWS]
        joined: Tensor = self.inputs(rows, self.head.row_graph, batch.dag)
        return joined

    def _rows_type(self) -> TensorType:
        """The type of one row.

        Raises:
            BlockTypeError: if the blocks give no rows of the level.
        """
        kind = self.network.root.output_type
        if self.level != "graph":
            kinds = [b.metrics()[ROWS] for b in walk(self.network.root) if ROWS in b.metrics()]
            if not kinds:
                raise BlockTypeError(
                    f"a model with a row for each {self.level} needs NodeRows in its blocks, which "
                    "take (vector, node). Add them, or set level=graph."
                )
            kind = kinds[0]
        if not isinstance(kind, TensorType) or not kind.is_floating_point or not kind.ndim:
            raise _refusal(kind, self.level, "vectors")
        return kind


def _refusal(kind: ResultType | None, level: str, wanted: str) -> BlockTypeError:
    return BlockTypeError(
        f"the head reads {wanted} of floats, but the blocks give {kind} for each {level}. Change "
        "what the root gives, or the head."
    )


def _rebuild(
    parts: Mapping[str, Any],
    made_in: torch.dtype,
    tensors: list[Tensor],
    modes: list[bool],
    learned: list[bool],
) -> BlockModel:
    """Rebuilds a model with the same numbers, modes and devices."""
    default = torch.get_default_dtype()
    torch.set_default_dtype(made_in)
    try:
        with torch.random.fork_rng():  # the numbers that it draws are replaced
            model = BlockModel(**parts)
    finally:
        torch.set_default_dtype(default)
    for target, tensor in zip([*model.parameters(), *model.buffers()], tensors, strict=True):
        target.data = tensor
    for parameter, is_learned in zip(model.parameters(), learned, strict=True):
        parameter.requires_grad_(is_learned)
    for module, mode in zip(model.modules(), modes, strict=True):
        module.training = mode
    return model
