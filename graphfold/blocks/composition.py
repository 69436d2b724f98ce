"""Composition: blocks connected to a graph without cycles."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

from graphfold.blocks.block import Block, Identity, convert_to_block, function_name
from graphfold.blocks.block_errors import BlockTypeError, BlockValueError
from graphfold.blocks.contexts import Context, Steps
from graphfold.blocks.inference.typed import append, assign, transaction
from graphfold.blocks.inference.types import PyObjectType, ResultType, TupleType, VoidType
from graphfold.blocks.selection import GetItem
from graphfold.blocks.wires import SCOPE, Call, Wire, unify

#: The input of a call: (number of an earlier result, its item or None for the result).
Places: TypeAlias = tuple[tuple[int, int | None], ...]


class Composition(Block):
    """Blocks that read each other's results; Looks et al. (2017), section 3.3.

    Three ways to wire them: `compose`, which reads like a function; `reads` within `scope`; or
    `connect`. In a composition a block is connected once, unless it is called (see `compose`).

    Blocks run in the order in which the output needs them. Blocks without a reader, such as
    metrics, run last, in the order in which they were connected.

    Args:
        children: blocks that will be connected; a block is also added when it is connected.

    Attributes:
        input: the input of the composition, for its blocks to read.
        output: the output of the composition, which reads from its blocks.
    """

    is_simple = False

    def __init__(self, children: Sequence[Any] | None = None, name: str | None = None) -> None:
        self._calls: list[Call] = []
        self._by_block: dict[Block, Call] = {}
        self._connected: dict[int, list[Call]] = {}  # id of a block -> calls of it and of readers
        self._plan: list[tuple[Block, Places]] = []
        self._output_places: Places = ()
        super().__init__(name=name)
        self.input = _Placeholder(self, "input", name)
        self.output = _Placeholder(self, "output", name)
        for child in children or ():
            self._call_of(convert_to_block(child))

    @contextmanager
    def scope(self) -> Iterator[Composition]:
        """Lets `reads` connect blocks of this composition within a `with` statement."""
        token = SCOPE.set(self)
        try:
            yield self
        finally:
            SCOPE.reset(token)

    @transaction()
    def connect(self, sources: Any, block: Any) -> None:
        """Connects sources to the input of a block.

        Args:
            sources: a block, one output of it (`block[i]`), or a tuple or list of such.
            block: the block that reads them; a tuple of blocks is converted to one.

        Raises:
            BlockValueError: if the block is connected already, or an end belongs elsewhere.
            BlockTypeError: if the types do not fit.
        """
        block = convert_to_block(block)
        if block is self.input:
            raise BlockValueError("cannot write to composition input. Read from it.")
        wires = self._wires(sources)
        call = self._call_of(block)
        if call.sources is not None:
            raise BlockValueError(
                f"input of block is already connected: {block}. Use another block, or call it in "
                "compose."
            )
        self._attach(call, wires)

    @transaction()
    def call(self, block: Any, sources: Any) -> Wire:
        """Adds a use of a block, or of an object that converts to one; returns its result."""
        call = Call(convert_to_block(block), self)
        append(self._calls, call)
        self._add_child(call.block)
        self._attach(call, self._wires(sources))
        return Wire(call)

    def item(self, source: Any, key: Any) -> Wire:
        """An item of a result; a slice gives a tuple of items."""
        return self.call(GetItem(key), source)

    def check_wiring(self) -> None:
        self._order(self._calls)

    def check(self) -> None:
        """Orders the calls and checks the connections.

        Raises:
            BlockTypeError: if an output is unused, an input unconnected, or the output missing.
        """
        output = self._by_block.get(self.output)
        order = self._checked_order(output)
        if self.input_type is None and all(_is_void(call.block.input_type) for call in order):
            self.set_input_type(VoidType())
        if (output is None or output.sources is None) and not _is_void(self.output_type):
            raise BlockTypeError(
                f"Composition block has no output: {self}. Connect its output, or set the output "
                "type to VoidType."
            )
        for call in order:
            if call.sources is None and not _is_void(call.block.input_type):
                raise BlockTypeError(
                    f"children have unconnected inputs: {call.block} in {self}. Let it read "
                    "something."
                )
        place = {id(self.input): 0} | {id(call): n for n, call in enumerate(order, start=1)}
        self._plan = [(call.block, self._places(call, place)) for call in order]
        if output is not None:
            self._output_places = self._places(output, place)
        super().check()

    def steps(self, context: Context, x: Any) -> Steps:
        results = [x]
        for block, places in self._plan:
            value = _gather(results, places)
            results.append(block.apply(context, value) if block.is_simple else (yield block, value))
        return _gather(results, self._output_places)

    def _attach(self, call: Call, wires: tuple[Wire, ...]) -> None:
        assign(vars(call), "sources", wires)
        for block in {call.block, *(wire.block for wire in wires)}:
            append(self._connected.setdefault(id(block), []), call)
        if not wires:
            call.block.set_input_type(VoidType())
        elif len(wires) > 1:
            call.block.set_input_type_classes(TupleType, PyObjectType)
        for wire in wires:
            if wire.index is not None:
                wire.block.set_output_type_classes(TupleType)
        unify(wires, call.block, self._kind)

    def _call_of(self, block: Block) -> Call:
        """The connection of a block, which is made if it does not exist."""
        if isinstance(block, _Placeholder) and block.composition is not self:
            raise BlockValueError(
                f"{block} is the input or output of a different composition. Read that of {self}."
            )
        call = self._by_block.get(block)
        if call is None:
            call = Call(block, self)
            assign(self._by_block, block, call)
            if not isinstance(block, _Placeholder):
                append(self._calls, call)
                self._add_child(block)
        return call

    def _wires(self, sources: Any) -> tuple[Wire, ...]:
        items = sources if isinstance(sources, (tuple, list)) else [sources]
        return tuple(map(self._wire, items))

    def _wire(self, item: Any) -> Wire:
        wire = item if isinstance(item, Wire) else Wire(convert_to_block(item))
        if wire.source is self.output:
            raise BlockValueError("cannot read from composition output. Write to it.")
        if isinstance(wire.source, Call):
            if wire.source.composition is not self:
                raise BlockValueError(
                    f"{wire} was called in a different composition. Pass its result in."
                )
            return wire
        return Wire(self._call_of(wire.source), wire.index)

    def _infer_from_input(self, kind: ResultType) -> None:
        self.input.set_input_type(kind)

    def _infer_from_output(self, kind: ResultType) -> None:
        self.output.set_input_type(kind)

    def _infer_from_child(self, child: Block) -> None:
        if child is self.input:
            self.set_input_type(child.input_type)
        elif child is self.output:
            self.set_output_type(child.output_type)
        for call in self._connected.get(id(child), ()):
            unify(call.sources or (), call.block, self._kind)

    def _places(self, call: Call, place: dict[int, int]) -> Places:
        places = []
        for wire in call.sources or ():
            key = id(self.input) if wire.block is self.input else id(wire.source)
            places.append((place[key], wire.index))
        return tuple(places)

    def _checked_order(self, output: Call | None) -> list[Call]:
        """All calls, each after its sources: the calls that the output needs, then the others."""
        ends = [*self._calls, *([output] if output else [])]
        read = {id(wire.source) for call in ends for wire in call.sources or ()}
        order = self._order([output] if output else [])[:-1]
        done = {id(call) for call in order}
        unread = [call for call in self._calls if id(call) not in done and id(call) not in read]
        unused = [str(c.block) for c in unread if not _is_void(c.block.output_type)]
        if unused:
            raise BlockTypeError(
                f"children have unused outputs: {', '.join(unused)} in {self}. Read them, or "
                "pipe them to Void()."
            )
        return [*order, *(call for call in self._order(unread) if id(call) not in done)]

    def _order(self, ends: Sequence[Call]) -> list[Call]:
        """Some calls and all their sources, each call after its sources; depth first.

        Raises:
            BlockValueError: if a call reads its own result, directly or through other calls.
        """
        order: list[Call] = []
        finished: dict[int, bool] = {}
        for end in ends:
            stack = [] if id(end) in finished else [(end, iter(end.sources or ()))]
            finished.setdefault(id(end), False)
            while stack:
                call, wires = stack[-1]
                wire = next(wires, None)
                if wire is None:
                    stack.pop()
                    finished[id(call)] = True
                    order.append(call)
                    continue
                source = wire.source
                if not isinstance(source, Call) or source.block is self.input:
                    continue
                if id(source) not in finished:
                    finished[id(source)] = False
                    stack.append((source, iter(source.sources or ())))
                elif not finished[id(source)]:
                    raise BlockValueError(
                        f"Composition cannot have cycles. {wire.block} in {self} reads its own "
                        "result; use Fold, RNN or a declaration to repeat a block."
                    )
        return order


class _Placeholder(Identity):
    """The input or the output of a composition, as its blocks see it."""

    def __init__(self, composition: Composition, side: str, name: str | None) -> None:
        super().__init__(name=name)
        self.composition = composition
        self._parents.append(composition)
        self.set_constructor_name(f"Composition.{side}")


@transaction()
def compose(function: Callable[..., Any], name: str | None = None) -> Composition:
    """A composition from a function over its input: wiring that reads like a computation.

    The function is called once, with the input. Within it, `block(x)` is the result of a block or a
    layer on x, `block(x, y)` on a tuple, and `x[0]` an item of x. Other modules and functions of
    tensors are called as `Function(f)(x)`, or `x >> f`. It returns one result or a tuple of
    results. As a decorator it turns a function into a block.

    Args:
        function: from the input to the result.
        name: the name of the composition; by default that of the function.
    """
    composition = Composition(name=name or function_name(function))
    with composition.scope():
        result = function(Wire(composition.input))
        if result is None:
            composition.set_output_type(VoidType())
        else:
            composition.connect(result, composition.output)
    return composition


def _gather(results: Sequence[Any], places: Places) -> Any:
    if len(places) == 1:
        ((place, index),) = places
        return results[place] if index is None else results[place][index]
    if not places:
        return None
    return tuple(results[p] if i is None else results[p][i] for p, i in places)


def _is_void(kind: ResultType | None) -> bool:
    return isinstance(kind, VoidType)
