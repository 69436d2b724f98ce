"""compose and Pipe: compositions that are written down without naming their ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from graphfold.blocks.block import Block
from graphfold.blocks.composition import Composition
from graphfold.blocks.convert import convert_to_block
from graphfold.blocks.simple import Identity
from graphfold.blocks.types import VoidType
from graphfold.blocks.undo import all_or_nothing
from graphfold.blocks.wire import Wire, is_void


@all_or_nothing()
def compose(function: Callable[..., Any], name: str | None = None) -> Composition:
    """A composition from a function over its input: wiring that reads like a computation.

    The function is called once, with what stands for the input. Within it, `block(x)` is the result
    of a block or a layer on x, `block(x, y)` on a tuple, and `x[0]` an item of x. Other modules and
    functions of tensors are called as `Function(f)(x)`, or `x >> f`. It returns one result or a
    tuple of results. As a decorator it turns a function into a block.

    Args:
        function: what is done with the input.
        name: its name; by default that of the function.
    """
    own = getattr(function, "__name__", "")
    composition = Composition(name=name or (own if own.isidentifier() else None))
    with composition.scope():
        result = function(Wire(composition.input))
        if result is None:
            composition.set_output_type(VoidType())
        else:
            composition.connect(result, composition.output)
    return composition


@all_or_nothing()
def Pipe(*blocks: Any, name: str | None = None) -> Block:
    """Each block reads the one before: `Pipe(a, b, c)` is `a >> b >> c`.

    Args:
        *blocks: blocks, or what converts to blocks; none at all give `Identity`.
        name: its name.
    """
    parts = [part for block in blocks for part in _parts(convert_to_block(block))]
    if not parts:
        return Identity(name)
    if len(parts) == 1:
        return parts[0]
    pipe = _Pipe(parts, name)
    with pipe.scope():
        result: Any = pipe.input
        for part in parts:
            result = part() if is_void(part.input_type) and result is pipe.input else part(result)
        pipe.connect(result, pipe.output)
    if is_void(parts[0].input_type):
        pipe.set_input_type(VoidType())
    return pipe


class _Pipe(Composition):
    """A composition in a row, which a longer row takes in: so a long one is not nested deeply.

    Args:
        parts: its blocks.
        name: its name.
    """

    def __init__(self, parts: Sequence[Block], name: str | None) -> None:
        super().__init__(name=name)
        self.parts = parts


def _parts(block: Block) -> Sequence[Block]:
    return block.parts if isinstance(block, _Pipe) and not block._name else [block]
