"""Tracing: from the code of a cell to a graph of torch's operations.

The cell runs once on tensors without numbers, of so many nodes and edges as no other size is. Where
one of these sizes appears in the graph, it stands for the number of nodes or edges. The code of the
cell sees neither numbers nor these sizes (see `Guard`), so what it does is the same for all groups.
The cell itself is left as it is, parameters too, so any thread may use it.
"""

from __future__ import annotations

import functools
import gc
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn

import torch
from torch import Tensor, fx

from graphfold._torch import fake_tensors
from graphfold.batching.cell import Cell, NodeInput
from graphfold.batching.check_states import check_state, unknown_field
from graphfold.batching.children import Children, Readable, StateReader
from graphfold.batching.compiler.guard import Guard, counted_len
from graphfold.batching.compiler.recorder import Recorder
from graphfold.batching.compiler.values import Untraceable
from graphfold.batching.kernels.segment import Kernel
from graphfold.batching.places import find_place, place_of_error
from graphfold.errors import GraphfoldError, SchemaError


class Keeping(Untraceable):
    """A cell that keeps tensors which it computes.

    Args:
        reason: the reason why it cannot be compiled.
        made: all tensors that it has computed, which have no numbers.
    """

    def __init__(self, reason: str, made: Sequence[weakref.ref[Tensor]]) -> None:
        super().__init__(reason)
        self._made = made

    def let_go(self) -> bool:
        """Takes them out of lists, dictionaries and caches of functions; True if all are gone.

        What is wanted of a global is not known, so it becomes None.
        """
        gc.collect()  # some may be held by each other alone
        _take_out(alive(self._made))
        return not alive(self._made)


def alive(made: Iterable[weakref.ref[Tensor]]) -> list[Tensor]:
    """The tensors that something still holds."""
    return [tensor for tensor in (own() for own in made) if tensor is not None]


def _take_out(tensors: Sequence[Tensor]) -> None:
    for tensor in tensors:
        for holder in gc.get_referrers(tensor):
            if hasattr(holder, "cache_clear"):
                holder.cache_clear()
            elif isinstance(holder, list) and holder is not tensors:
                holder[:] = [item for item in holder if item is not tensor]
            elif isinstance(holder, dict):
                names = [name for name, value in holder.items() if value is tensor]
                if "__builtins__" in holder:  # the globals of a module
                    holder.update(dict.fromkeys(names))
                else:
                    for name in names:
                        del holder[name]


@dataclass(frozen=True)
class Sizes:
    """The number of nodes and edges in a trace."""

    nodes: int
    edges: int


#: Primes, so that a product with one of them is told from all others.
SIZES = Sizes(1_000_003, 2_000_003)


class Signature(NamedTuple):
    """The inputs of a cell, as far as its program depends on them.

    Args:
        dtype: of all numbers.
        arity: the number of children, or None if it differs.
        x: part of the input -> (shape of a row, dtype, whether it requires a gradient).
        edge: column of the edges -> the same.
        fields: field -> its width, of those that can be read from children.
        given: fields that earlier passes computed -> whether they require a gradient.
        shared: tensor that all nodes may read -> (shape, whether it requires a gradient).
        differentiate: whether backward follows.
        written: the fields that the pass writes.
        has_tables: whether rows of edges are rows of a table, see `Cell.before_edges`.
        in_rounds: whether it is a round of message passing, which reads the round before.
        device: where all tensors are.
        readable: the fields that the cell can read.
        relations: the relations that the pass follows.
    """

    dtype: torch.dtype
    arity: int | None
    x: tuple[tuple[str, tuple[int, ...], torch.dtype, bool], ...]
    edge: tuple[tuple[str, tuple[int, ...], torch.dtype, bool], ...]
    fields: tuple[tuple[str, int], ...]
    given: tuple[tuple[str, bool], ...]
    shared: tuple[tuple[str, tuple[int, ...], torch.dtype, bool], ...]
    differentiate: bool
    written: frozenset[str] = frozenset()
    has_tables: bool = False
    in_rounds: bool = False
    device: torch.device = torch.device("cpu")
    readable: Readable = Readable(frozenset(), frozenset())
    relations: tuple[str, ...] = ()

    def count_edges(self, sizes: Sizes) -> int:
        """The number of edges in a trace."""
        return sizes.edges if self.arity is None else self.arity * sizes.nodes


@dataclass(frozen=True)
class Trace:
    """The graph of a cell.

    Args:
        graph: whose placeholders are named in `arguments`, and which returns the fields in order.
        arguments: what each placeholder is: ("x", part), ("rows", field), ("ptr", "") ...
        constants: name of an attribute in the graph -> the tensor of the cell that it is.
        counted: tensors of the cell that count its calls, each with what a call adds.
        sizes: of the trace.
        made: the tensors that the cell has computed.
        assumes_more: whether the graph holds only for groups of more than one node.
    """

    graph: fx.Graph
    arguments: tuple[tuple[str, str], ...]
    constants: Mapping[str, Tensor]
    counted: Sequence[tuple[Tensor, int]]
    sizes: Sizes
    made: Sequence[weakref.ref[Tensor]] = ()
    assumes_more: bool = False

    def release(self) -> None:
        """Lets go of all that has been computed.

        Raises:
            Untraceable: if something else holds on to it, such as a cache of the cell.
        """
        for node in self.graph.nodes:
            node.meta.clear()
        if alive(self.made):
            gc.collect()  # those that are only held by each other
        if kept := alive(self.made):
            reason = (
                f"it keeps a tensor of {kept[0].dim()} dimensions that it computes, as in a cache "
                "or an attribute. Compute such tensors in __init__ and register them as buffers"
            )
            raise Keeping(reason, self.made)


def trace(cell: Cell, signature: Signature, sizes: Sizes = SIZES) -> Trace:
    """The graph of a cell.

    Args:
        cell: the cell.
        signature: what it may read.
        sizes: the number of nodes and edges that stand for all others.

    Raises:
        Untraceable: if its code depends on numbers in tensors or on how many nodes there are.
    """
    with _as_untraceable():
        mode = fake_tensors()
    with mode, torch.enable_grad():
        given = {
            # Autograd comes along, to tell of derivatives that are not those of torch; no leaves,
            # which may not be changed in place.
            key: torch.empty(
                shape, dtype=dtype, device=signature.device, requires_grad=dtype.is_floating_point
            ).clone()
            for key, (shape, dtype) in _arguments(signature, sizes).items()
        }
    num_edges = sizes.edges if signature.arity is None else None
    line = functools.partial(find_place, _call.__code__)
    guard = Guard(sizes.nodes, num_edges, signature.in_rounds, line)

    def run(*tensors: Tensor) -> list[Tensor]:
        read = dict(zip(given, tensors, strict=True))
        parts, edge, shared = (
            {name: tensor for (how, name), tensor in read.items() if how == wanted}
            for wanted in ("x", "edge", "shared")
        )
        x: NodeInput = parts[""] if list(parts) == [""] else parts
        reader = TracedReader(cell, read, signature)
        size: Any = guard.counted(sizes.nodes)
        arity, readable, relations = signature.arity, signature.readable, signature.relations
        children = Children(reader, size, arity, edge, shared, readable, relations, _KERNEL)
        state = _call(cell, x, children, guard)
        _check(cell, state, sizes)
        returned = [state[name] for name in cell.fields]
        _refuse_own_derivatives(returned)
        return returned

    _operations()
    with torch.set_grad_enabled(signature.differentiate), _as_untraceable(), mode:
        row_dim = functools.partial(find_row_dim, signature, sizes)
        recorder = Recorder(row_dim, guard, signature.differentiate)
        recorder.run(run, [*given.values()])
        if recorder.has_hooks:
            raise Untraceable("it registers hooks on tensors")
    return Trace(
        recorder.graph,
        tuple(given),
        recorder.constants,
        guard.counters,
        sizes,
        recorder.made,
        guard.assumes_more,
    )


def _call(cell: Cell, x: NodeInput, children: Children, guard: Guard) -> Mapping[str, Tensor]:
    """Runs the code of a cell; messages name its lines, which are those below this function."""
    try:
        with guard, counted_len():
            state: Mapping[str, Tensor] = cell.forward(x, children)
    except GraphfoldError as error:
        cell.note_call(error, "")
        raise
    if guard.refused is not None:  # the cell has caught it
        raise guard.refused
    return state


def find_row_dim(signature: Signature, sizes: Sizes, tensor: Tensor) -> int | None:
    """The dimension of a tensor that has a row for each node or edge, or one more; else None."""
    edges = signature.count_edges(sizes)
    for dim, size in enumerate(tensor.shape):
        if size in (sizes.nodes, sizes.nodes + 1) or (size == edges and (size or dim == 0)):
            return dim
    return None


def _arguments(
    signature: Signature, sizes: Sizes
) -> dict[tuple[str, str], tuple[tuple[int, ...], torch.dtype]]:
    """All that a cell may read: (how, name) -> shape and dtype."""
    nodes, edges, real = sizes.nodes, signature.count_edges(sizes), signature.dtype
    widths = dict(signature.fields)
    before = widths if signature.in_rounds else dict(signature.given)
    of_several = ["relation"] if len(signature.relations) > 1 else []
    integers = "parent", "child_count", "is_self", "position", *of_several
    return {
        **{("x", name): ((nodes, *shape), dtype) for name, shape, dtype, _ in signature.x},
        **{("edge", name): ((edges, *shape), dtype) for name, shape, dtype, _ in signature.edge},
        **{("shared", name): (shape, dtype) for name, shape, dtype, _ in signature.shared},
        **{
            (how, name): ((count, width), real)
            for name, width in widths.items()
            for how, count in (("rows", edges), ("sum", nodes))
        },
        **{
            ("previous", name): ((nodes, widths[name]), real)
            for name in before
            if name in signature.readable.previous
        },
        ("count", ""): ((nodes,), torch.int64),
        ("ptr", ""): ((nodes + 1,), torch.int64),
        **{(name, ""): ((edges,), torch.int64) for name in integers},
    }


def _check(cell: Cell, state: Mapping[str, Tensor], sizes: Sizes) -> None:
    """Checks what a cell returns; messages name the sizes, which stand for numbers."""
    try:
        check_state(cell, state, sizes.nodes)
    except GraphfoldError as error:
        text = error.message.replace("FakeTensor", "Tensor")
        text = text.replace(str(sizes.nodes), "group_size")
        raise type(error)(text.replace(str(sizes.edges), "num_child_edges")) from None


def _refuse_own_derivatives(tensors: Iterable[Tensor]) -> None:
    """Raises Untraceable for a function with a custom derivative."""
    stack, seen = [tensor.grad_fn for tensor in tensors], set()
    while stack:
        node = stack.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if isinstance(node, torch.autograd.function.BackwardCFunction):
            name = type(node).__name__.removesuffix("Backward")
            raise Untraceable(f"it calls {name}, a function with a derivative of its own")
        stack += [before for before, _ in node.next_functions]


@contextmanager
def _as_untraceable() -> Iterator[None]:
    """Tracing runs foreign code on tensors without numbers, which may raise anything."""
    try:
        yield
    except GraphfoldError:
        raise
    except Exception as error:
        lines = str(error).strip().splitlines()
        reason = f"{type(error).__name__}: {lines[0] if lines else ''}"
        if isinstance(error, Untraceable):
            reason = str(error)
        place = place_of_error(error, _call.__code__)
        if place is not None and str(place) not in reason:
            reason = f"{reason} ({place})"
        raise Untraceable(reason) from None  # what is kept of it holds no tensors


@functools.cache
def _operations() -> torch.library.Library:
    """Sums over edges and other operations over children, traced by their shapes alone."""
    library: Any = torch.library.Library("graphfold", "FRAGMENT")  # type: ignore[no-untyped-call]
    shapes: dict[str, Callable[..., Tensor]] = {
        "sum_edges": lambda values, ptr: values.new_empty(ptr.shape[0] - 1, *values.shape[1:]),
        "max_edges": lambda values, ptr: values.new_empty(ptr.shape[0] - 1, *values.shape[1:]),
        "expand_nodes": lambda values, edges: values.new_empty(edges.shape[0], *values.shape[1:]),
    }
    for name, shape in shapes.items():
        library.define(f"{name}(Tensor values, Tensor other) -> Tensor")
        library.impl(name, shape, "Meta")
    return library  # type: ignore[no-any-return]


class TracedReader(StateReader):
    """The stand-in for the children: all that a cell reads of them is an argument of the graph.

    Args:
        cell: the cell that reads.
        given: (how, name) -> what stands for it.
        signature: what the cell may read.
    """

    def __init__(
        self, cell: Cell, given: Mapping[tuple[str, str], Tensor], signature: Signature
    ) -> None:
        self._cell, self._given, self._signature = cell, given, signature
        self.ptr, self.parent = given["ptr", ""], given["parent", ""]

    def rows(self, field: str) -> Tensor:
        return self._read("rows", field)

    def sum(self, field: str, weight: Tensor | None) -> Tensor:
        if weight is None:
            return self._read("sum", field)
        return _KERNEL.sum(self.rows(field) * weight.unsqueeze(-1), self.ptr, self.parent)

    def previous(self, field: str) -> Tensor:
        return self._read("previous", field)

    def count(self) -> Tensor:
        return self._given["count", ""]

    def child_count(self) -> Tensor:
        return self._given["child_count", ""]

    def is_self(self) -> Tensor:
        return self._given["is_self", ""]

    def position(self) -> Tensor:
        return self._given["position", ""]

    def of_relation(self, relation: str) -> tuple[StateReader, Mapping[str, Tensor]]:
        is_own = self._given["relation", ""] == self._signature.relations.index(relation)
        return _RelationReader(self, is_own, self._signature.dtype), _NoColumns()

    def unknown_field(self, field: str, names: Collection[str]) -> SchemaError:
        return unknown_field(self._cell, field, names)

    def _read(self, how: str, field: str) -> Tensor:
        if (how, field) not in self._given:
            raise Untraceable(
                f"it reads '{field}' of an earlier pass, which nodes of several types have"
            )
        given = self._given[how, field]
        # Children are fetched when they are read; where gradients are off, there is none for them.
        differentiate = self._signature.differentiate
        return given if torch.is_grad_enabled() or not differentiate else given.detach()


def _refuse_edges(*_: object) -> NoReturn:
    raise Untraceable(
        "it reads the edges of one of several relations; of these, sums and means of fields, and "
        "counts, are compiled"
    )


class _NoColumns(Mapping[str, Tensor]):
    """The columns of the edges of one of several relations, which programs do not have."""

    __getitem__ = __iter__ = __len__ = _refuse_edges


class _RelationReader(StateReader):
    """The children along one of several relations: sums in which those along others are times 0.

    Args:
        reader: of all children.
        is_own: [num_child_edges] bool, whether an edge is of the relation.
        dtype: of the fields.
    """

    rows = child_count = is_self = position = of_relation = _refuse_edges  # type: ignore[assignment]
    ptr = parent = property(_refuse_edges)

    def __init__(self, reader: TracedReader, is_own: Tensor, dtype: torch.dtype) -> None:
        self._reader, self._is_own, self._dtype = reader, is_own, dtype

    def sum(self, field: str, weight: Tensor | None) -> Tensor:
        own = self._is_own.to(self._dtype) if weight is None else _refuse_edges()
        return self._reader.sum(field, own)

    def previous(self, field: str) -> Tensor:
        return self._reader.previous(field)

    def count(self) -> Tensor:
        return _KERNEL.sum(1 * self._is_own, self._reader.ptr, self._reader.parent)

    def unknown_field(self, field: str, names: Collection[str]) -> SchemaError:
        return self._reader.unknown_field(field, names)


#: Reductions that a trace names.
_KERNEL = Kernel(
    lambda values, ptr, parent: torch.ops.graphfold.sum_edges(values, ptr),
    lambda values, ptr, parent: torch.ops.graphfold.max_edges(values, ptr),
    lambda values, ptr, parent: torch.ops.graphfold.expand_nodes(values, parent),
)
