"""Block: the base of everything that is composed."""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from torch import nn

from graphfold.blocks.errors import BlockTypeError
from graphfold.blocks.news import tell
from graphfold.blocks.type_conversion import TypeLike
from graphfold.blocks.typed import Typed
from graphfold.blocks.undo import all_or_nothing, append

if TYPE_CHECKING:
    from typing_extensions import Self  # of Python 3.11; torch brings it along

    from graphfold.blocks.context import Context

#: A block with children asks for their results, (child, input) by (child, input).
Steps: TypeAlias = Generator[tuple["Block", Any], Any, Any]


class Block(Typed, ABC):
    """A function from a Python object, or from tensors, to tensors.

    `a >> b` gives what a returns to b. A block may be used in any number of places; it has the same
    types in all of them and shares its weights.

    A block without children defines `apply`. One with children defines `steps`, which asks for the
    children's results instead of calling them, so that input may be nested as deeply as it likes.

    Args:
        children: the blocks that it consists of.
        input_type: what it takes, if known.
        output_type: what it gives, if known.
        name: what messages and state dicts call it.
    """

    #: Whether it has `apply` rather than `steps`.
    is_simple: ClassVar[bool] = True

    #: Keeps numpy arrays from taking `array >> block` apart.
    __array_ufunc__ = None

    @all_or_nothing()
    def __init__(
        self,
        children: Sequence[Block] = (),
        input_type: TypeLike | None = None,
        output_type: TypeLike | None = None,
        name: str | None = None,
    ) -> None:
        self._parents: list[Block] = []
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
        """Whether it stands for a block that is declared elsewhere."""
        return False

    def always(self) -> Sequence[Block]:
        """The blocks that run whenever this one does; by default all that it consists of."""
        return self._children

    def check_wiring(self) -> None:
        """Looks for faults that are none of types, before any type is missed.

        Raises:
            BlockValueError: if there is a cycle.
        """

    def apply(self, context: Context, x: Any) -> Any:
        """What it makes of one value.

        Args:
            context: what records calls of functions, or makes them at once.
            x: an instance of the input type.
        """
        raise NotImplementedError

    def steps(self, context: Context, x: Any) -> Steps:
        """The same for a block with children: yields (child, input) and is sent the result."""
        raise NotImplementedError

    def own_modules(self) -> Iterator[nn.Module]:
        """The modules that the block itself calls, not those of its children."""
        return iter(())

    def eval(self, inp: Any, tolist: bool = False) -> Any:
        """What it makes of one example, computed at once: for tests and for trying out.

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
        from graphfold.blocks.evaluate import evaluate

        return evaluate(self, inp, tolist)

    def max_depth(self, inp: Any) -> int:
        """The longest chain of calls that one example needs; a reduction counts as balanced.

        Args:
            inp: an instance of the input type.
        """
        from graphfold.blocks.evaluate import max_depth

        return max_depth(self, inp)

    def reads(self, *sources: Any) -> Self:
        """Connects sources to the input, within `Composition.scope`; returns the block.

        Args:
            *sources: blocks, outputs of blocks (`block[i]`), or what converts to a block.

        Raises:
            BlockScopeError: if there is no scope.
            BlockTypeError: if the types do not fit.
            BlockValueError: if the input is connected already.
        """
        from graphfold.blocks.composition import current_composition

        current_composition("reads").connect(sources, self)
        return self

    def __call__(self, *sources: Any) -> Any:
        """Its result on other results, in the function of `compose`; called anew each time."""
        from graphfold.blocks.composition import current_composition

        return current_composition("calling a block").call(self, sources)

    def __rshift__(self, other: Any) -> Block:
        """`(a >> b).eval(x)` is `b.eval(a.eval(x))`."""
        from graphfold.blocks.compose import Pipe

        return Pipe(self, other)

    def __rrshift__(self, other: Any) -> Block:
        from graphfold.blocks.compose import Pipe

        return Pipe(other, self)

    def __getitem__(self, key: Any) -> Any:
        """One output, to be read in a `Composition`; a slice gives a tuple of outputs."""
        from graphfold.blocks.composition import output_of

        return output_of(self, key)

    def __iter__(self) -> Iterator[Any]:
        # Python would take block[0], block[1], ... for an endless sequence.
        raise BlockTypeError(f"{self} cannot be iterated. Name its outputs: block[0], block[1].")

    def __repr__(self) -> str:
        facts = [f"{key}={shown(value)}" for key, value in sorted(self._facts().items())]
        named = [repr(self._name)] if self._name else []
        return f"<{' '.join([self._kind, *named, *facts])}>"

    def set_constructor_name(self, kind: str) -> Self:
        """Sets what messages call this kind of block; returns the block."""
        self._kind = kind
        return self

    def _facts(self) -> dict[str, Any]:
        """What messages show beside the kind."""
        return {}

    def _add_child(self, child: Block) -> None:
        append(self._children, child)
        if not any(parent is self for parent in child._parents):
            append(child._parents, self)

    def _conclude(self, draw: Callable[[Any], None], found: Any) -> None:
        """The same; an error in a child's type also names the block that has the child."""
        if self.is_simple:
            return draw(found)
        try:
            draw(found)
        except BlockTypeError as error:
            if "whole" in error.facts or str(self) in error.message:
                raise
            raise type(error)(f"{self}: {error.message}", whole=self._kind) from error

    def _type_found(self) -> None:
        tell(self._parents, self)

    def _child_found(self, child: Block) -> None:
        """Draws conclusions from the types of a child."""


def shown(value: Any) -> str:
    """A value as a message shows it: a function by its name, a module on one line."""
    if isinstance(value, nn.Module):
        return " ".join(repr(value).split())
    value = getattr(value, "func", value)  # of a partial
    name = getattr(value, "__name__", None)
    return repr(value if name is None else name)
