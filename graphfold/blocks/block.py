"""Block: the base of everything that is composed, what converts to one, and blocks in a row."""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from functools import cached_property, singledispatch
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from torch import nn

from graphfold.blocks.errors import BlockTypeError, quoted
from graphfold.blocks.inference.typed import Typed, append, transaction
from graphfold.blocks.inference.types import ResultType, TensorType, TypeLike, in_short
from graphfold.blocks.inference.wire import Wire, current_scope, unify
from graphfold.blocks.running.evaluation import Context, evaluate, max_depth

if TYPE_CHECKING:
    from typing_extensions import Self  # of Python 3.11; torch brings it along

#: A block with children asks for their results, (child, input) by (child, input).
Steps: TypeAlias = Generator[tuple["Block", Any], Any, Any]


class Block(Typed, ABC):
    """A function from a Python object, or from tensors, to tensors.

    `a >> b` gives what a returns to b. A block may be used in any number of places; it has the same
    types in all of them and shares its weights.

    A block without children defines `apply`. One with children defines `steps`, which asks for the
    children's results instead of calling them, so that input may be nested as deeply as it likes.
    One that computes tensors is a `Primitive`.

    Args:
        children: the blocks that it consists of.
        input_type: what it takes, if known.
        output_type: what it gives, if known.
        name: what messages and state dicts call it.
    """

    #: True if it has `apply`, False if it has `steps`.
    is_simple: ClassVar[bool] = True

    #: Keeps numpy arrays from taking `array >> block` apart.
    __array_ufunc__ = None

    @transaction()
    def __init__(
        self,
        children: Sequence[Block] = (),
        input_type: TypeLike | None = None,
        output_type: TypeLike | None = None,
        name: str | None = None,
    ) -> None:
        self._children: list[Block] = []
        self._kind = type(self).__name__.strip("_")
        for child in children:
            self._add_child(child)
        super().__init__(input_type, output_type, name)
        for child in children:
            self._conclude(self._child_found, child)

    @property
    def children(self) -> list[Block]:
        """The blocks that it consists of."""
        return self._children

    @property
    def parent(self) -> Block | None:
        """The first block that it became a part of; None for what is no part of any."""
        return next((p for p in self._parents if not p.is_forward_declaration_ref), None)

    @property
    def is_forward_declaration_ref(self) -> bool:
        """True for a reference to a block that is declared elsewhere."""
        return False

    def below(self) -> Sequence[Block]:
        """Its children; of a reference, the block that is declared elsewhere."""
        return self._children

    def always(self) -> Sequence[Block]:
        """The blocks that run whenever this one does; by default all that it consists of."""
        return self._children

    def check_wiring(self) -> None:
        """Looks for faults that are none of types, before any type is missed.

        Raises:
            BlockValueError: if there is a cycle.
        """

    def apply(self, context: Context, x: Any) -> Any:
        """Computes, records or counts its result on one value.

        Args:
            context: what computes tensors, records or counts them.
            x: an instance of the input type.
        """
        raise NotImplementedError

    def steps(self, context: Context, x: Any) -> Steps:
        """Does so for a block with children: yields (child, input) and is sent the result."""
        raise NotImplementedError

    def own_modules(self) -> Iterator[nn.Module]:
        """The modules that the block itself calls, not those of its children."""
        return iter(())

    def metrics(self) -> Mapping[str, TensorType]:
        """Name -> type of the metrics that the block itself collects."""
        return {}

    def eval(self, inp: Any, tolist: bool = False) -> Any:
        """Computes its result on one example at once: for tests and for trying out.

        Args:
            inp: an instance of the input type.
            tolist: whether tensors are turned into Python lists and numbers.

        Returns:
            An instance of the output type, where tensors have no batch dimension, sequences are
            lists and endless ones `itertools.repeat`. If there are metrics, a pair of that and a
            dict of their values, name -> [num_values, ...].

        Raises:
            BlockTypeError: if the types are not all known, or a static check fails.
        """
        return evaluate(self, inp, tolist)

    def max_depth(self, inp: Any) -> int:
        """The longest chain of calls that one example needs; a reduction counts as balanced.

        Args:
            inp: an instance of the input type.
        """
        return max_depth(self, inp)

    def tree(self, max_lines: int = 50) -> str:
        """The block and its parts with their types, one on a line, to be printed.

        Args:
            max_lines: after how many the rest is left out.
        """
        lines: list[str] = []
        shown: set[int] = set()
        stack: list[tuple[Block, int]] = [(self, 0)]
        while stack and len(lines) < max_lines:
            block, level = stack.pop()
            is_known, parts = id(block) in shown, block.below()
            title = str(block) if not parts else f"<{' '.join([block._kind, *block._title()])}>"
            types = f"{in_short(block.input_type)} -> {in_short(block.output_type)}"
            again = " (see above)" if is_known and parts else ""
            lines.append(f"{'  ' * level}{title} {types}{again}")
            if not is_known:
                shown.add(id(block))
                stack.extend((part, level + 1) for part in reversed(parts))
        return "\n".join([*lines, *(["..."] if stack else [])])

    def reads(self, *sources: Any) -> Self:
        """Connects sources to the input, within `Composition.scope`; returns the block.

        Args:
            *sources: blocks, outputs of blocks (`block[i]`), or what converts to a block.

        Raises:
            BlockScopeError: if there is no scope.
            BlockTypeError: if the types do not fit.
            BlockValueError: if the input is connected already.
        """
        current_scope("reads").connect(sources, self)
        return self

    def __call__(self, *sources: Any) -> Any:
        """Its result on other results, in the function of `compose`; called anew each time."""
        return current_scope("calling a block").call(self, sources)

    def __rshift__(self, other: Any) -> Block:
        """`(a >> b).eval(x)` is `b.eval(a.eval(x))`."""
        return Pipe(self, other)

    def __rrshift__(self, other: Any) -> Block:
        return Pipe(other, self)

    def __getitem__(self, key: Any) -> Any:
        """One output, to be read in a `Composition`; a slice gives a tuple of outputs."""
        if isinstance(key, slice):
            return current_scope("slicing").item(self, key)
        if isinstance(key, bool) or not isinstance(key, int):
            raise BlockTypeError(
                f"{self} has outputs with numbers, but is asked for {key!r}. Give an integer."
            )
        wire = Wire(self, key)
        wire.kind  # noqa: B018  (a number that is too high is an error here)
        return wire

    def __iter__(self) -> Iterator[Any]:
        # Python would take block[0], block[1], ... for an endless sequence.
        raise BlockTypeError(f"{self} cannot be iterated. Name its outputs: block[0], block[1].")

    def __repr__(self) -> str:
        facts = [f"{key}={shown(value)}" for key, value in sorted(self._facts().items())]
        return f"<{' '.join([self._kind, *self._title(), *facts])}>"

    def set_constructor_name(self, kind: str) -> Self:
        """Sets what messages call this kind of block; returns the block."""
        self._kind = kind
        return self

    def _title(self) -> list[str]:
        return [repr(self._name)] if self._name else []

    def _facts(self) -> dict[str, Any]:
        """Facts that messages show beside the kind."""
        return {}

    def _add_child(self, child: Block) -> None:
        append(self._children, child)
        if not any(parent is self for parent in child._parents):
            append(child._parents, self)

    def _conclude(self, draw: Callable[[Any], None], found: Any) -> None:
        """Draws conclusions; an error in a child's type also names the block that has the child."""
        if self.is_simple:
            return draw(found)
        try:
            draw(found)
        except BlockTypeError as error:
            if "whole" in error.facts or str(self) in error.message:
                raise
            raise type(error)(f"{self}: {error.message}", whole=self._kind) from error


@singledispatch
def convert_to_block(block_like: Any) -> Block:
    """The block that `block_like` says.

    | given | block |
    |---|---|
    | a block | itself |
    | a tensor or a numpy array | a `FromTensor` of it |
    | a dict, a list of pairs, a tuple | a `Record` of it |
    | an `nn.Module` or another callable | a `Function` of it, which takes batches of tensors |

    `convert_to_block.register(cls, function)` adds a class.

    Raises:
        BlockTypeError: if it is none of these.
    """
    raise BlockTypeError(
        f"{quoted(block_like)} cannot be converted to a block. Give a block, a tensor, a module or "
        "function of tensors, or a dict, a list of pairs or a tuple of such."
    )


@convert_to_block.register
def _(block_like: Block) -> Block:
    return block_like


def convert_to_part(block_like: Any, takes: ResultType, place: str) -> Block:
    """Converts to a block that takes a type, in the place that it has in another.

    Raises:
        BlockTypeError: if it converts to none, or to one that takes something else.
    """
    try:
        return convert_to_block(block_like).set_input_type(takes)
    except BlockTypeError as error:
        raise type(error)(f"{place}: {error.message}", whole=place) from error


@transaction()
def Pipe(*blocks: Any, name: str | None = None) -> Block:
    """Each block reads the one before: `Pipe(a, b, c)` is `a >> b >> c`.

    Args:
        *blocks: blocks, or what converts to blocks; none at all give `Identity`.
    """
    parts = [convert_to_block(block) for block in blocks]
    if not parts:
        return Identity(name)
    return parts[0] if len(parts) == 1 else _Pipe(parts, name)


class _Pipe(Block):
    """Blocks in a row; `a >> b >> c` is one of a pipe and a block, however long it becomes."""

    is_simple = False

    def __init__(self, parts: Sequence[Block], name: str | None) -> None:
        first, last = parts[0], parts[-1]
        self._first: Block = first._first if isinstance(first, _Pipe) else first
        self._last: Block = last._last if isinstance(last, _Pipe) else last
        super().__init__(parts, name=name)

    def steps(self, context: Context, x: Any) -> Steps:
        for block in self._plan:
            x = block.apply(context, x) if block.is_simple else (yield block, x)
        return x

    @cached_property
    def _plan(self) -> list[Block]:
        """All blocks in the row, none of them a pipe."""
        plan: list[Block] = []
        stack: list[Block] = [self]
        while stack:
            block = stack.pop()
            if isinstance(block, _Pipe):
                stack.extend(reversed(block.children))
            else:
                plan.append(block)
        return plan

    # Types go straight to the block at the end, and from there back up through the queue of
    # parents: so no row is too long for Python's stack.
    def _input_found(self, kind: ResultType) -> None:
        self._first.set_input_type(kind)

    def _output_found(self, kind: ResultType) -> None:
        self._last.set_output_type(kind)

    def _child_found(self, child: Block) -> None:
        parts = self._children
        for left, right in pairwise(parts):
            if child is left or child is right:
                unify((Wire(left),), right, self._kind)
        self.set_input_type(parts[0].input_type)
        self.set_output_type(parts[-1].output_type)


class Identity(Block):
    """Gives what it takes."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name=name)

    def apply(self, context: Context, x: Any) -> Any:
        return x

    def _input_found(self, kind: ResultType) -> None:
        self.set_output_type(kind)

    def _output_found(self, kind: ResultType) -> None:
        self.set_input_type(kind)


def shown(value: Any) -> str:
    """A value as a message shows it: a function by its name, a module on one line."""
    if isinstance(value, nn.Module):
        return " ".join(repr(value).split())
    value = getattr(value, "func", value)  # of a partial
    name = getattr(value, "__name__", None)
    return quoted(value) if name is None else repr(name)
