"""The order in which the blocks of a composition run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from graphfold.blocks.block import Block
from graphfold.blocks.errors import BlockTypeError, BlockValueError
from graphfold.blocks.wire import Call, Wire, is_void


def order_calls(composition: Block, calls: Sequence[Call], output: Call | None) -> list[Call]:
    """All calls, each after those that it reads: what the output needs, then the others.

    Args:
        composition: what messages name.
        calls: the calls, in the order in which they were connected; without cycles.
        output: what reads the result, if anything does.

    Raises:
        BlockTypeError: if a result is not used.
    """
    read = {id(w.source) for call in [*calls, *([output] if output else [])] for w in _reads(call)}
    visit = _Visit(composition, calls)
    if output is not None:
        visit.add_with_needs(output)
        visit.order.pop()
    unused = []
    for call in calls:
        if id(call) not in visit.finished and id(call) not in read:
            visit.add_with_needs(call)
            if not is_void(call.block.output_type):
                unused.append(str(call.block))
    if unused:
        raise BlockTypeError(
            f"children have unused outputs: {', '.join(unused)} in {composition}. Read them, or "
            "pipe them to Void()."
        )
    return visit.order


def refuse_cycles(composition: Block, calls: Sequence[Call]) -> None:
    """Raises BlockValueError if a call reads its own result, directly or by way of others."""
    visit = _Visit(composition, calls)
    for call in calls:
        visit.add_with_needs(call)


class _Visit:
    """Depth first, without recursion.

    Args:
        composition: what messages name.
        calls: the calls; anything else that is read is the input.

    Attributes:
        finished: id of a call -> whether all that it needs is in the order.
        order: the calls so far.
    """

    def __init__(self, composition: Block, calls: Sequence[Call]) -> None:
        self._composition = composition
        self._known = {id(call) for call in calls}
        self.finished: dict[int, bool] = {}
        self.order: list[Call] = []

    def add_with_needs(self, first: Call) -> None:
        """Adds a call after all that it needs, unless it is there."""
        if id(first) in self.finished:
            return
        self.finished[id(first)] = False
        stack: list[tuple[Call, Iterator[Wire]]] = [(first, iter(_reads(first)))]
        while stack:
            call, wires = stack[-1]
            wire = next(wires, None)
            if wire is None:
                stack.pop()
                self.finished[id(call)] = True
                self.order.append(call)
                continue
            source = wire.source
            assert isinstance(source, Call)
            if id(source) not in self._known:
                continue
            if id(source) not in self.finished:
                self.finished[id(source)] = False
                stack.append((source, iter(_reads(source))))
            elif not self.finished[id(source)]:
                raise BlockValueError(
                    f"Composition cannot have cycles. {wire.block} in {self._composition} reads "
                    "its own result; use Fold, RNN or a declaration to repeat a block."
                )


def _reads(call: Call) -> Sequence[Wire]:
    return call.sources or ()
