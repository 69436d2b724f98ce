"""Programs: a cell's forward and backward over one group as straight-line code.

A cell is traced once, with the size of the group left open; autograd's part in the trace becomes
code as well. What is left of a group is a row of tensor operations: no modules, no autograd graph.
Everything stays as the cell says: a program is used only where it gave the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, fx

from graphfold.batching.lazy import Kind

aten = torch.ops.aten

#: Operations that only make a second handle of the same values.
_HANDLES = (aten.detach.default, aten.alias.default, aten.lift_fresh_copy.default)
_VIEWS = (aten.view.default, aten._unsafe_view.default)
#: Operations that tensors have as methods, which are called faster.
_METHODS = {
    aten.view.default: "view",
    aten._unsafe_view.default: "view",
    aten.t.default: "t",
    aten.expand.default: "expand",
    aten.unsqueeze.default: "unsqueeze",
    aten.squeeze.dims: "squeeze",
    aten.sym_size.int: "size",
}


class Slot(NamedTuple):
    """One tensor that a cell reads.

    Args:
        how: "x", "rows", "sum", "previous", "edge", "ptr", "parent" or "child_count".
        name: of the field, the column or the part of x.
        like: a tensor of its dtype, device and trailing shape.
        per: what its rows belong to: "node", "edge", or "child" for the edges of nodes of fixed
            arity, [group_size, arity, ...]; "ptr" for one row more than nodes.
        needs_grad: whether its gradient is wanted.
    """

    how: str
    name: str
    like: Tensor
    per: str
    needs_grad: bool


class Layout(NamedTuple):
    """What a program's backward returns after the gradients of the slots that need one.

    Args:
        uses: of each deferred use, its kind and the numbers of weight and bias; it returns the
            use's input and the gradient of its output.
        plain: the numbers of the parameters used otherwise; it returns their gradients.
    """

    uses: Sequence[tuple[Kind, int | None, int | None]] = ()
    plain: Sequence[int] = ()


class Program(NamedTuple):
    """Straight-line code for one group.

    Args:
        slots: what it reads.
        constants: (parameters twice) -> what depends on them alone, such as a transposed weight.
        forward: (slots ..., constants ..., places of the outputs ...) -> what backward is given;
            the outputs, in the order of the cell's fields, are written to their places.
        backward: gives functions (saved ..., constants ..., gradients of the outputs ...) -> see
            `Layout`.
        layout: what backward returns.
    """

    slots: tuple[Slot, ...]
    constants: Callable[..., list[Any]]
    forward: Callable[..., list[Any]]
    backward: Backward
    layout: Layout


def make_program(
    graph: fx.Graph,
    slots: Sequence[Slot],
    num_parameters: int,
    dtypes: Sequence[torch.dtype],
    layout: Layout,
) -> Program:
    """Cuts a traced graph in three.

    Args:
        graph: of a function (slots ..., parameters ..., gradients of the outputs ...) -> (outputs
            ..., results ...), where the outputs do not depend on the gradients.
        slots: what it reads.
        num_parameters: how many of its arguments are parameters.
        dtypes: of the places of the outputs.
        layout: what the results are.
    """
    _undo_changes(graph)
    _simplify(graph)
    (result,) = (node for node in graph.nodes if node.op == "output")
    returned = list(result.args[0])
    outputs, results = returned[: len(dtypes)], returned[len(dtypes) :]
    arguments = [node for node in graph.nodes if node.op == "placeholder"]
    read, parameters = arguments[: len(slots)], arguments[len(slots) :][:num_parameters]
    grads = arguments[len(slots) + num_parameters :]
    fixed = _depending_on(graph, parameters)
    forward = (_ancestors(outputs) | set(read)) - fixed
    backward = _ancestors(results) - forward - fixed - set(grads)
    used = [n for node in graph.nodes if node in backward for n in node.all_input_nodes]
    saved = [n for n in dict.fromkeys([*used, *_nodes(results)]) if n in forward]
    inner = [n for node in forward for n in node.all_input_nodes]
    wanted = {*inner, *used, *_nodes(returned)}
    constants = [node for node in graph.nodes if node in fixed and node in wanted]
    places = list(zip(outputs, dtypes, strict=True))
    return Program(
        tuple(slots),
        _function(graph, parameters, fixed, constants),
        _function(graph, [*read, *constants], forward, saved, places),
        Backward(graph, [*saved, *constants], grads, backward, results),
        layout,
    )


class Backward:
    """The code of backward, for whichever outputs have a gradient.

    Args:
        graph: the whole graph.
        known: what backward is given, apart from gradients.
        grads: the gradients of the outputs.
        inside: what is computed in backward.
        results: what it returns.
    """

    def __init__(
        self,
        graph: fx.Graph,
        known: Sequence[fx.Node],
        grads: Sequence[fx.Node],
        inside: set[fx.Node],
        results: Sequence[Any],
    ) -> None:
        self._parts = graph, [*known, *grads], inside, results
        self._grads = grads
        self._functions: dict[frozenset[int], Callable[..., list[Tensor]]] = {}

    def without(self, missing: frozenset[int]) -> Callable[..., list[Tensor]]:
        """(saved ..., constants ..., gradients ...) -> results, see `Layout`.

        What comes from a missing gradient alone is zero, whatever it is multiplied by on the way:
        zeros in its place would become NaN where a derivative is infinite.

        Args:
            missing: the positions of the outputs without a gradient; zeros are passed for them.
        """
        if missing not in self._functions:
            graph, arguments, inside, results = self._parts
            absent = {self._grads[index] for index in missing}
            zero = _from_alone(graph, absent, set(self._grads) - absent, inside) if missing else ()
            self._functions[missing] = _function(graph, arguments, inside, results, zero=zero)
        return self._functions[missing]


def _function(
    graph: fx.Graph,
    arguments: Sequence[fx.Node],
    inside: set[fx.Node],
    returned: Sequence[Any],
    outputs: Sequence[tuple[fx.Node, torch.dtype]] = (),
    zero: Collection[fx.Node] = (),
) -> Callable[..., Any]:
    """A function of its own from some nodes of a graph; it also takes the places of `outputs`.

    Whatever reads a node of `zero`, and is none itself, gets zeros.
    """
    new = fx.Graph()
    names: dict[fx.Node, fx.Node] = {}

    def zeros(node: fx.Node) -> fx.Node:
        return new.call_function(torch.zeros_like, (names[node],)) if node in zero else names[node]

    for node in arguments:
        names[node] = new.placeholder(node.name)
    places = [new.placeholder(f"place_{index}") for index in range(len(outputs))]
    for node in graph.nodes:
        if node in inside and node not in names:
            names[node] = new.node_copy(node, names.__getitem__ if node in zero else zeros)
            _quicken(names[node])
    written: set[fx.Node] = set()
    copies = []
    for (node, dtype), place in zip(outputs, places, strict=True):
        if node not in written and _has_out(node, names[node], dtype):
            written.add(node)
            for other in (node, *_overwritten(node, returned, names)):
                names[other].kwargs = {**names[other].kwargs, "out": place}
        else:
            copies.append(new.call_method("copy_", (place, names[node])))
    # What is not returned is kept for what it writes.
    kept = [*copies, *(names[node] for node in written)]
    new.output(([zeros(n) if isinstance(n, fx.Node) else n for n in returned], kept))
    new.eliminate_dead_code()
    (end,) = (node for node in new.nodes if node.op == "output")
    end.args = (end.args[0][0],)
    function: Callable[..., Any] = fx.GraphModule(torch.nn.Module(), new).forward
    return function


def _overwritten(
    node: fx.Node, returned: Sequence[Any], names: Mapping[fx.Node, fx.Node]
) -> Iterator[fx.Node]:
    """What an output is computed from, element by element, and nothing else needs: so the place of
    the output can hold it until then."""
    while (
        isinstance(node.target, torch._ops.OpOverload) and torch.Tag.pointwise in node.target.tags
    ):
        value = node.meta["val"]
        single = [n for n in node.all_input_nodes if len(n.users) == 1 and n not in returned]
        fitting = [
            n
            for n in single
            if n in names
            and isinstance(n.meta.get("val"), Tensor)
            and n.meta["val"].shape == value.shape
            and _has_out(n, names[n], value.dtype)
        ]
        if not fitting:
            return
        node = fitting[0]
        yield node


def _has_out(node: fx.Node, copy: fx.Node, dtype: torch.dtype) -> bool:
    """Whether an operation can write its result, of this dtype, into a tensor that is there."""
    target = node.target
    if copy.op != "call_function" or not isinstance(target, torch._ops.OpOverload):
        return False
    writer = _writer(target)
    if writer is None or node.meta["val"].dtype != dtype:
        return False
    if copy.target is target:
        copy.target = writer
    return True


def _writer(target: torch._ops.OpOverload) -> torch._ops.OpOverload | None:
    """The overload with the same arguments and `out`; none that computes a result and copies it."""
    wanted = [(a.name, str(a.type)) for a in target._schema.arguments]
    for name in target.overloadpacket.overloads():
        found = getattr(target.overloadpacket, name)
        arguments = [(a.name, str(a.type)) for a in found._schema.arguments if a.name != "out"]
        is_writer = torch.Tag.out in found.tags and torch.Tag.generated not in found.tags
        if is_writer and arguments == wanted:
            return cast(torch._ops.OpOverload, found)
    return None


def _quicken(node: fx.Node) -> None:
    """Lets a node call what is quickest among the names of the same operation."""
    if node.target in _METHODS:
        node.op, node.target = "call_method", _METHODS[node.target]
        return
    if not isinstance(node.target, torch._ops.OpOverload):
        return
    packet = node.target.overloadpacket
    function = getattr(torch, packet.__name__, None)
    plain = packet.__module__.endswith("aten") and not packet.__name__.startswith("_")
    if plain and isinstance(function, type(torch.mm)):
        node.target = function


def _from_alone(
    graph: fx.Graph, absent: set[fx.Node], present: set[fx.Node], inside: set[fx.Node]
) -> set[fx.Node]:
    """The nodes that depend on absent gradients and on no present one."""
    from_absent, from_present = set(absent), set(present)
    for node in graph.nodes:
        if node in inside:
            for found in (from_absent, from_present):
                if not found.isdisjoint(node.all_input_nodes):
                    found.add(node)
    return from_absent - from_present


def _undo_changes(graph: fx.Graph) -> None:
    """Replaces changes in place by new values.

    Raises:
        ValueError: if something else may see the change: the graph does not say so.
    """
    place = {node: index for index, node in enumerate(graph.nodes)}
    for node in list(graph.nodes):
        schema = getattr(node.target, "_schema", None)
        if schema is None or not schema.is_mutable:
            continue
        changed, new = node.args[0], _out_of_place(node.target)
        others = [user for user in changed.users if user is not node]
        is_seen = any(place[user] > place[node] or _is_view(user) for user in others)
        if new is None or is_seen or changed.op == "placeholder" or _is_view(changed):
            raise ValueError(f"it changes a tensor in place ({node.target})")
        node.target = new


def _is_view(node: fx.Node) -> bool:
    """Whether a node may have the memory of what it is computed from."""
    schema = getattr(node.target, "_schema", None)
    return schema is not None and any(r.alias_info is not None for r in schema.returns)


def _out_of_place(target: torch._ops.OpOverload) -> torch._ops.OpOverload | None:
    """The overload that gives what another one writes into its first argument."""
    name = target._schema.name.removeprefix("aten::").removesuffix("_")
    found = getattr(getattr(aten, name, None), target._overloadname, None)
    return None if found is None or found is target else cast(torch._ops.OpOverload, found)


def _simplify(graph: fx.Graph) -> None:
    """Leaves out what does nothing."""
    for node in list(graph.nodes):
        if node.target == aten.relu.default:  # the same under a name that can write into a place
            node.target, node.args = aten.clamp_min.default, (*node.args, 0)
        if node.target in _VIEWS and node.args[0].target in _VIEWS:  # the last shape is what counts
            node.args = (node.args[0].args[0], *node.args[1:])
        if node.target == aten.sum.dim_IntList and _sums_nothing(*node.args):
            node.target, node.args = aten.squeeze.dims, node.args[:2]
        # Autograd multiplies by the factor of an addcmul, which is one.
        times_one = node.target == aten.mul.Scalar and node.args[1] == 1
        if node.target in _HANDLES or times_one:
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)


def _sums_nothing(x: fx.Node, dims: Sequence[int], keepdim: bool = False) -> bool:
    """Whether a sum runs over dimensions of size one, as over the only child of a chain."""
    sizes = [x.meta["val"].shape[dim] for dim in dims]
    return not keepdim and all(isinstance(size, int) and size == 1 for size in sizes)


def _depending_on(graph: fx.Graph, arguments: Sequence[fx.Node]) -> set[fx.Node]:
    """The arguments, and the nodes that are computed from these alone."""
    found = set(arguments)
    for node in graph.nodes:
        inputs = node.all_input_nodes
        if node.op != "output" and inputs and found.issuperset(inputs):
            found.add(node)
    return found


def _ancestors(nodes: Sequence[Any]) -> set[fx.Node]:
    """The nodes and all that they are computed from."""
    stack, found = _nodes(nodes), set()
    while stack:
        node = stack.pop()
        if node not in found:
            found.add(node)
            stack += node.all_input_nodes
    return found


def _nodes(values: Sequence[Any]) -> list[fx.Node]:
    return [value for value in values if isinstance(value, fx.Node)]
