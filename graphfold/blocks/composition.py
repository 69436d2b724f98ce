"""Composition: blocks connected to a graph without cycles."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from graphfold.blocks.block import Block, Steps
from graphfold.blocks.context import Context
from graphfold.blocks.convert import convert_to_block
from graphfold.blocks.errors import BlockScopeError, BlockTypeError, BlockValueError
from graphfold.blocks.order import order_calls, refuse_cycles
from graphfold.blocks.simple import GetItem, Identity
from graphfold.blocks.types import PyObjectType, ResultType, TupleType, VoidType
from graphfold.blocks.undo import all_or_nothing, append, put
from graphfold.blocks.wire import Call, Wire, is_void, push_back, type_of

_CURRENT: ContextVar[Composition | None] = ContextVar("composition", default=None)


class Composition(Block):
    """Blocks that read each other's results; Looks et al. (2017), section 3.3.

    Three ways to wire them: `compose`, which reads like a function; `reads` within `scope`; or
    `connect`. In a composition a block is connected once, unless it is called (see `compose`).

    Blocks run in the order in which the output needs them, then those that nothing reads, such as
    metrics, in the order in which they were connected.

    Args:
        children: blocks that will be connected; others are added when they are.
        name: its name.
    """

    is_simple = False

    def __init__(self, children: Sequence[Any] | None = None, name: str | None = None) -> None:
        self._calls: list[Call] = []
        self._by_block: dict[Block, Call] = {}
        self._plan: list[tuple[Block, Places]] = []
        self._output_places: Places = ()
        super().__init__(name=name)
        self._input = _Placeholder(self, "input", name)
        self._output = _Placeholder(self, "output", name)
        for child in children or ():
            self._call_of(convert_to_block(child))

    @property
    def input(self) -> Block:
        """What stands for the input of the composition; it is read."""
        return self._input

    @property
    def output(self) -> Block:
        """What stands for the output of the composition; it reads."""
        return self._output

    @contextmanager
    def scope(self) -> Iterator[Composition]:
        """Within it, `reads` connects blocks of this composition."""
        token = _CURRENT.set(self)
        try:
            yield self
        finally:
            _CURRENT.reset(token)

    @all_or_nothing()
    def connect(self, sources: Any, block: Any) -> None:
        """Connects sources to the input of a block.

        Args:
            sources: a block, one output of it (`block[i]`), or a tuple or list of such.
            block: the block that reads them; several as a tuple.

        Raises:
            BlockValueError: if the block is connected already, or an end belongs elsewhere.
            BlockTypeError: if the types do not fit.
        """
        block = convert_to_block(block)
        if block is self._input:
            raise BlockValueError("cannot write to composition input. Read from it.")
        wires = self._wires(sources)
        call = self._call_of(block)
        if call.sources is not None:
            raise BlockValueError(
                f"input of block is already connected: {block}. Use another block, or call it in "
                "compose."
            )
        self._attach(call, wires)

    @all_or_nothing()
    def call(self, block: Block, sources: Any) -> Wire:
        """Uses a block once more; returns its result."""
        call = Call(block)
        append(self._calls, call)
        self._add_child(block)
        self._attach(call, self._wires(sources))
        return Wire(call)

    def check_wiring(self) -> None:
        refuse_cycles(self, self._calls)

    def check(self) -> None:
        """Orders the calls and looks for faults of the whole.

        Raises:
            BlockTypeError: if an output is unused, an input unconnected, or the output missing.
        """
        order = order_calls(self, self._calls, self._by_block.get(self._output))
        if self.input_type is None and all(is_void(call.block.input_type) for call in order):
            self.set_input_type(VoidType())
        output = self._by_block.get(self._output)
        if (output is None or output.sources is None) and not is_void(self.output_type):
            raise BlockTypeError(
                f"Composition block has no output: {self}. Connect its output, or set the output "
                "type to VoidType."
            )
        for call in order:
            if call.sources is None and not is_void(call.block.input_type):
                raise BlockTypeError(
                    f"children have unconnected inputs: {call.block} in {self}. Let it read "
                    "something."
                )
        place = {id(self._input): 0} | {id(call): n for n, call in enumerate(order, start=1)}
        self._plan = [(call.block, self._places(call, place)) for call in order]
        if output is not None:
            self._output_places = self._places(output, place)
        super().check()

    def steps(self, context: Context, x: Any) -> Steps:
        results = [x]
        for block, places in self._plan:
            value = _gather(results, places)
            if block.is_simple:
                results.append(block.apply(context, value))
            else:
                results.append((yield block, value))
        return _gather(results, self._output_places)

    def _attach(self, call: Call, wires: tuple[Wire, ...]) -> None:
        put(vars(call), "sources", wires)
        block = call.block
        if not wires:
            block.set_input_type(VoidType())
        elif len(wires) > 1:
            block.set_input_type_classes(TupleType, PyObjectType)
        for wire in wires:
            if wire.index is not None:
                wire.block.set_output_type_classes(TupleType)
        self._forward(call)
        self._backward(call)

    def _call_of(self, block: Block) -> Call:
        """The only connection of a block, made if need be."""
        if isinstance(block, _Placeholder) and block.composition is not self:
            raise BlockValueError(
                f"{block} is the input or output of a different composition. Read that of {self}."
            )
        call = self._by_block.get(block)
        if call is None:
            call = Call(block)
            put(self._by_block, block, call)
            if not isinstance(block, _Placeholder):
                append(self._calls, call)
                self._add_child(block)
        return call

    def _wires(self, sources: Any) -> tuple[Wire, ...]:
        several = isinstance(sources, (tuple, list)) and not isinstance(sources, Wire)
        return tuple(self._wire(item) for item in (sources if several else [sources]))

    def _wire(self, item: Any) -> Wire:
        wire = item if isinstance(item, Wire) else Wire(convert_to_block(item))
        if wire.source is self._output:
            raise BlockValueError("cannot read from composition output. Write to it.")
        if isinstance(wire.source, Call):
            if not any(call is wire.source for call in self._calls):
                raise BlockValueError(
                    f"{wire} was called in a different composition. Pass its result in."
                )
            return wire
        return Wire(self._call_of(wire.source), wire.index)

    def _input_found(self, kind: ResultType) -> None:
        self._input.set_input_type(kind)

    def _output_found(self, kind: ResultType) -> None:
        self._output.set_input_type(kind)

    def _child_found(self, child: Block) -> None:
        if child is self._input:
            self.set_input_type(child.input_type)
        elif child is self._output:
            self.set_output_type(child.output_type)
        for call in [*self._calls, *self._by_block.values()]:
            if call.sources is None:
                continue
            if call.block is child:
                self._backward(call)
            if any(wire.block is child for wire in call.sources):
                self._forward(call)

    def _forward(self, call: Call) -> None:
        assert call.sources is not None
        kind = type_of(call.sources)
        if kind is None:
            return
        if call.block.input_type is not None:
            if not (is_void(kind) and not call.sources):
                push_back(call.sources, call.block.input_type, call.block)
            return
        try:
            call.block.set_input_type(kind)
        except BlockTypeError as error:
            if "cannot connect" in error.message or not call.sources:
                raise
            raise type(error)(
                f"cannot connect {', '.join(map(str, call.sources))} of type {kind} to "
                f"{call.block}: {error.message.removeprefix(f'{call.block}: ')}",
                whole=self._kind,
            ) from error

    def _backward(self, call: Call) -> None:
        assert call.sources is not None
        if call.block.input_type is not None:
            push_back(call.sources, call.block.input_type, call.block)

    def _places(self, call: Call, place: dict[int, int]) -> Places:
        found = []
        for wire in call.sources or ():
            key = id(self._input) if wire.block is self._input else id(wire.source)
            found.append((place[key], wire.index))
        return tuple(found)


class _Placeholder(Identity):
    """The input or the output of a composition, seen from within."""

    def __init__(self, composition: Composition, side: str, name: str | None) -> None:
        super().__init__(name=name)
        self.composition = composition
        self._parents.append(composition)
        self.set_constructor_name(f"Composition.{side}")


#: Where a call finds its input: (which earlier result, which item of it or None for all).
Places = tuple[tuple[int, int | None], ...]


def _gather(results: Sequence[Any], places: Places) -> Any:
    if len(places) == 1:
        ((place, index),) = places
        return results[place] if index is None else results[place][index]
    if not places:
        return None
    return tuple(results[p] if i is None else results[p][i] for p, i in places)


def current_composition(what: str) -> Composition:
    """The composition that is being wired.

    Raises:
        BlockScopeError: if there is none; the message says what would have needed it.
    """
    current = _CURRENT.get()
    if current is None:
        raise BlockScopeError(
            f"Block's {what} method was called outside of a Composition scope. Use compose, or "
            "`with composition.scope():`."
        )
    return current


def output_of(block: Block, key: Any) -> Any:
    """One output of a block, or some of them as a block that reads it."""
    if isinstance(key, slice):
        current_composition("slicing")
        return GetItem(key).reads(block)
    if isinstance(key, bool) or not isinstance(key, int):
        raise BlockTypeError(
            f"{block} has outputs with numbers, but is asked for {key!r}. Give an integer."
        )
    wire = Wire(block, key)
    wire.kind  # noqa: B018  (a number that is too high is an error here)
    return wire
