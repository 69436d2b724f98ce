"""CompiledModel: a root block as a module that takes lists of examples."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from graphfold._torch import refuse_script, uncompiled
from graphfold.batching import Batch, Cell, Network, States, Up, build_schedule
from graphfold.batching.engine.refusals import refuse_random
from graphfold.batching.network import check_way
from graphfold.blocks.block import check_blocks, convert_to_block
from graphfold.blocks.block_errors import BlockTypeError, BlockValueError, quoted
from graphfold.blocks.contexts import Depth, run
from graphfold.blocks.inference.infer import gradient_leaves, on_zeros
from graphfold.blocks.inference.typed import transaction
from graphfold.blocks.inference.types import float_dtype_of
from graphfold.blocks.running.cells import FunctionCell, LeafCell
from graphfold.blocks.running.node_types import (
    EXAMPLE,
    NodeTypes,
    Operations,
    output_tensors,
    widen,
)
from graphfold.blocks.running.results import Result, Results
from graphfold.blocks.running.to_graphs import lower, lower_in_processes
from graphfold.dag import Schema, TypedDAG
from graphfold.errors import EngineError

#: The only pass: every node after its inputs.
PASSES = (Up(),)


class CompiledModel(nn.Module):
    """The model of a root block: a module that takes lists of Python examples.

    Its parameters and state dict are those of the modules in the blocks, each once. A function that
    captures any other tensor that requires a gradient is refused when the model runs.

    Args:
        root: a block that takes Python objects (or nothing), or an object that converts to one.
        run: how functions run, "auto", "compiled", "eager" or "reference"; see `Network`.
        policy: which nodes run together; see `graphfold.batching.scheduling.policies`. The default
            runs all leaves at once, and nodes without a reader at the end.
        ragged: whether the output may hold sequences.
        share: whether equal nodes of a batch, over equal nodes, are computed once; not for models
            with dropout or batch normalisation in training.
        backend: what runs compiled functions; see `Network`.

    Raises:
        BlockTypeError: if a type is unknown, a static check fails, or the root gives no tensor.
        BlockValueError: if there is a cycle.
        ConfigError: if functions cannot run in such a way.
    """

    def __init__(
        self,
        root: Any,
        run: str = "auto",
        policy: str = "critical_path",
        ragged: bool = False,
        share: bool = False,
        backend: str = "auto",
    ) -> None:
        super().__init__()
        check_way(run, backend)
        self.root = convert_to_block(root)
        with transaction():  # a root that is refused may still become a part of another
            blocks = check_blocks(self.root)
            self.results = Results(self.root, blocks)
            self.results.check(ragged)
        self.node_types = NodeTypes(Operations.of(blocks))
        self.run, self.backend = run, backend
        self.policy = policy
        self.share = share
        self.blocks = nn.ModuleDict(self.node_types.operations.modules())
        floats = {k.torch_dtype for k in output_tensors(blocks) if k.is_floating_point}
        floats = floats or {torch.get_default_dtype()}
        self._widest = max(floats, key=lambda dtype: torch.finfo(dtype).bits)
        # In a model without parameters, `double()` and `to(device)` change this buffer.
        self._like: Tensor
        self.register_buffer("_like", torch.zeros(0, dtype=self._widest), persistent=False)
        # The network has the same modules, so it is no child: state dicts name them once.
        self._network: list[Network] = []
        self._is_frozen = False
        self._checked: set[tuple[Cell, bool]] = set()  # see _check_cell

    __prepare_scriptable__ = refuse_script

    @uncompiled
    def forward(self, examples: Iterable[Any] | Batch) -> Any:
        """The output of the root; see `Result.output`.

        Args:
            examples: the examples, in any iterable but a string or a dict; or a batch of them.
        """
        return self.result(examples).output

    def result(self, examples: Iterable[Any] | Batch) -> Result:
        """The output of the root and the metrics.

        Args:
            examples: the examples, in any iterable but a string or a dict; or a batch of them.

        Raises:
            BlockTypeError: if a single example is given instead.
        """
        batch = examples if isinstance(examples, Batch) else self.batch(examples)
        return self.collect(batch, self.states(batch))

    def states(self, batch: Batch) -> States:
        """The states of all nodes of a batch.

        Args:
            batch: as `batch` makes it.
        """
        network = self._network_of(batch.dag.schema)
        self.node_types.precision.dtype = self._float_dtype() or self._widest
        with ExitStack() as guards:
            if batch.schedule.sources is not None:
                reason = "equal nodes would share what was drawn. Compile with share=False."
                device = batch.dag.op_type.device
                guards.enter_context(refuse_random("a leaf", device, reason))
            x = self._inputs(batch)
        states: States = network(batch, x)
        return states

    def collect(self, batch: Batch, states: States) -> Result:
        """The output of the root and the metrics, from the states of a batch."""
        return self.results.collect(batch.dag, states, self._float_dtype())

    def lower(self, examples: Iterable[Any], num_workers: int = 0) -> TypedDAG:
        """Records examples as graphs: the slow part, to be done once.

        Args:
            examples: the examples, in any iterable but a string or a dict.
            num_workers: the number of processes that share the work; 0 for this one alone.

        Raises:
            BlockTypeError: if a single example is given, or one does not fit.
            BlockValueError: if the number of workers is negative.
        """
        if not is_iterable(examples):
            raise _single_example(examples)
        if num_workers < 0:
            raise BlockValueError(f"num_workers is {num_workers}. Give 0, or how many there are.")
        try:
            if num_workers and not isinstance(examples, Sequence):
                examples = list(examples)
            if num_workers and len(examples):  # type: ignore[arg-type]
                return lower_in_processes(self.node_types, self.results, examples, num_workers)  # type: ignore[arg-type]
            return lower(self.node_types, self.results, examples)
        except Exception as error:  # of a function that a block calls, too
            if self._is_example(examples):
                raise _single_example(examples) from error
            raise

    def batch(self, examples: Iterable[Any] | TypedDAG) -> Batch:
        """A planned batch of examples, or of graphs made of them, on the model's device."""
        dag = examples if isinstance(examples, TypedDAG) else self.lower(examples)
        batch = Batch(dag, build_schedule(dag, PASSES, self.policy, self.share))
        device = next((t.device for t in chain(self.parameters(), self.buffers())), None)
        return batch if device is None or device.type == "cpu" else batch.to(device)

    def widen(self, dag: TypedDAG) -> TypedDAG:
        """Gives lowered graphs of an earlier or another model the schema of this model."""
        self.node_types.learn(dag.schema)
        return widen(dag, self.node_types.schema)

    def freeze(self) -> CompiledModel:
        """Keeps packed weights between calls, see `Network.freeze`."""
        self._is_frozen = True
        self._network.clear()  # it is made again
        return self

    @property
    def execution(self) -> dict[str, str]:
        """Node type -> how its cell ran the last time, as in `Network`."""
        return self._network[0].execution if self._network else {}

    def __repr__(self) -> str:
        count = sum(parameter.numel() for parameter in self.parameters())
        lines = [f"  {name}: {how}" for name, how in self.execution.items()]
        return "\n".join(
            [
                f"CompiledModel(run={self.run}, {count:,} parameters)",
                *(f"  {line}" for line in self.root.tree().splitlines()),
                *(["execution:", *lines] if lines else []),
            ]
        )

    def _check_cell(self, cell: Cell, results: Iterable[Tensor] = ()) -> None:
        """Refuses a captured tensor that requires a gradient; checks a cell once in each mode.

        Args:
            cell: the cell of a function.
            results: the tensors of a `LeafCell`; a `FunctionCell` is called on zeros instead.

        Raises:
            EngineError: if the function reads a tensor that requires a gradient and belongs to no
                module of the model.
        """
        key = cell, self.training
        if key in self._checked or not torch.is_grad_enabled():
            return
        if isinstance(cell, FunctionCell):
            dtype = self.node_types.precision.dtype
            results = on_zeros(cell.fn, cell.input_type, dtype, self._like.device)
        parameters = set(map(id, self.parameters()))
        for leaf in gradient_leaves(results):
            if id(leaf) not in parameters:
                raise EngineError(
                    f"{cell.block} reads a tensor of shape {list(leaf.shape)} that requires a "
                    "gradient but belongs to no module of the model, so no optimizer would learn "
                    "it. Put it, and the function, into an nn.Module, or pass it with FromTensor."
                )
        self._checked.add(key)

    def _is_example(self, examples: Any) -> bool:
        """True for a sequence that is one example of the root, while its first item is not."""
        if not isinstance(examples, (Sequence, Tensor, np.ndarray)) or not len(examples):
            return False
        return not self._fits(examples[0]) and self._fits(examples)

    def _fits(self, example: Any) -> bool:
        try:
            run(self.root, Depth(), example)
        except Exception:  # the user's functions, called with no example, may raise anything
            return False
        return True

    def _float_dtype(self) -> torch.dtype | None:
        """The dtype of the parameters, else of `double()` and the like; None for each type's."""
        converted = None if self._like.dtype == self._widest else self._like.dtype
        return float_dtype_of([self.blocks]) or converted

    def _network_of(self, schema: Schema) -> Network:
        names = [t.name for t in schema.types if t.name != EXAMPLE]
        if not self._network or self._network[0].schema != schema:
            cells = {name: self.node_types.cell(name) for name in names}
            network = Network(schema, (PASSES[0], cells))
            self._network[:] = [network.freeze() if self._is_frozen else network]
        network = self._network[0]
        network.run, network.backend = self.run, self.backend
        for name in names:
            self.node_types.cell(name).training = self.training
        return network

    def _inputs(self, batch: Batch) -> dict[str, Mapping[str, Tensor]]:
        """The inputs of the engine: for leaves their states, for other nodes their columns."""
        dag, sources = batch.dag, batch.schedule.sources
        dtype = self.node_types.precision.dtype
        inputs: dict[str, Mapping[str, Tensor]] = {}
        for index, node_type in enumerate(dag.schema.types):
            if node_type.name == EXAMPLE:
                continue
            count, columns = dag.num_nodes_by_type[index], dag.features(node_type.name)
            if sources is not None:
                rows = sources[index].node
                count = len(rows)
                columns = {name: column.index_select(0, rows) for name, column in columns.items()}
            cell = self.node_types.cell(node_type.name)
            if isinstance(cell, LeafCell):
                inputs[node_type.name] = cell.compute(count, columns)
                self._check_cell(cell, inputs[node_type.name].values())
            else:  # an empty column has the number of nodes and their dtype
                empty = torch.zeros(count, 0, dtype=dtype, device=dag.op_type.device)
                converted = {
                    name: column.to(dtype) if column.is_floating_point() else column
                    for name, column in columns.items()
                }
                inputs[node_type.name] = {**converted, "rows": empty}
                self._check_cell(cell)
        return inputs


def is_iterable(examples: object) -> bool:
    """True for an iterable that may be a list of examples: no string and no dict."""
    if isinstance(examples, (str, bytes, Mapping)):
        return False
    try:
        iter(examples)  # type: ignore[call-overload]
    except TypeError:
        return False
    return True


def _single_example(example: Any) -> BlockTypeError:
    return BlockTypeError(
        "a compiled model takes a batch of examples, not a single example: "
        f"{quoted(example)}. Put it into a list."
    )


def compile(
    root: Any,
    run: str = "auto",
    policy: str = "critical_path",
    ragged: bool = False,
    share: bool = False,
    backend: str = "auto",
) -> CompiledModel:
    """The model of a root block: `CompiledModel(root, ...)`, with the same options."""
    return CompiledModel(root, run, policy, ragged, share, backend)
