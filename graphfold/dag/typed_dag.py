"""TypedDAG: one or many graphs as columns, never a Python object per node."""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from graphfold._torch import is_in_transform, outside_modes
from graphfold.dag.schema import Schema
from graphfold.errors import ShapeError

#: (space, column) -> the strings of the codes of that column.
Dictionaries = Mapping[tuple[str, str], Sequence[str]]


if TYPE_CHECKING:
    tensor_property = cached_property
else:

    class tensor_property(cached_property):
        """A cached property of tensors, computed outside of torch's inference mode and transforms.

        Autograd cannot use a tensor that was made under `torch.inference_mode()`, but a batch that
        is evaluated may be trained on later.
        """

        def __init__(self, function):
            super().__init__(outside_modes(function))


def to_device(value: Any, device: torch.device) -> Any:
    """A tensor on a device, or a tuple or dict of tensors; nothing waits for the device."""
    if isinstance(value, Tensor):
        return value.to(device, non_blocking=True)
    if isinstance(value, dict):
        return {name: to_device(part, device) for name, part in value.items()}
    return tuple(to_device(part, device) for part in value) if isinstance(value, tuple) else value


if TYPE_CHECKING:
    host_property = cached_property
else:

    class host_property(tensor_property):
        """A `tensor_property` of copies on a device, found on the CPU and sent there.

        To sort or to count on a device takes many launches, and the count would be waited for.
        """

        def __init__(self, function):
            def find(self):
                if self.on_cpu is None:
                    return function(self)
                return to_device(getattr(self.on_cpu, function.__name__), self.device)

            super().__init__(functools.wraps(function)(find))


@dataclass(frozen=True, eq=False)
class Relation:
    """Edges of one relation, which may be cyclic, sorted by the node that receives."""

    ptr: Tensor  # [num_nodes + 1] int64, where the edges into each node begin
    index: Tensor  # [num_edges] int64, the node that each edge comes from


@dataclass(frozen=True, eq=False)
class TypedDAG:
    """One or more directed acyclic graphs of typed nodes.

    One instance holds one example, a batch or a whole corpus: the nodes of a graph are contiguous.
    Columns are kept by space (see `Schema.spaces`): row j of "type:word" belongs to the j-th node
    of the type "word" in node order. A missing float is NaN, a missing code is -1.
    """

    schema: Schema
    op_type: Tensor  # [num_nodes] int64, index into schema.types
    input_ptr: Tensor  # [num_nodes + 1] int64, where each node's inputs begin
    input_index: Tensor  # [num_inputs] int64, the inputs in child order; -1 for an absent slot
    batch: Tensor  # [num_nodes] int64, graph that each node belongs to, never decreasing
    num_graphs: int  # stored, since a graph may have no nodes
    depth: Tensor  # [num_nodes] int64, longest path from a node without inputs
    output_ptr: Tensor  # [num_graphs + 1] int64, where each graph's outputs begin
    output_index: Tensor  # [num_outputs] int64, the output nodes, in order
    span: Tensor  # [num_nodes, 2] int64, characters or atoms covered, end excluded; -1 if unknown
    origin: Tensor  # [num_graphs, 3] int64, (file, line, record); file indexes `files`
    columns: Mapping[str, Mapping[str, Tensor]]  # space -> column -> [num_rows, *shape]
    relations: Mapping[str, Relation] = field(default_factory=dict)
    dictionaries: Dictionaries = field(default_factory=dict)  # of the string columns
    files: tuple[str, ...] = ()
    on_cpu: TypedDAG | None = None  # of graphs on a GPU, those that they are a copy of

    @property
    def host(self) -> TypedDAG:
        """The graphs on the CPU, where indices are found without waiting for a GPU."""
        return self.on_cpu or self

    @property
    def device(self) -> torch.device:
        return self.op_type.device

    @property
    def num_nodes(self) -> int:
        return self.op_type.shape[0]

    @property
    def num_inputs(self) -> int:
        return self.input_index.shape[0]

    @host_property
    def node_ptr(self) -> Tensor:
        """[num_graphs + 1] where the nodes of each graph begin."""
        if "node" in self.row_ptrs:
            return self.row_ptrs["node"]
        return pointers(torch.bincount(self.batch, minlength=self.num_graphs))

    @cached_property
    def row_ptrs(self) -> dict[str, Tensor]:
        """Space -> `row_ptr`, computed once: a corpus needs it for each batch."""
        return {}

    @host_property
    def num_nodes_by_type(self) -> list[int]:
        """The number of nodes of each type."""
        return torch.bincount(self.op_type, minlength=len(self.schema.types)).tolist()

    @cached_property
    def plans(self) -> dict[Any, Any]:
        """Passes -> their schedule and the `versions` it is for; written by networks that run."""
        return {}

    @cached_property
    def indices(self) -> dict[Any, Any]:
        """Nodes and kinds of edges, kept here for the next step over the same graphs."""
        return {}

    @property
    def versions(self) -> list[int] | None:
        """Counts of changes in place of the parts of `structure`; None if torch does not count.

        It does not count for tensors of `torch.inference_mode`, nor what numpy or `.data` change.
        """
        try:
            return [part._version for part in _parts(self)]
        except RuntimeError:
            return None

    @property
    def structure(self) -> int:
        """A checksum of types and edges, computed on the CPU.

        Raises:
            ShapeError: if they have been changed in place since the first time: plans of the
                graphs would be wrong.
        """
        checksum = _checksum_outside(self) if is_in_transform() else _checksum(self)
        if vars(self).setdefault("_first_structure", checksum) != checksum:
            raise ShapeError(
                f"types or edges of these {self.num_graphs} graphs with {self.num_nodes} nodes "
                "were changed in place after they had been planned. Build other graphs with "
                "GraphBuilder, and plan those: build_schedule(dag, passes)."
            )
        return checksum

    def __getstate__(self) -> dict[str, Any]:
        """All but plans and indices, which copies make anew."""
        return {k: v for k, v in vars(self).items() if k not in ("plans", "indices")}

    def nodes_of_type(self, name: str) -> Tensor:
        """[num_nodes_of_type] the nodes of one type, in node order."""
        return self._find_nodes(frozenset([self.schema.type_index(name)]))[0]

    def nodes_of_types(self, types: Collection[int]) -> tuple[Tensor, Tensor]:
        """The nodes of some types, in node order, with pointers to each graph's first one; cached.

        Args:
            types: indices into `schema.types`.

        Shape:
            returns: [count], [num_graphs + 1]
        """
        key = frozenset(types)
        if key not in self._nodes_of_types:
            self._nodes_of_types[key] = self._find_nodes(key)
        return self._nodes_of_types[key]

    @cached_property
    def _nodes_of_types(self) -> dict[frozenset[int], tuple[Tensor, Tensor]]:
        return {}

    @outside_modes  # a later training reads them, too
    def _find_nodes(self, types: frozenset[int]) -> tuple[Tensor, Tensor]:
        if self.on_cpu is not None:
            nodes, ptr = to_device(self.on_cpu.nodes_of_types(types), self.device)
            return nodes, ptr
        is_chosen = np.zeros(len(self.schema.types), dtype=bool)
        is_chosen[list(types)] = True
        numbers = is_chosen[self.op_type.numpy()].nonzero()[0]
        begin = np.searchsorted(self.batch.numpy()[numbers], np.arange(self.num_graphs + 1))
        return torch.from_numpy(numbers), torch.from_numpy(begin)

    def row_ptr(self, space: str) -> Tensor:
        """[num_graphs + 1] where the rows of each graph begin in a space of `Schema.spaces`."""
        if space not in self.row_ptrs:
            self.row_ptrs[space] = self._find_rows(space)
        return self.row_ptrs[space]

    @outside_modes
    def _find_rows(self, space: str) -> Tensor:
        if space == "graph":
            return torch.arange(self.num_graphs + 1, device="cpu")
        if space == "node":
            return self.node_ptr
        if space == "inputs":
            return self.input_ptr[self.node_ptr]
        kind, name = space.split(":", 1)
        if kind == "relation":
            return self.relations[name].ptr[self.node_ptr]
        is_type = self.op_type == self.schema.type_index(name)
        return pointers(is_type.long())[self.node_ptr]

    def num_rows(self, space: str) -> int:
        """The number of rows of all graphs in a space of `Schema.spaces`."""
        if space == "graph":
            return self.num_graphs
        if space == "node":
            return self.num_nodes
        if space == "inputs":
            return len(self.input_index)
        kind, name = space.split(":", 1)
        if kind == "relation":
            return len(self.relations[name].index)
        return self.num_nodes_by_type[self.schema.type_index(name)]

    def features(self, type_name: str) -> Mapping[str, Tensor]:
        """The feature columns of one node type, rows in node order."""
        return self.columns[f"type:{type_name}"]

    @property
    def node_targets(self) -> Mapping[str, Tensor]:
        return self.columns["node"]

    def graph_column(self, name: str) -> Tensor:
        """[num_graphs, *shape] a feature or a target of whole graphs."""
        return self.columns["graph"][name]

    def weights(self, space: str = "graph") -> Tensor | None:
        """[num_rows] how often each row of a space counts in training; None if each counts once."""
        column = self.schema.weight
        if column is None:
            return None
        weights = self.graph_column(column.name)
        return weights if space == "graph" else repeat(weights, self.row_ptr(space).diff())

    def strings(self, space: str, name: str) -> list[str | None]:
        """A string column as Python strings; None where the value is missing."""
        words = self.dictionaries[space, name]
        return [None if c < 0 else words[c] for c in self.columns[space][name].tolist()]

    def place(self, graph: int) -> tuple[str, int]:
        """The file and the 1-based line that a graph was read from."""
        file, line, _ = self.origin[graph].tolist()
        return (self.files[file] if 0 <= file < len(self.files) else "?"), line

    def map_tensors(self, function: Callable[[Tensor], Tensor]) -> TypedDAG:
        """A copy with `function` applied to every tensor (a move, a pin)."""
        moved: dict[str, Any] = {name: function(getattr(self, name)) for name in TENSORS}
        return replace(
            self,
            **moved,
            columns={
                space: {name: function(column) for name, column in columns.items()}
                for space, columns in self.columns.items()
            },
            relations={
                name: Relation(function(relation.ptr), function(relation.index))
                for name, relation in self.relations.items()
            },
            on_cpu=None if moved["op_type"].is_cpu else self.on_cpu or self,
        )

    def to(self, device: torch.device | str, non_blocking: bool = False) -> TypedDAG:
        """A copy on `device`."""
        return self.map_tensors(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def __repr__(self) -> str:
        counts = zip(self.schema.types, self.num_nodes_by_type, strict=True)
        types = ", ".join(f"{count} {node_type.name}" for node_type, count in counts)
        return f"TypedDAG({self.num_graphs} graphs, {types}, {self.num_inputs} inputs)"


def _parts(dag: TypedDAG) -> list[Tensor]:
    """The tensors that plans depend on."""
    edges = [part for edges in dag.relations.values() for part in (edges.ptr, edges.index)]
    return [dag.op_type, dag.input_ptr, dag.input_index, *edges]


def _checksum(dag: TypedDAG) -> int:
    checksum = 0
    for part in _parts(dag):  # nodes have numbers of 32 bits: half of the bytes, half of the time
        checksum = zlib.crc32(np.ascontiguousarray(part.numpy(), np.int32).data, checksum)
    return checksum


_checksum_outside = outside_modes(_checksum)


#: The tensors of a `TypedDAG` that are attributes, not values of a mapping.
TENSORS = (
    "op_type",
    "input_ptr",
    "input_index",
    "batch",
    "depth",
    "output_ptr",
    "output_index",
    "span",
    "origin",
)


def pointers(counts: Tensor) -> Tensor:
    """[n + 1] where each of n consecutive runs begins, from their lengths `counts` [n]."""
    ptr = counts.new_zeros(counts.shape[0] + 1)
    torch.cumsum(counts, 0, out=ptr[1:])
    return ptr


def repeat(values: Tensor, counts: Tensor) -> Tensor:
    """Row i of `values` counts[i] times, on the CPU.

    `torch.repeat_interleave` wakes every thread even for a hundred rows, which takes milliseconds
    where cores are shared; numpy's takes microseconds.
    """
    return torch.from_numpy(np.repeat(values.numpy(), counts.numpy(), axis=0))


def ragged_arange(start: Tensor, count: Tensor) -> Tensor:
    """[sum of count] the runs start[i], start[i] + 1, ... of length count[i], one after another."""
    ptr = pointers(count)
    return torch.arange(int(ptr[-1]), device="cpu") + repeat(start - ptr[:-1], count)
